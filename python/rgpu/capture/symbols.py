"""Symbolic sizes: their values in a call, and how the server computes them.

Threading: one graph is translated by one thread; ``Symbols.values`` only reads.
Errors: ``Unshippable`` for an expression that the server cannot compute.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from rgpu import _C


class Unshippable(Exception):
    """A captured graph that cannot be sent. The text names the operator, or what else it is."""


def expression(value: Any) -> sympy.Expr:
    """The expression of a symbolic or plain scalar."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.expr
    return sympy.sympify(value)


# Functions of integers by what the wire calls them, which takes two: longer lists are folded from
# the left.
_FUNCTIONS = {
    "Add": "rgpu::int_add",
    "Mul": "rgpu::int_mul",
    "FloorDiv": "rgpu::int_floordiv",
    "CleanDiv": "rgpu::int_floordiv",
    "Mod": "rgpu::int_mod",
    "PythonMod": "rgpu::int_mod",
    "Max": "rgpu::int_max",
    "Min": "rgpu::int_min",
    "Pow": "rgpu::int_pow",
    "PowByNatural": "rgpu::int_pow",
}


class IntegerNodes:
    """Computes integer expressions by nodes of the graph, each expression once."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self._known: dict[sympy.Expr, Any] = {}

    def define(self, expr: sympy.Expr, value: Any) -> None:
        """``value`` of the graph is what ``expr`` is."""
        self._known.setdefault(expr, value)

    def can_compute(self, expr: sympy.Expr) -> bool:
        """Whether the server can: from what is defined, by its operators."""
        if expr.is_Integer or expr in self._known:
            return True
        name = _FUNCTIONS.get(type(expr).__name__)
        return bool(name) and all(self.can_compute(argument) for argument in expr.args)

    def value(self, expr: sympy.Expr) -> Any:
        """An int, or a value of the graph."""
        if expr.is_Integer:
            return int(expr)
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = self._compute(expr)
        return found

    def _compute(self, expr: sympy.Expr) -> Any:
        name = _FUNCTIONS.get(type(expr).__name__)
        if not name:
            raise Unshippable(f"the size {expr} cannot be computed by the server")
        arguments = [self.value(argument) for argument in expr.args]
        return functools.reduce(
            lambda a, b: _C.GraphValue(self._builder.add_integer_node(name, [a, b])), arguments
        )


def _size(position: int, dimension: int) -> Callable[[Sequence[Any]], int]:
    return lambda args: args[position].shape[dimension]


def _stride(position: int, dimension: int) -> Callable[[Sequence[Any]], int]:
    return lambda args: args[position].stride(dimension)


class Symbols:
    """Where the values of symbols come from in a call: scalar inputs, or sizes of tensors."""

    def __init__(self) -> None:
        self._sources: dict[sympy.Symbol, Callable[[Sequence[Any]], int]] = {}

    def add_scalar(self, position: int, value: Any) -> None:
        """The argument at ``position`` is ``value``."""
        expr = expression(value)
        if expr.is_Symbol:
            self._sources.setdefault(expr, lambda args: args[position])

    def add_tensor(self, position: int, tensor: torch.Tensor) -> None:
        """The argument at ``position`` has the geometry of ``tensor``."""
        for i, size in enumerate(tensor.shape):
            expr = expression(size)
            if expr.is_Symbol:
                self._sources.setdefault(expr, _size(position, i))
        for i, stride in enumerate(tensor.stride()):
            expr = expression(stride)
            if expr.is_Symbol:
                self._sources.setdefault(expr, _stride(position, i))

    def covers(self, expr: sympy.Expr) -> bool:
        """Whether ``expr`` has a value in every call."""
        return expr.free_symbols <= self._sources.keys()

    def values(self, args: Sequence[Any]) -> dict[sympy.Symbol, int]:
        """Every symbol's value in a call with ``args``."""
        return {symbol: source(args) for symbol, source in self._sources.items()}


def evaluate(value: Any, symbols: dict[sympy.Symbol, int]) -> int | float | bool:
    """A symbolic or plain scalar as a number."""
    if isinstance(value, (int, float, bool)):
        return value
    expr = expression(value).xreplace({s: sympy.Integer(v) for s, v in symbols.items()})
    if expr.is_Boolean or expr in (sympy.true, sympy.false):
        return bool(expr)
    return int(expr) if expr.is_Integer else float(expr)


def number_of(value: Any, symbols: dict[sympy.Symbol, int]) -> int | float:
    """A symbolic number in a call: an int for a ``SymInt``, else a float."""
    number = evaluate(value, symbols)
    return int(number) if isinstance(value, torch.SymInt) else float(number)
