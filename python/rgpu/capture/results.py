"""What a call of a graph returns, place by place: new tensors, inputs, views, numbers.

Threading: one graph is described by one thread at a time. Errors: none of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import sympy
import torch

from rgpu import _C
from rgpu.capture.nodes import drawn, value_of
from rgpu.capture.symbols import evaluate
from rgpu.capture.translate import Translation


def describe(
    translation: Translation, symbols: dict[sympy.Symbol, int], passed: dict[Any, Any]
) -> Any:
    """The results of a call in which the symbols, and the scalar inputs, have these values."""

    def numbers(values: Sequence[Any]) -> list[int]:
        return [int(evaluate(value, symbols)) for value in values]

    def geometry(value: torch.Tensor) -> tuple[Any, ...]:
        return numbers(value.shape), numbers(value.stride()), value.dtype

    outputs, sent = translation.outputs, translation.sent
    # What is no output itself comes last, as the server returns it.
    places = [*outputs, *(node for node in sent if node not in outputs)]

    def row(position: int) -> tuple[Any, ...]:
        node = places[position]
        value = value_of(node)
        if value is None:
            return ("none",)
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            return ("none",)  # The client has it.
        if not isinstance(value, torch.Tensor):
            return ("scalar", passed[node] if node in passed else evaluate(value, symbols))
        if node in translation.inputs:
            return ("input", translation.inputs[node])
        if node in sent and position == places.index(node):
            return ("new", *geometry(value), _is_opaque(node))
        base = translation.bases.get(node, node)  # Itself: the same once more.
        if base in translation.inputs:
            kind, index = "view_of_input", translation.inputs[base]
        else:
            kind, index = "view_of_result", places.index(base)
        offset = value.storage_offset() - value_of(base).storage_offset()
        return (kind, index, *geometry(value), int(evaluate(offset, symbols)))

    rows = [row(position) for position in range(len(places))]
    return _C.GraphResults(rows, len(outputs), drawn(translation.draws, symbols))


def _is_opaque(node: Any) -> bool:
    """Whether it is a result that has another geometry on some devices."""
    if node.target is not operator.getitem:
        return False
    parent = node.args[0]
    schema = getattr(getattr(parent, "target", None), "_schema", None)
    return schema is not None and _C.is_device_dependent(schema.name, node.args[1])
