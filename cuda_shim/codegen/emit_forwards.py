"""Functions that are another with other arguments: runtime, older and per-thread ones.

All refer to what they call by weak references: a function that is not implemented is named and
refused as its own trampoline would. A forward is itself weak, so that one written by hand wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from convert import Converter, NotUnderstood
from emit_types import preamble, prototype
from model import Function, Model

STREAMS = {"CUstream", "cudaStream_t"}


def weak(names: set[str]) -> str:
    """Weak references, so that the library links and loads without them."""
    lines = [f'extern "C" __attribute__((weak)) decltype({n}) {n};\n' for n in sorted(names)]
    return "".join(lines)


def needs(model: Model, function: Function, callee: str) -> str:
    """The check that opens a body; `callee` may be missing."""
    slot = model.slot_of[function.name]
    code = "latch(cudaErrorNotSupported)" if function.is_runtime else "CUDA_ERROR_NOT_SUPPORTED"
    refuse = f"    rgpu_not_supported({slot});\n    return {code};\n"
    return f"  if ({callee} == nullptr) {{\n{refuse}  }}\n"


def definition(function: Function) -> str:
    """The head of a definition."""
    return prototype(function.name, function.returns, function.params) + " noexcept {\n"


def forward(model: Model, name: str, target: str, setup: str) -> tuple[str, str]:
    """The text of one forward, and the driver function that it calls."""
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", target)
    function = model.functions[name]
    if not match or match[1] not in model.functions:
        raise SystemExit(f"generate: {name}: no driver function {target}")
    driver = model.functions[match[1]]
    by_name = dict(function.params)
    given = [a.strip() for a in match[2].split(",")] if match[2] else list(by_name)
    if len(given) != len(driver.params):
        raise SystemExit(f"generate: {name}: {driver.name} has {len(driver.params)} parameters")
    converter = Converter(model)
    arguments = [
        converter.convert(a, by_name[a], kind) if a in by_name else a
        for a, (_, kind) in zip(given, driver.params, strict=True)
    ]
    body = needs(model, function, driver.name)
    call = f"{driver.name}({', '.join(arguments)})"
    if function.is_runtime:
        body += (
            f"  if (const auto code = {setup}; static_cast<int>(code) != 0) return latch(code);\n"
        )
        call = f"latch({call})"
    body += f"  return {call};\n"
    return "__attribute__((weak)) " + definition(function) + body + "}\n", driver.name


# What a forward does before it calls, by section of annotations.toml.
SETUPS = {"forward": "ensure_context()", "forward_without_context": "initialise()", "older": ""}


def forwards(
    model: Model, sections: Iterable[str] = SETUPS
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Text by name, driver function by name, and why those that are left out are."""
    texts, targets, refused = {}, {}, {}
    for section in sections:
        setup = SETUPS[section]
        for name, target in model.annotations[section].items():
            try:
                texts[name], targets[name] = forward(model, name, target, setup)
            except NotUnderstood as reason:
                refused[name] = str(reason)
    return texts, targets, refused


def runtime_forwards(model: Model) -> str:
    """runtime_forwards.cc."""
    texts, targets, refused = forwards(model, ("forward", "forward_without_context"))
    left_out = "".join(f"// {name}: {reason}\n" for name, reason in sorted(refused.items()))
    return (
        preamble(model)
        + "//\n// Runtime functions that are one driver function each.\n//\n"
        + f"// Left out, as no rule converts an argument:\n{left_out}\n"
        + '#include <bit>\n\n#include "cuda_shim/client/api_calls.h"\n'
        + '#include "cuda_shim/client/context.h"\n#include "cuda_shim/client/errors.h"\n\n'
        + "using rgpu::cuda::ensure_context;\nusing rgpu::cuda::initialise;\n"
        + "using rgpu::cuda::latch;\n\n"
        + weak(set(targets.values()))
        + "\n"
        + "\n".join(texts.values())
    )


def older_versions(model: Model) -> str:
    """older_versions.cc."""
    texts, targets, refused = forwards(model, ("older",))
    if refused:
        raise SystemExit(f"generate: no rule for {refused}")
    return (
        preamble(model)
        + "//\n// Earlier versions of driver functions, as the newest one with other arguments.\n\n"
        + '#include "cuda_shim/client/api_calls.h"\n#include "cuda_shim/generated/cuda_api.h"\n\n'
        + weak(set(targets.values()))
        + "\n"
        + "\n".join(texts.values())
    )


