"""cuBLAS, cuBLASLt, cuDNN and NVML: their functions, types and export lists, for the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headers

# What the headers below need of headers that need a C++ library: names, no bodies.
PREFACE = """#include <cuda_runtime_api.h>
typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;
typedef struct __half __half;
typedef struct __nv_bfloat16 __nv_bfloat16;
"""
GUARDS = ["-DCU_COMPLEX_H_", "-D__CUDA_FP16_H__", "-D__CUDA_BF16_H__", "-D__CUDA_RUNTIME_H__"]


@dataclass(frozen=True)
class Library:
    """Where a library's facts are, and how its headers are named."""

    name: str
    soname: str
    file: str  # Under the packages' folder; "" for a library that comes with the driver.
    includes: tuple[str, ...]
    headers: tuple[str, ...]
    macros: str  # A pattern.


CUDNN_PARTS = ("version", "graph", "ops", "adv", "cnn", "backend")
LIBRARIES = (
    Library(
        "libcublas",
        "libcublas.so.13",
        "nvidia/cu13/lib/libcublas.so.13",
        ("cublas_v2.h", "cublasXt.h"),
        ("cublas_v2.h", "cublas_api.h", "cublasXt.h"),
        r"CUBLAS_\w+",
    ),
    Library(
        "libcublasLt",
        "libcublasLt.so.13",
        "nvidia/cu13/lib/libcublasLt.so.13",
        ("cublasLt.h",),
        ("cublasLt.h",),
        r"CUBLASLT_\w+",
    ),
    Library(
        "libcudnn",
        "libcudnn.so.9",
        "nvidia/cudnn/lib/libcudnn.so.9",
        ("cudnn.h",),
        ("cudnn.h", *(f"cudnn_{p}.h" for p in CUDNN_PARTS)),
        r"CUDNN_\w+",
    ),
    Library(
        "libnvidia-ml",
        "libnvidia-ml.so.1",
        "",
        ("nvml.h",),
        ("nvml.h",),
        r"NVML_\w+",
    ),
)


def read(library: Library, include: list[Path], arguments: list[str]) -> headers.Facts:
    """What the library's own headers declare."""
    text = PREFACE + "".join(f"#include <{n}>\n" for n in library.includes)
    unit = headers.parse(text, include, ["-std=c++17", *GUARDS, *arguments])
    facts = headers.Reader(set(library.headers)).read(unit)
    names = headers.macro_names(unit, set(library.headers), library.macros)
    facts.macros = headers.read_macros(names, text, include, GUARDS)
    return facts


def read_library(
    library: Library,
    packages: Path,
    include: list[Path],
    exports: Callable[[Path], tuple[str, list[str]]],
) -> dict[str, Any]:
    """The content of the library's JSON file."""
    facts = read(library, include, [])
    functions = {f["name"]: {**f, "public": True} for f in facts.functions}
    if library.file:
        node, names = exports(packages / library.file)
        if library.name == "libcublas":
            legacy = Library("", "", "", ("cublas.h",), ("cublas.h",), "-")
            for function in read(legacy, include, []).functions:
                functions.setdefault(function["name"], {**function, "public": False})
    else:
        # The names before the header's own macros add a version to them.
        older = read(library, include, ["-DNVML_NO_UNVERSIONED_FUNC_DEFS"]).functions
        for function in older:
            functions.setdefault(function["name"], {**function, "public": False})
        node, names = "", sorted(functions)
    return {
        "soname": library.soname,
        "node": node,
        "declared": len(facts.functions),
        "exports": names,
        "functions": [f for f in functions.values() if f["name"] in set(names)],
        "declarations": facts.declarations,
        "macros": facts.macros,
    }
