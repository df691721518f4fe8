"""The tables: addresses by name and version, libcuda's entries, names and texts of errors."""

from __future__ import annotations

from collections.abc import Iterable

import emit_trampolines
from emit_types import preamble
from model import Model


def proc_addresses(model: Model) -> str:
    """Rows by name, then variant, then version, as cuGetProcAddress looks them up."""
    lines = [
        preamble(model),
        "// RGPU_PROC(name, version, per thread, symbol): `symbol` is what cuGetProcAddress gives"
        " for `name`\n// from that version of CUDA on.\n",
    ]
    for name, version, variant, symbol in model.cuda["proc_addresses"]:
        lines.append(
            f'RGPU_PROC("{name}", {version}, {"true" if variant else "false"}, {symbol})\n'
        )
    return "".join(lines)


def driver_exports(model: Model) -> str:
    """driver_exports.inc: RGPU_EXPORT(symbol) for each export of libcuda, in their order."""
    rows = "".join(f"RGPU_EXPORT({name})\n" for name in model.libraries["libcuda"]["exports"])
    return preamble(model) + rows


def driver_entries(model: Model) -> str:
    """driver_entries.S: rgpu_entry_<name>, the counting trampolines of libcuda once more.

    cuGetProcAddress lies in librgpu_cuda.so, which cannot refer to the libraries above it.
    """
    text = emit_trampolines.assembly(model, "libcuda")
    text = text.replace(
        "// The exports of libcuda.so.1. Each",
        "// Inside librgpu_cuda.so: rgpu_entry_<name> is libcuda's <name>. Each",
    )
    head, entries = text.split("\nRGPU_ENTRY ", 1)
    head = head.replace(
        "  .globl \\name\n", "  .globl rgpu_entry_\\name\n  .hidden rgpu_entry_\\name\n"
    )
    head = head.replace(".type \\name,", ".type rgpu_entry_\\name,")
    head = head.replace("\n\\name:\n", "\nrgpu_entry_\\name:\n")
    head = head.replace(
        ".size \\name, . - \\name", ".size rgpu_entry_\\name, . - rgpu_entry_\\name"
    )
    return f"{head}\nRGPU_ENTRY {entries}"


def quoted(text: str) -> str:
    """A C string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def runtime_errors(model: Model) -> str:
    """runtime_errors.inc: RGPU_CUDA_ERROR(value, name, text), as the vendor's library says them."""
    rows = (row for row in model.cuda["errors"] if row[0] >= 0)
    return errors(model, rows)


def driver_errors(model: Model) -> str:
    """driver_errors.inc: the driver's names; its texts are the runtime's for the same number."""
    texts = {value: text for value, _, text in model.cuda["errors"]}
    names: dict[int, str] = {}
    for name, value in model.types["cudaError_enum"]["values"]:
        names.setdefault(value, name)
    return errors(
        model,
        (
            (value, name, texts.get(value) or model.annotations["driver_text"][name])
            for value, name in names.items()
        ),
    )


def errors(model: Model, rows: Iterable[tuple[int, str, str]]) -> str:
    """One row a line."""
    return preamble(model) + "".join(
        f"RGPU_CUDA_ERROR({value}, {quoted(name)}, {quoted(text)})\n" for value, name, text in rows
    )


def outputs(model: Model) -> dict[str, str]:
    """Every file of this module by name."""
    return {
        "proc_addresses.inc": proc_addresses(model),
        "driver_exports.inc": driver_exports(model),
        "driver_entries.S": driver_entries(model),
        "driver_errors.inc": driver_errors(model),
        "runtime_errors.inc": runtime_errors(model),
    }