def asynchronous(model: Model, base: Function) -> Function | None:
    """The form of a synchronous function that takes a stream as its last parameter."""
    match = re.fullmatch(r"(\w+?)(_v\d+)?", base.name)
    assert match is not None
    candidates = [
        model.annotations["async"].get(base.name),
        f"{match[1]}Async{match[2] or ''}",
        f"{match[1]}Async",
    ]
    for candidate in candidates:
        found = model.functions.get(candidate or "")
        if found is None or found.params[-1][1] not in STREAMS:
            continue
        if [t for _, t in found.params[:-1]] == [t for _, t in base.params]:
            return found
    return None


def settle(base: Function) -> str:
    """What a synchronous copy still waits for once its asynchronous form has returned."""
    if "Memset" in base.name or "memset" in base.name:
        return "Settle::kNothing"
    if "DtoD" in base.name:
        return "Settle::kNothing"
    if "HtoD" in base.name or "HtoA" in base.name or "ToSymbol" in base.name:
        return "Settle::kHostRead"
    kinds = [n for n, t in base.params if t.endswith("cudaMemcpyKind")]
    return f"settle_of({kinds[0]})" if kinds else "Settle::kAll"


def per_thread_body(model: Model, function: Function, base: Function) -> tuple[str, str]:
    """The body of a per-thread variant, and the function that it calls."""
    names = [n for n, _ in function.params]
    field = model.annotations["per_thread_field"].get(base.name)
    flags = model.annotations["per_thread_flags"].get(base.name)
    streams = [n for n, t in function.params if t in STREAMS]
    if field:
        config, member = field.split("->")
        record = f"std::remove_cvref_t<decltype(*{config})>"
        replaced = ["per_thread.get()" if n == config else n for n in names]
        body = f"  PerThreadConfig per_thread({config}, &{record}::{member});\n"
        call = f"{base.name}({', '.join(replaced)})"
        return f"{body}  return {call};\n", base.name
    if streams or flags:
        wrap = {**{s: f"per_thread({s})" for s in streams}}
        if flags:
            wrap[flags] = f"per_thread_flags({flags})"
        arguments = ", ".join(wrap.get(n, n) for n in names)
        return f"  return {base.name}({arguments});\n", base.name
    found = asynchronous(model, base)
    if found is None:
        # Ordered after all of the thread's own stream, as the legacy stream is.
        return f"  return {base.name}({', '.join(names)});\n", base.name
    arguments = ", ".join([*names, "CU_STREAM_PER_THREAD"])
    finish = "finish_runtime" if base.is_runtime else "finish"
    return f"  return {finish}({found.name}({arguments}), {settle(base)});\n", found.name


def per_thread_variants(model: Model) -> dict[str, tuple[str, str]]:
    """The definition of each _ptsz and _ptds function, and what it calls."""
    found = {}
    written_by_hand = model.annotations["per_thread_by_hand"]["names"]
    for function in model.functions.values():
        if not function.base or function.name in written_by_hand:
            continue
        base = model.functions[function.base]
        body, callee = per_thread_body(model, function, base)
        text = definition(function) + needs(model, function, callee) + body + "}\n"
        found[function.name] = (text, callee)
    return found


def per_thread(model: Model) -> str:
    """per_thread_variants.cc."""
    variants = per_thread_variants(model)
    return (
        preamble(model)
        + "//\n// The variants for programs compiled with --default-stream per-thread: the null"
        + " stream becomes\n// the calling thread's own.\n\n"
        + '#include "cuda_shim/client/api_calls.h"\n'
        + '#include "cuda_shim/client/errors.h"\n#include "cuda_shim/client/per_thread.h"\n\n'
        + "// NOLINTBEGIN\nusing namespace rgpu::cuda;\n\n"
        + weak({callee for _, callee in variants.values()})
        + "\n"
        + "\n".join(text for text, _ in variants.values())
        + "// NOLINTEND\n"
    )
