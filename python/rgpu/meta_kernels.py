"""PyTorch's Python shape functions, made to run without loading ``torch._dynamo`` (0.6 s).

The device asks PyTorch's Meta kernels for the shape of each distinct call, once. Many of them are
Python functions wrapped by ``torch._disable_dynamo``, whose first call imports ``torch._dynamo`` to
make the wrapped function invisible to a compiler. In a process that has not loaded the compiler
there is nothing to be invisible to. The wrapper keeps what it made in an attribute of the function,
so a stand-in is put there that calls the function itself until the compiler is loaded, and then
does what the wrapper would have done.

Checked on PyTorch 2.13 and 2.14. Where the wrapper looks different, nothing is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CellType, FunctionType
from typing import Any

from rgpu.compiling import hide_frame

_ATTRIBUTE = "__dynamo_disable"


def defer_compiler() -> None:
    """Put the stand-ins in place. Once, at import; some 10 ms."""
    if "torch._dynamo" in sys.modules:
        return
    seen: set[int] = set()
    pending = [value for value in _meta_functions() if isinstance(value, FunctionType)]
    while pending:
        function = pending.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        pending += _inner_functions(function)


def _meta_functions() -> Iterator[Any]:
    for name, module in list(sys.modules.items()):
        if name.startswith(("torch._refs", "torch._meta_registrations", "torch._decomp")):
            yield from vars(module).values()


def _inner_functions(function: FunctionType) -> list[FunctionType]:
    """What a wrapper closes over; a wrapper that waits for the compiler gets its stand-in."""
    names = function.__code__.co_freevars
    cells = {
        name: _contents(cell) for name, cell in zip(names, function.__closure__ or (), strict=True)
    }
    if set(cells) == {"fn", "recursive"} and _ATTRIBUTE in function.__code__.co_consts:
        _stand_in(cells["fn"], cells["recursive"])
    return [value for value in cells.values() if isinstance(value, FunctionType)]


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # Not filled yet.
        return None


def _stand_in(function: Callable[..., Any], recursive: bool) -> None:
    if getattr(function, _ATTRIBUTE, None) is not None:
        return

    def call(*args: Any, **kwargs: Any) -> Any:
        compiler = sys.modules.get("torch._dynamo")
        if compiler is None or not hasattr(compiler, "disable"):
            return function(*args, **kwargs)
        disabled = compiler.disable(function, recursive, wrapping=False)
        setattr(function, _ATTRIBUTE, disabled)
        return disabled(*args, **kwargs)

    hide_frame(call)
    setattr(function, _ATTRIBUTE, call)
