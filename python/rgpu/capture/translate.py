"""An FX graph of ATen calls as a graph of the wire.

Threading: under the compiler's lock, as all of ``torch.compile``.
Errors: ``Unshippable``, with the operator or the value that cannot be sent.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._higher_order_ops.effects import with_effects
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from rgpu import _C
from rgpu.capture.host_part import HostPart
from rgpu.capture.nodes import (
    is_concrete,
    is_data_dependent,
    is_random,
    is_view,
    leaves,
    name_of,
    numbered,
    owns_memory,
    source_line,
    storage_key,
    tensors,
    to_server,
    value_of,
)
from rgpu.capture.symbols import IntegerNodes, Symbols, Unshippable, expression

_TENSOR, _INTEGER, _FLOAT = 0, 1, 2

# Say something about what was true when the graph was captured, and compute nothing.
_CHECKS = {
    "prims::_make_token",
    "prims::_sink_tokens",
    "aten::_assert_tensor_metadata",
    "aten::_assert_scalar",
    "aten::sym_constrain_range",
    "aten::sym_constrain_range_for_size",
}
_NAMESPACES = ("aten", "prims")
_SCALARS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)


@dataclass
class Translation:
    """A graph ready to be sent, and what a call of it needs."""

    encoded: bytes
    symbols: Symbols
    written: list[bool]  # Of the graph's tensor inputs: it changes them in place.
    # The graph's inputs: arguments by their positions, constants, what the CPU computes, numbers.
    arguments: list[int]
    constants: list[torch.Tensor]
    from_host: list[Node]
    extra_scalars: list[Any]  # Symbolic numbers that the client computes.
    placeholders: list[Node]
    inputs: dict[Node, int]  # Arguments that are tensors, and their numbers among the inputs.
    outputs: list[Any]  # FX nodes and Nones, as the graph returns them.
    sent: list[Node]  # What the server returns, in order: outputs, then what they are views of.
    bases: dict[Node, Node]  # Of outputs that are views: of an input or of one of `sent`.
    draws: list[Any]  # Sizes of the tensors of each random node.
    host: HostPart
    host_outputs: list[tuple[int, Node]]  # Outputs that are tensors of the CPU.
    is_static: bool  # No symbols: every call is like the first.


class Translator:
    """Translates one graph."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module
        self._nodes = list(module.graph.nodes)
        self._placeholders = [node for node in self._nodes if node.op == "placeholder"]
        # What orders operators with effects (checks that raise) among each other: no values.
        ordered = [node for node in self._nodes if node.target is with_effects]
        self._tokens = {node.args[0] for node in ordered}
        self._tokens |= {user for node in ordered for user in node.users if user.args[1] == 0}
        self._builder = _C.GraphBuilder()
        self._values: dict[Node, Any] = {}  # GraphValues, nested as the results are.
        self._folded: dict[Node, Any] = {}  # Constants of the graph, computed here, once.
        self._host = HostPart(self._folded)
        self._floats: dict[Any, Any] = {}
        self._integers = IntegerNodes(self._builder)
        self._symbols = Symbols()
        self._arguments_used: list[int] = []
        self._inputs: dict[Node, int] = {}
        self._constants: list[torch.Tensor] = []
        self._from_host: list[Node] = []
        self._host_outputs: list[tuple[int, Node]] = []
        self._written: set[int] = set()
        self._draws: list[Any] = []
        self._bases: dict[Node, Node] = {}

    def is_for_device(self) -> bool:
        """Whether there is anything for a server to do."""
        return any(
            tensor.device.type == "rgpu"
            for node in self._nodes
            if node.op in ("placeholder", "call_function")
            for tensor in tensors(value_of(node))
        )

    def translate(self) -> Translation:
        """The whole of it."""
        for node in self._nodes:
            self._divide(node)
        self._add_inputs()
        self._add_constants()
        extra = self._add_numbers()
        for node in self._nodes:
            if node.op == "call_function" and node not in self._host:
                self._call(node)
        # What is brought to the CPU is returned as well, after what the graph returns.
        outputs = [*self._nodes[-1].args[0], *self._host.downloads.values()]
        sent = self._add_outputs(outputs)
        written = [storage_key(value_of(node)) in self._written for node in self._inputs]
        return Translation(
            encoded=self._builder.encode(),
            symbols=self._symbols,
            written=written + [False] * (len(self._constants) + len(self._from_host)),
            arguments=self._arguments_used,
            constants=self._constants,
            from_host=self._from_host,
            extra_scalars=extra,
            placeholders=self._placeholders,
            inputs=self._inputs,
            outputs=outputs,
            sent=sent,
            bases=self._bases,
            draws=self._draws,
            host=self._host,
            host_outputs=self._host_outputs,
            is_static=self._is_static(),
        )

    # ---- What runs here -------------------------------------------------------------------------

    def _divide(self, node: Node) -> None:
        """Constants are computed at once, and what is on the CPU is left to the client."""
        if node in self._tokens:
            return
        if node.op == "get_attr":
            self._folded[node] = self._attribute(node)
        elif node.op == "placeholder":
            value = value_of(node)
            if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                self._host.inputs[node] = self._placeholders.index(node)
        elif node.op == "call_function" and self._is_on_host(node):
            if self._is_constant(node):
                self._fold(node)
            else:
                self._host.add(node)
        elif node.op == "call_function" and node.all_input_nodes and self._is_constant(node):
            self._fold(node)  # Constants that are brought to the device.
        elif self._is_download(node):
            self._host.add_download(node, node.args[0])

    def _is_download(self, node: Node) -> bool:
        value = value_of(node)
        if node.target is not torch.ops.aten._to_copy.default:
            return False
        return value.device.type == "cpu" and value_of(node.args[0]).device.type == "rgpu"

    def _attribute(self, node: Node) -> torch.Tensor:
        value = self._module
        for name in node.target.split("."):
            value = getattr(value, name)
        if not isinstance(value, torch.Tensor):
            raise Unshippable(f"it contains another graph ({node.target})")
        return value

    def _is_on_host(self, node: Node) -> bool:
        target = node.target
        if target is operator.getitem:
            return node.args[0] in self._host
        if not isinstance(target, torch._ops.OpOverload) or target._schema.name in _CHECKS:
            return False
        made = list(tensors(value_of(node)))
        return bool(made) and all(
            tensor.device.type == "cpu" for tensor in (*made, *tensors(node.all_input_nodes))
        )

    def _is_constant(self, node: Node) -> bool:
        target = node.target
        if not all(parent in self._folded for parent in node.all_input_nodes):
            return False
        if not isinstance(value_of(node), torch.Tensor):
            return False
        if target is operator.getitem or not isinstance(target, torch._ops.OpOverload):
            return False
        return not is_random(target) and not target._schema.is_mutable

    def _fold(self, node: Node) -> None:
        args, kwargs = torch.fx.node.map_arg(
            (node.args, node.kwargs), lambda parent: self._folded[parent]
        )
        with _disable_current_modes(), torch.no_grad():
            self._folded[node] = node.target(*args, **kwargs)

    def _is_used_by_server(self, node: Node) -> bool:
        return any(user.op == "call_function" and user not in self._host for user in node.users)

    # ---- Inputs ---------------------------------------------------------------------------------

    def _add_inputs(self) -> None:
        for position, node in enumerate(self._placeholders):
            value = value_of(node)
            if node in self._tokens:
                continue
            if isinstance(value, torch.Tensor):
                self._symbols.add_tensor(position, value)
                self._check_layout(node, value)
                if value.device.type == "cpu" and not self._is_used_by_server(node):
                    continue
                self._inputs[node] = len(self._inputs)
                kind = _TENSOR
            elif isinstance(value, (torch.SymInt, int)):
                self._symbols.add_scalar(position, value)
                kind = _INTEGER
            elif isinstance(value, (torch.SymFloat, float)):
                kind = _FLOAT
            else:
                raise Unshippable(f"an input is a {type(value).__name__}")
            number = self._values[node] = _C.GraphValue(self._builder.add_input(kind))
            self._arguments_used.append(position)
            if kind == _INTEGER:
                self._integers.define(expression(value), number)
            elif kind == _FLOAT:
                self._floats[expression(value)] = number

    @staticmethod
    def _check_layout(node: Node, value: torch.Tensor) -> None:
        if value.device.type not in ("cpu", "rgpu"):
            raise Unshippable(f"an input ({node.name}) is a tensor of {value.device}")
        if value.layout != torch.strided or value.is_quantized:
            raise Unshippable(f"an input ({node.name}) has the layout {value.layout}")

    def _add_constants(self) -> None:
        """Constants and values of the CPU that the server uses, or returns, are inputs."""
        outputs = self._nodes[-1].args[0]
        for node, value in self._folded.items():
            is_returned = node in outputs and value.device.type != "cpu"
            if not is_returned and not self._is_used_by_server(node):
                continue
            with _disable_current_modes():
                self._constants.append(to_server(value))
            self._values[node] = _C.GraphValue(self._builder.add_input(_TENSOR))
        for node in self._nodes:
            if node.op != "call_function" or node not in self._host or node in self._folded:
                continue
            if isinstance(value_of(node), torch.Tensor) and self._is_used_by_server(node):
                if self._host.is_late(node):
                    raise Unshippable("it brings a tensor to the CPU and back")
                self._from_host.append(node)
                self._values[node] = _C.GraphValue(self._builder.add_input(_TENSOR))

    def _add_numbers(self) -> list[Any]:
        """Symbolic floats, and integers that the server cannot compute, come with every call."""
        extra = []
        for node in self._nodes:
            if node.op != "call_function" or node in self._host:
                continue
            if isinstance(node.meta.get("val"), _SCALARS):
                continue
            for argument in node.all_input_nodes:
                value = value_of(argument)
                if self._is_from_client(value):
                    self._add_number(expression(value), is_float=isinstance(value, torch.SymFloat))
                    extra.append(value)
        return extra

    def _is_from_client(self, value: Any) -> bool:
        if isinstance(value, torch.SymFloat):
            expr = expression(value)
            return not expr.is_number and expr not in self._floats
        if not isinstance(value, torch.SymInt) or is_data_dependent(value):
            return False
        return not self._integers.can_compute(expression(value))

    def _add_number(self, expr: Any, *, is_float: bool) -> None:
        if not self._symbols.covers(expr):
            raise Unshippable(f"the number {expr} depends on the values of tensors")
        number = _C.GraphValue(self._builder.add_input(_FLOAT if is_float else _INTEGER))
        if is_float:
            self._floats[expr] = number
        else:
            self._integers.define(expr, number)

    def _is_static(self) -> bool:
        return not any(
            isinstance(value, (torch.SymInt, torch.SymFloat))
            or (isinstance(value, torch.Tensor) and not is_concrete(value))
            for node in self._nodes
            if node.op != "output"
            for value in leaves(value_of(node))
        )

    # ---- Nodes ----------------------------------------------------------------------------------

    def _call(self, node: Node) -> None:
        target, value = node.target, node.meta.get("val")
        if target is operator.getitem:
            if not isinstance(value, _SCALARS):
                self._values[node] = self._values[node.args[0]][node.args[1]]
            return
        if isinstance(value, _SCALARS):
            return  # Computed where it is used.
        args, is_ordered = node.args, target is with_effects
        if is_ordered:  # (token, operator, arguments…) → (token, results…)
            target, args, value = args[1], args[2:], value[1:]
        if not isinstance(target, torch._ops.OpOverload):
            raise Unshippable(f"the server has no operator {name_of(target)}")
        name = target._schema.name
        if name in _CHECKS:
            return
        if name.partition("::")[0] not in _NAMESPACES:
            raise Unshippable(f"the server has no operator {name}")
        if any(is_data_dependent(leaf) for leaf in leaves(value)):
            raise Unshippable(f"the size of what {name} returns depends on the values of tensors")
        arguments = self._arguments(target._schema, args, node.kwargs)
        if name == "aten::as_strided":
            arguments[0] = self._laid_out(node.args[0])
        count = sum(1 for _ in leaves(value)) if target._schema.returns else 0
        first = self._builder.add_node(
            name, target._schema.overload_name, arguments, count, source_line(node)
        )
        self._values[node], _ = numbered(value, first)
        if is_ordered:
            self._values[node] = [None, *self._values[node]]
        self._note_written(node)
        if any(tensor.device.type == "cpu" for tensor in tensors(value)):
            raise Unshippable(f"{name} brings a tensor to the CPU")
        if is_random(target):
            self._draws.append([t.shape for t in tensors([node, *node.all_input_nodes])])

    def _laid_out(self, node: Node) -> Any:
        """In the memory layout that it was captured with: another device's kernel may differ."""
        if node in self._inputs:
            return self._values[node]
        strides = [self._integers.value(expression(stride)) for stride in value_of(node).stride()]
        return _C.GraphValue(self._builder.add_layout_node(self._values[node], strides))

    def _arguments(self, schema: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        arguments = []
        for i, argument in enumerate(schema.arguments):
            if i < len(args) and not argument.kwarg_only:
                given = args[i]
            elif argument.name in kwargs:
                given = kwargs[argument.name]
            elif argument.has_default_value():
                given = argument.default_value
            else:
                raise Unshippable(f"{schema.name} lacks its argument '{argument.name}'")
            arguments.append(self._argument(given, schema.name))
        return arguments

    def _argument(self, given: Any, name: str) -> Any:
        if isinstance(given, (list, tuple)):
            return [self._argument(item, name) for item in given]
        if isinstance(given, torch.device) and given.type not in ("rgpu", "meta"):
            raise Unshippable(f"{name} makes a tensor of the device {given}")
        if isinstance(given, torch.Generator):
            raise Unshippable(f"{name} draws from a generator of its own")
        if not isinstance(given, Node):
            return given
        value = value_of(given)
        if isinstance(value, torch.SymFloat):
            expr = expression(value)
            return float(expr) if expr.is_number else self._floats[expr]
        if isinstance(value, torch.SymBool):
            raise Unshippable(f"{name} takes a condition on sizes, {value}")
        if isinstance(value, torch.SymInt):
            return self._integers.value(expression(value))
        if isinstance(value, _SCALARS):
            return self._values.get(given, value)
        return self._values[given]

    def _note_written(self, node: Node) -> None:
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            return
        for i, argument in enumerate(schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
            self._written.update(storage_key(t) for t in tensors([given]))

    # ---- Outputs --------------------------------------------------------------------------------

    def _add_outputs(self, outputs: Sequence[Any]) -> list[Node]:
        """The server returns what is no view of an input or of something else that it returns.

        Of a view it returns the whole that it is a view of, which may be no output itself.
        """
        inputs = {storage_key(value_of(node)): node for node in self._inputs}
        owners = self._owners()
        sent: list[Node] = []
        for position, node in enumerate(outputs):
            value = value_of(node)
            if not isinstance(value, torch.Tensor) or node in self._tokens:
                continue
            if value.device.type == "cpu":
                self._host_outputs.append((position, node))
                continue
            if node in self._inputs:
                continue
            key = storage_key(value)
            base = inputs.get(key) or owners.get(key)
            if base is None or base is node or not is_view(value, value_of(base)):
                base = node  # A copy of its own, if it shares memory.
            else:
                self._bases[node] = base
            if base not in self._inputs and base not in sent:
                sent.append(base)
        sent.sort(key=lambda node: outputs.index(node) if node in outputs else len(outputs))
        for node in sent:
            number = self._values[node]
            if node in self._folded:  # Somebody may write to what he gets.
                number = _C.GraphValue(
                    self._builder.add_node("aten::clone", "", [number, None], 1, "")
                )
            self._builder.add_output(number.number)
        return sent

    def _owners(self) -> dict[int, Node]:
        """The first node that is all of a storage, by the storage."""
        owners: dict[int, Node] = {}
        for node in self._nodes:
            value = node.meta.get("val")
            if node.op in ("call_function", "get_attr") and isinstance(value, torch.Tensor):
                key = storage_key(value)
                if key not in owners and node in self._values and owns_memory(node):
                    owners[key] = node
        return owners
