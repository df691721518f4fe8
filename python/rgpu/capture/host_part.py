"""What a captured graph does with tensors of the CPU: the client does it, in every call.

A compiled optimizer counts its steps on the CPU; a function may be given a mask or an index there.
Nodes whose tensors are all on the CPU run here, before the record of the call; what they change in
place is changed after it, because the record reads the values from before. So does what depends on
tensors that the graph brings to the CPU: the call then waits for them, as ``.cpu()`` does.

Threading: calls may run side by side. Errors: what the operators raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.fx import Node
from torch.fx.node import map_arg

from rgpu.capture.symbols import evaluate


class HostPart:
    """The nodes of one graph that run on the CPU."""

    def __init__(self, folded: dict[Node, torch.Tensor]) -> None:
        self.inputs: dict[Node, int] = {}  # Arguments of the graph that are tensors of the CPU.
        self._folded = folded
        self.downloads: dict[Node, Node] = {}  # Copies to the CPU, and what they copy.
        self._nodes: dict[Node, None] = {}
        self._late: dict[Node, None] = {}  # These, and what depends on them.
        self._writes: dict[Node, None] = {}

    def __contains__(self, node: Node) -> bool:
        parts = (self.inputs, self._nodes, self._late, self._writes, self._folded)
        return any(node in part for part in parts)

    def __bool__(self) -> bool:
        return bool(self.inputs or self._nodes or self._late or self._writes)

    def add(self, node: Node) -> None:
        """In the order of the graph."""
        schema = getattr(node.target, "_schema", None)
        is_write = schema is not None and schema.is_mutable
        if is_write:
            self._writes[node] = None
        elif self.is_late(node):
            self._late[node] = None
        else:
            self._nodes[node] = None

    def add_download(self, node: Node, source: Node) -> None:
        """``node`` is a copy of ``source``, which the server computes."""
        self.downloads[node] = source
        self._late[node] = None

    def is_late(self, node: Node) -> bool:
        """Whether it is there only after the call."""
        return node in self._late or any(a in self._late for a in node.all_input_nodes)

    def run(self, args: Sequence[Any], symbols: dict[sympy.Symbol, int]) -> dict[Node, Any]:
        """The values of all nodes in a call with ``args``."""
        values: dict[Node, Any] = {node: args[position] for node, position in self.inputs.items()}
        for node in self._nodes:
            values[node] = self._call(node, values, symbols)
        return values

    def finish(self, values: dict[Node, Any], symbols: dict[sympy.Symbol, int]) -> None:
        """What comes after the call: ``values`` has what the server computed, too."""
        for node in (*self._late, *self._writes):
            values[node] = self._call(node, values, symbols)

    def result(self, node: Node, values: dict[Node, Any]) -> torch.Tensor:
        """What the graph returns in the place of ``node``."""
        if node in self._folded:
            return self._folded[node].clone()  # Somebody may write to what he gets.
        return values[node]

    def _call(
        self, node: Node, values: dict[Node, Any], symbols: dict[sympy.Symbol, int]
    ) -> torch.Tensor:
        def value(argument: Node) -> Any:
            if argument in values:
                return values[argument]
            if argument in self._folded:
                return self._folded[argument]
            return evaluate(argument.meta["val"], symbols)

        args, kwargs = map_arg((node.args, node.kwargs), value)
        with torch.no_grad():
            return node.target(*args, **kwargs)
