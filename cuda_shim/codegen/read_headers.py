"""Reads CUDA's headers and libraries into the committed model of its API (api/*.json).

    ./dev codegen --headers     downloads the pinned packages, then runs this

Needs libclang and `nm`; rerun only when CUDA's version changes. generate.py does the rest from
the model alone. The packages are pinned here, because nothing but this script uses them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import headers
import read_libraries

PACKAGES = (
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-profiler-api==13.0.85",
    "nvidia-cuda-cupti==13.0.85",
    "nvidia-nvml-dev==13.0.87",
    "nvidia-cublas==13.1.0.3",
    "nvidia-cudnn-cu13==9.13.1.26",
)
API = Path(__file__).parent / "api"
LIBRARIES = ("libcuda", "libcudart", *(entry.name for entry in read_libraries.LIBRARIES))
INTERNAL = "-D__CUDA_API_VERSION_INTERNAL"  # Declares every version and per-thread variant.
TYPE_HEADERS = {
    *("cuda.h", "driver_types.h", "cuda_runtime_api.h", "surface_types.h", "texture_types.h"),
    *("library_types.h", "vector_types.h", "cudaProfiler.h", "cuda_profiler_api.h"),
}
CORE = "".join(
    f"#include <{h}>\n"
    for h in ("cuda.h", "cuda_runtime_api.h", "cudaProfiler.h", "cuda_profiler_api.h")
)
DRIVER_INTEROP = ("cudaGL.h", "cudaVDPAU.h", "cudaEGL.h")
RUNTIME_INTEROP = ("cuda_gl_interop.h", "cuda_vdpau_interop.h", "cuda_egl_interop.h")
# The program includes these itself.
BEFORE_INTEROP = ("cuda.h", "cuda_runtime_api.h", "GL/gl.h", "vdpau/vdpau.h")
TYPEDEFS = ("cudaTypedefs.h", "cudaProfilerTypedefs.h")
INTEROP_TYPEDEFS = ("cudaGLTypedefs.h", "cudaVDPAUTypedefs.h", "cudaEGLTypedefs.h")


def includes(names: Iterable[str]) -> str:
    """A translation unit that includes these headers."""
    return "".join(f"#include <{n}>\n" for n in names)


def write(name: str, content: dict[str, Any]) -> None:
    """One entry a line, so that an upgrade's diff can be read."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list):
            rows = ",\n".join("  " + json.dumps(v, ensure_ascii=False) for v in value)
            lines.append(f'"{key}": [\n{rows}\n]')
        else:
            lines.append(f'"{key}": {json.dumps(value, ensure_ascii=False)}')
    API.mkdir(exist_ok=True)
    (API / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def exports(library: Path) -> tuple[str, list[str]]:
    """The version node and the names of the functions that a shared library exports."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True
    ).stdout
    node, names = "", set()
    for line in listing.splitlines():
        _, kind, symbol = line.split()
        name, _, version = symbol.partition("@@")
        if kind in "TWi":
            names.add(name)
            node = version or node
    return node, sorted(names)


def read_core(include: list[Path]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """cuda.json's content, and the functions of cuda.h and its driver-side neighbours."""
    unit = headers.parse(CORE, include, ["-std=c++17", INTERNAL])
    facts = headers.Reader(TYPE_HEADERS).read(unit)
    names = headers.macro_names(unit, TYPE_HEADERS, r"(CU|cu)[A-Za-z0-9_]*")
    macros = headers.read_macros(names, CORE, include, [])
    public = headers.Reader(TYPE_HEADERS).read(headers.parse(CORE, include, ["-std=c++17"]))
    public_names = {f["name"] for f in public.functions}
    for function in facts.functions:
        function["public"] = function["name"] in public_names
    content = {
        "version": next(m["value"] for m in macros if m["name"] == "CUDA_VERSION"),
        "packages": list(PACKAGES),
        "declarations": reachable(facts),
        "macros": macros,
        "functions": [f for f in facts.functions if f["name"] != "cudaDeviceSynchronizeDeprecated"],
    }
    return content, facts.functions


def reachable(facts: headers.Facts) -> list[dict[str, Any]]:
    """The declarations without the vector types that nothing else names."""
    names = set()
    for entry in [*facts.functions, *facts.declarations]:
        own = re.escape(entry["name"])
        body = re.sub(rf'"name": "{own}"', "", json.dumps(entry), count=1)
        names |= set(re.findall(r"\w+", body))
    vector = re.compile(r"u?(char|short|int|long|longlong|float|double)\d(_\w+)?|dim3")
    return [
        d
        for d in facts.declarations
        if not vector.fullmatch(d["name"]) or (d["name"] in names and d["kind"] != "typedef")
    ]


def read_interop(include: list[Path], names: Iterable[str]) -> list[dict[str, Any]]:
    """The functions of the graphics headers; their types stay out of the model."""
    interop = ["-std=c++17", INTERNAL, "-D__CUDA_RUNTIME_H__"]  # That one needs C++ headers.
    found: list[dict[str, Any]] = []
    for name in names:
        unit = headers.parse(includes([*BEFORE_INTEROP, name]), include, interop)
        found += headers.Reader({name}).read(unit).functions
    return found


def read_typedefs(include: list[Path]) -> list[tuple[str, int, str]]:
    """(name, version, "" | "ptsz" | "ptds") of every function pointer type PFN_name_vN."""
    found = set()
    for group in (TYPEDEFS, *([n] for n in INTEROP_TYPEDEFS)):
        text = includes([*BEFORE_INTEROP, *group])
        unit = headers.parse(text, include, ["-std=c++17", INTERNAL])
        for entry in headers.Reader(set(group)).read(unit).declarations:
            match = re.fullmatch(r"PFN_(cu\w+?)_v(\d+)(?:_(ptsz|ptds))?", entry["name"])
            if match:
                found.add((match[1], int(match[2]), match[3] or ""))
    return sorted(found)


def proc_addresses(typedefs: list[tuple[str, int, str]], symbols: set[str]) -> list[list[Any]]:
    """[name, version, variant, symbol]: the N-th version of a name is its N-th symbol.

    The symbols of a name are name, name_v2, name_v3…, with the variant's suffix.
    """
    rows: list[list[Any]] = []
    for key in sorted({(n, v) for n, _, v in typedefs}):
        name, variant = key
        suffix = f"_{variant}" if variant else ""
        versions = [v for n, v, t in typedefs if (n, t) == key]
        numbered = [name, *(f"{name}_v{i}" for i in range(2, 9))]
        present = [s + suffix for s in numbered if s + suffix in symbols]
        if len(versions) != len(present):
            print(f"read_headers: {name} {variant}: versions {versions}, symbols {present}")
            present = present[-len(versions) :]
        rows += [[name, v, variant, s] for v, s in zip(versions, present, strict=False)]
    return rows


def check_against_cupti(include: list[Path], functions: list[dict[str, Any]]) -> int:
    """Compares the prototypes with CUPTI's records of parameters; how many were compared."""
    known = {f["name"]: f["params"] for f in functions}
    compared = 0
    for name in ("generated_cuda_meta.h", "generated_cuda_runtime_api_meta.h"):
        unit = headers.parse(includes([*BEFORE_INTEROP, name]), include, ["-std=c++17", INTERNAL])
        for entry in headers.Reader({name}).read(unit).declarations:
            function = re.sub(r"_params_st$|_params$", "", entry["name"])
            function = re.sub(r"_v\d+$", "", function) if function.startswith("cuda") else function
            if entry["kind"] != "struct" or function not in known or "fields" not in entry:
                continue
            theirs = [(f["name"], f["type"]) for f in entry["fields"]]
            ours = [(n, decayed(t)) for n, t in known[function]]
            if theirs and [t for _, t in theirs] != [t for _, t in ours]:
                raise SystemExit(f"read_headers: {function}: {ours}, but CUPTI has {theirs}")
            compared += 1
    return compared


def decayed(kind: str) -> str:
    """A parameter's type as a member's: arrays are pointers."""
    return re.sub(r"\s*\[\d*\]$", " *", kind)


def asked_by_static_cudart(archive: Path) -> set[str]:
    """The driver's functions that a static CUDA Runtime asks for by name."""
    data = archive.read_bytes()
    found = re.findall(rb"\0(cu(?!da)[A-Z][A-Za-z0-9_]+)(?=\0)", data)
    return {f.decode() for f in found}


def runtime_errors(library: Path, declarations: list[dict[str, Any]]) -> list[list[Any]]:
    """[value, name, text] of each cudaError, as the vendor's library says them."""
    cudart = ctypes.CDLL(str(library))
    for function in (cudart.cudaGetErrorName, cudart.cudaGetErrorString):
        function.restype = ctypes.c_char_p
    enum = next(d for d in declarations if d["name"] == "cudaError")
    rows = []
    for value in dict.fromkeys(v for _, v in enum["values"]):
        name, text = cudart.cudaGetErrorName(value), cudart.cudaGetErrorString(value)
        rows.append([value, name.decode(), text.decode()])
    unknown = 98765
    rows.append(
        [-1, cudart.cudaGetErrorName(unknown).decode(), cudart.cudaGetErrorString(unknown).decode()]
    )
    return rows


def main() -> None:
    """Reads --packages (a folder into which pip installed PACKAGES) and writes api/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--only", choices=("cuda", "libraries"))
    arguments = parser.parse_args()
    root = arguments.packages / "nvidia" / "cu13"
    include = [root / "include"]
    if arguments.only != "libraries":
        read_cuda(root, include)
    if arguments.only != "cuda":
        include.append(arguments.packages / "nvidia" / "cudnn" / "include")
        for library in read_libraries.LIBRARIES:
            write(
                library.name,
                read_libraries.read_library(library, arguments.packages, include, exports),
            )
    number_slots()


def number_slots() -> None:
    """slots.json: a function's number, for ever; a new name is appended, none is removed."""
    path = API / "slots.json"
    rows = json.loads(path.read_text())["slots"] if path.exists() else []
    known = {tuple(row) for row in rows}
    for library in LIBRARIES:
        listing = API / f"{library}.json"
        names = json.loads(listing.read_text())["exports"] if listing.exists() else []
        rows += [[library, n] for n in names if (library, n) not in known]
    write("slots", {"slots": rows})


def read_cuda(root: Path, include: list[Path]) -> None:
    """cuda.json: types, macros, functions; the export lists of libcuda and libcudart."""
    content, functions = read_core(include)
    runtime_library = root / "lib" / "libcudart.so.13"
    driver_headers = {"cuda.h", "cudaProfiler.h"}
    interop = read_interop(include, DRIVER_INTEROP)
    names = {f["name"] for f in functions if f["header"] in driver_headers}
    names |= {f["name"] for f in interop}
    asked = asked_by_static_cudart(root / "lib" / "libcudart_static.a")
    typedefs = read_typedefs(include)
    content["unknown_driver_names"] = sorted(asked - names - {t[0] for t in typedefs})
    names |= asked | {t[0] for t in typedefs}
    content["interop"] = interop + read_interop(include, RUNTIME_INTEROP)
    content["proc_addresses"] = proc_addresses(typedefs, names)
    content["errors"] = runtime_errors(runtime_library, content["declarations"])
    if (include[0] / "generated_cuda_meta.h").exists():
        print(f"read_headers: {check_against_cupti(include, functions)} prototypes as in CUPTI's")
    write("cuda", content)
    node, runtime_names = exports(runtime_library)
    write("libcuda", {"soname": "libcuda.so.1", "node": "", "exports": sorted(names)})
    write("libcudart", {"soname": "libcudart.so.13", "node": node, "exports": runtime_names})


if __name__ == "__main__":
    main()
