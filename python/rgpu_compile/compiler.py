"""Makes an AOTInductor package of a graph.

Threading: none. Errors: ``Uncompilable``; whatever export and Inductor raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config

from rgpu_compile.program import DTYPES, Program

# The worker's threads run the package; this process compiles with one.
_SETTINGS: dict[str, Any] = {
    "compile_threads": 1,
    "worker_start_method": "subprocess",
    "cpp.threads": -1,
    "cpp.dynamic_threads": True,
    "fallback_random": True,
    "freezing": False,
    "fx_graph_cache": False,
}

Geometry = tuple[int, Sequence[int], Sequence[int]]  # dtype, sizes, strides


def example(geometry: Geometry, device: str) -> torch.Tensor:
    """A tensor of this geometry; its values do not matter, but for indices they are in range."""
    dtype, sizes, strides = geometry
    return torch.empty_strided(sizes, strides, dtype=DTYPES[dtype], device=device).zero_()


def compile_graph(encoded: bytes, inputs: Sequence[Geometry], device: str, out: Path) -> None:
    """Write the package that runs the graph on tensors of these geometries to ``out``."""
    program = Program(encoded, device)
    torch.set_default_dtype(program.default_dtype)
    examples = tuple(example(geometry, device) for geometry in inputs)
    with torch.no_grad(), config.patch(_SETTINGS):
        exported = torch.export.export(program, examples, strict=False)
        torch._inductor.aoti_compile_and_package(exported, package_path=str(out))
