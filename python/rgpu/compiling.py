"""``torch.compile`` for the device: what a program writes, without loading the compiler before use.

Threading: any thread.
Errors: ``ValueError`` for an option that does not exist, with those that do.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch


def compile_backend(
    *,
    compiler: str = "inductor",
    mode: str = "default",
    cache: bool = True,
    fallback: str = "eager",
    wait: bool = False,
) -> Callable[..., Any]:
    """A backend for ``torch.compile`` that sends graphs to the server, once each.

    A call of a compiled function is one record, its backward another one.

    Args:
        compiler: ``"inductor"``: the server interprets a graph at once, compiles it meanwhile in a
            process of its own, and goes over to the compiled form when that is ready. ``"eager"``:
            it only interprets.
        mode: ``"default"``; no other yet.
        cache: Whether the server may keep graphs and what it compiled of them on its disk, so that
            the next program that has the same graph neither sends nor compiles it.
        fallback: What becomes of a graph that cannot be sent, because it has an operator that the
            server lacks or sizes that depend on the values of tensors: ``"eager"``: its ops go to
            the server one by one, with a warning that says why; ``"error"``: ``RuntimeError``.
        wait: Whether the first call of a graph waits until it is compiled.

    Raises:
        ValueError: For a choice that does not exist.
    """
    from rgpu.capture.backend import Backend, Options

    return Backend(Options(compiler, mode, cache, fallback, wait))


def graphs() -> list[Any]:
    """The graphs that compiled functions of this process keep on the server, oldest first.

    Each as a :class:`rgpu.capture.stored.GraphInfo`: its name, state (``interpreting``,
    ``compiling``, ``compiled``, ``failed``), the reason, calls and bytes. One wait for each graph.
    """
    stored = sys.modules.get("rgpu.capture.stored")
    return [] if stored is None else stored.graphs()


def hide_frames() -> None:
    """A compiler that captures a program leaves out the frames of this package.

    Others call them in the middle of what it captures: random states are kept and restored.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "rgpu":
            for value in list(vars(module).values()):
                found = [value, *vars(value).values()] if isinstance(value, type) else [value]
                for function in found:
                    if isinstance(function, FunctionType) and function.__module__ == name:
                        hide_frame(function)


def hide_frame(function: Callable[..., Any]) -> None:
    """Neither it nor what it calls is captured."""
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


def install() -> None:
    """``torch.compile`` without a backend means Inductor, which has no code for this device."""
    wrapper = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    @functools.wraps(original)
    def __call__(self: Any, model: Any, inputs: Any, **kwargs: Any) -> Any:
        if any(_is_ours(value) for value in inputs):
            return compile_backend()(model, inputs)
        return original(self, model, inputs, **kwargs)

    wrapper.__call__ = __call__


def _is_ours(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "rgpu"
