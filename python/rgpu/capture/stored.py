"""Graphs that a server keeps: their calls, and what ``rgpu.graphs()`` says of them.

Threading: calls by any thread; the list of graphs is guarded by a lock.
Errors: as ops: what fails in a call is raised by the next wait that depends on it.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from rgpu import _C
from rgpu.capture.nodes import to_server
from rgpu.capture.results import describe
from rgpu.capture.symbols import number_of
from rgpu.capture.translate import Translation

COMPILES, UNCACHED = 1, 2  # Bits of a graph's mode.

_POLL_CALLS = 32
_WAIT_S = 0.02
_RESULTS_MAX = 256  # Distinct sizes of a dynamic graph that are remembered.

_orders = itertools.count()
_lock = threading.Lock()
_live: weakref.WeakSet[StoredGraph] = weakref.WeakSet()


@dataclass(frozen=True)
class GraphInfo:
    """A graph that the server keeps, as :func:`rgpu.graphs` lists it.

    ``state`` is ``interpreting``, ``compiling``, ``compiled`` or ``failed``; ``reason`` says why it
    is no further. ``size_bytes`` is the graph's, ``sent_bytes`` what of it was sent in this session
    (0: the server had it). ``compiles`` counts compiler runs for it in this session.
    """

    name: str
    hash: str
    state: str
    reason: str
    calls: int
    compiled_calls: int
    size_bytes: int
    sent_bytes: int
    compile_ms: int
    compiles: int


class StoredGraph:
    """One graph; calling it with the list of its inputs is one record."""

    def __init__(
        self,
        translation: Translation,
        name: str,
        mode: int,
        *,
        wait: bool = False,
        has_backward: bool = False,
        forward: StoredGraph | None = None,
    ) -> None:
        self.name = name
        self.order = next(_orders)
        self._translation = translation
        self._graph: Any = _C.StoredGraph(
            translation.encoded,
            hashlib.sha256(translation.encoded).hexdigest(),
            mode,
            translation.written,
            has_backward,
            None if forward is None else forward._graph,
        )
        self._graph.load()
        self._static = describe(translation, {}, {}) if translation.is_static else None
        has_all = translation.arguments == list(range(len(translation.placeholders)))
        self._is_plain = (
            self._static is not None
            and has_all
            and not (translation.host or translation.host_outputs)
        )
        self._by_sizes: dict[Any, tuple[list[int | float], Any]] = {}
        self._is_watched = bool(mode & COMPILES)
        self._waits = wait and self._is_watched
        self._calls = 0
        with _lock:
            _live.add(self)

    def function(self) -> Callable[[list[Any]], list[Any]]:
        """What AOTAutograd calls: it takes a list, and empties it."""

        def run(args: list[Any]) -> list[Any]:
            return self(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def __call__(self, args: list[Any]) -> list[Any]:
        """Results in the places of the FX graph's outputs."""
        if self._is_plain:
            args.extend(self._translation.constants)
            returned = self._graph.call(args, self._static)
        else:
            returned = self._call(args)
        if self._is_watched:
            self._calls += 1
            if self._waits:
                self._wait()
            elif self._calls % _POLL_CALLS == 0:
                self._watch(self._graph.poll_figures())
        return returned

    def _call(self, args: list[Any]) -> list[Any]:
        translation = self._translation
        symbols = translation.symbols.values(args)  # None where every call is like the first.
        extra, results = ([], self._static) if self._static else self._sized(args, symbols)
        values = translation.host.run(args, symbols)
        given = [to_server(a) if isinstance(a, torch.Tensor) else a
                 for a in (args[position] for position in translation.arguments)]  # fmt: skip
        args.clear()
        given += translation.constants
        given += [to_server(values[node]) for node in translation.from_host]
        given += extra
        returned = self._graph.call(given, results)
        for source in reversed(translation.host.downloads.values()):
            values[source] = returned.pop()
        translation.host.finish(values, symbols)
        for position, node in translation.host_outputs:
            returned[position] = translation.host.result(node, values)
        return returned

    def info(self) -> GraphInfo:
        """Asks the server, and waits."""
        return GraphInfo(
            name=self.name,
            hash=self._graph.hash,
            sent_bytes=self._graph.sent_bytes,
            **self._graph.figures(),
        )

    def _sized(
        self, args: list[Any], symbols: dict[sympy.Symbol, int]
    ) -> tuple[list[int | float], Any]:
        translation = self._translation
        scalars = tuple(a for a in args if not isinstance(a, torch.Tensor))
        key = (tuple(symbols.values()), scalars)
        found = self._by_sizes.get(key)
        if found is None:
            extra = [number_of(value, symbols) for value in translation.extra_scalars]
            passed = _passed_through(translation, args)
            found = (extra, describe(translation, symbols, passed))
            if len(self._by_sizes) >= _RESULTS_MAX:
                self._by_sizes.clear()
            self._by_sizes[key] = found
        return found

    def _watch(self, figures: dict[str, Any] | None) -> None:
        if figures is None or figures["state"] == "compiling":
            return
        self._is_watched = False
        if figures["state"] == "failed":
            warnings.warn(
                f"rgpu: the server could not compile the graph {self.name} and goes on "
                f"interpreting it: {figures['reason']}",
                stacklevel=3,
            )

    def _wait(self) -> None:
        while self._is_watched:
            self._watch(self._graph.figures())
            if self._is_watched:
                time.sleep(_WAIT_S)


def _passed_through(translation: Translation, args: list[Any]) -> dict[Any, Any]:
    """The scalar inputs of a call by their nodes: they may be returned as they are."""
    return {
        node: args[position]
        for position, node in enumerate(translation.placeholders)
        if not isinstance(args[position], torch.Tensor)
    }


def graphs() -> list[GraphInfo]:
    """The graphs that compiled functions of this process keep on the server, oldest first.

    One wait for each.
    """
    with _lock:
        live = list(_live)
    return [graph.info() for graph in sorted(live, key=lambda g: g.order)]
