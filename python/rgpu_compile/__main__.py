"""Jobs in, answers out, a line each.

``compile``, graph file, package to write, device and geometries, separated by tabs, are answered by
``ok``, or by ``failed`` and the reason. A geometry is ``dtype:sizes:strides``, numbers separated by
commas, geometries by semicolons. Nothing else is written to stdout; what PyTorch prints goes to
stderr.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

_LENGTH_MAX = 1000


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def _geometry(text: str) -> tuple[int, list[int], list[int]]:
    dtype, sizes, strides = text.split(":")
    return int(dtype), _numbers(sizes), _numbers(strides)


def _answer(line: str) -> str:
    # Imported with the first job: it takes seconds.
    from rgpu_compile.compiler import compile_graph

    command, graph, package, device, inputs = line.rstrip("\n").split("\t")
    if command != "compile":
        return f"failed\tthere is no command {command}"
    geometries = [_geometry(text) for text in inputs.split(";") if text]
    try:
        compile_graph(Path(graph).read_bytes(), geometries, device, Path(package))
    except Exception as error:  # Whatever export and Inductor raise.
        first = str(error).strip().partition("\n")[0] or "no reason given"
        return f"failed\t{type(error).__name__}: {first}"[:_LENGTH_MAX].replace("\r", " ")
    return "ok"


def main() -> None:
    """Until stdin ends."""
    out: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    for line in sys.stdin:
        out.write(_answer(line) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
