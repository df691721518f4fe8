"""A graph of the wire as a module whose forward calls PyTorch's operators, node by node.

Threading: none. Errors: ``Uncompilable`` for what cannot be compiled, with the operator.
"""

from __future__ import annotations

from typing import Any

import torch

from rgpu_compile import _graph

# The same of wire/graph.h.
_TENSOR = 0
_NAMESPACES = ("aten", "prims")


class Uncompilable(Exception):
    """A graph that stays interpreted; the text says why."""


def _dtypes() -> dict[int, torch.dtype]:
    """PyTorch's dtypes by their numbers in C++."""
    names = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
    found = {number: getattr(torch, name) for number, name in enumerate(names)}
    found |= {8: torch.complex32, 9: torch.complex64, 10: torch.complex128, 11: torch.bool}
    return found | {15: torch.bfloat16}


DTYPES = _dtypes()
_LAYOUTS = {0: torch.strided}
_FORMATS = {
    0: torch.contiguous_format,
    1: torch.preserve_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
}


class Program(torch.nn.Module):
    """Takes the graph's inputs, which are all tensors; returns a tuple of its outputs."""

    def __init__(self, encoded: bytes, device: str) -> None:
        super().__init__()
        graph = _graph.decode(encoded)
        if any(kind != _TENSOR for kind in graph["inputs"]):
            raise Uncompilable("it takes sizes that differ between calls")
        self.input_count = len(graph["inputs"])
        self.default_dtype = DTYPES[graph["default_dtype"]]
        self._device = torch.device(device)
        self._nodes = [self._load(*node) for node in graph["nodes"]]
        self._outputs = graph["outputs"]

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """Run it."""
        values: list[Any] = list(inputs)
        for call, arguments, count in self._nodes:
            results = call(*[_filled(argument, values) for argument in arguments])
            flat = _flat(results)
            values.extend(flat if count else [])
            if count and len(flat) != count:
                raise Uncompilable(f"{call} returned {len(flat)} values, not {count}")
        return tuple(None if number is None else values[number] for number in self._outputs)

    def _load(self, name: str, overload: str, args: list[Any], count: int) -> tuple[Any, ...]:
        if name == "rgpu::lay_out":
            return _lay_out, args, count
        namespace, _, short = name.partition("::")
        if namespace not in _NAMESPACES:
            raise Uncompilable(f"it has the operator {name}")
        packet = getattr(getattr(torch.ops, namespace), short)
        op = getattr(packet, overload or "default")
        schema = op._schema
        arguments = [
            self._argument(given, declared.type)
            for given, declared in zip(args, schema.arguments, strict=True)
        ]
        if name == "aten::view" and not overload:
            # Kernels of this device may lay out their results in another way.
            return torch.ops.aten.reshape.default, arguments, count
        return _Call(op, [a.kwarg_only for a in schema.arguments],
                     [a.name for a in schema.arguments]), arguments, count  # fmt: skip

    def _argument(self, given: Any, declared: Any) -> Any:
        kind, value = given
        if kind == "device":
            return "constant", self._device
        if kind == "list":
            return kind, [self._argument(item, None) for item in value]
        if kind == "constant" and value is not None and declared is not None:
            text = str(declared)
            if "ScalarType" in text:
                return kind, DTYPES[value]
            if "Layout" in text:
                return kind, _LAYOUTS[value]
            if "MemoryFormat" in text:
                return kind, _FORMATS[value]
        return kind, value


class _Call:
    """An operator called with all of its arguments in order."""

    def __init__(self, op: Any, keyword: list[bool], names: list[str]) -> None:
        self._op = op
        self._first_keyword = keyword.index(True) if True in keyword else len(keyword)
        self._names = names[self._first_keyword :]

    def __call__(self, *args: Any) -> Any:
        positional, rest = args[: self._first_keyword], args[self._first_keyword :]
        return self._op(*positional, **dict(zip(self._names, rest, strict=True)))

    def __str__(self) -> str:
        return str(self._op)


def _filled(argument: Any, values: list[Any]) -> Any:
    kind, value = argument
    if kind == "value":
        return values[value]
    if kind == "list":
        return [_filled(item, values) for item in value]
    return value


def _flat(results: Any) -> list[Any]:
    if isinstance(results, (list, tuple)):
        return [leaf for item in results for leaf in _flat(item)]
    return [results]


def _lay_out(tensor: torch.Tensor, strides: list[int]) -> torch.Tensor:
    if list(tensor.stride()) == list(strides):
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype,
                               device=tensor.device).copy_(tensor)  # fmt: skip
