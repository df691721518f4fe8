"""What a node of an FX graph stands for: its values, its memory, the program line.

Threading: pure functions. Errors: none of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from rgpu import _C
from rgpu.capture.symbols import evaluate, expression

# Draw numbers, whatever their tags say: as torch_backend/ops/op_info.cc has it.
_RANDOM = {
    "aten::native_dropout",
    "aten::_fused_dropout",
    "aten::rrelu_with_noise",
    "aten::rrelu_with_noise_",
    "aten::rrelu_with_noise_functional",
}
# Captured without dropout only.
_NOT_RANDOM = {
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
}


def source_line(node: Node) -> str:
    """The program line that a node comes from, or an empty text."""
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith('File "')]
    if not lines:
        return ""
    parts = lines[-1].split('"')
    number = parts[2].partition("line ")[2].partition(",")[0]
    return f"{parts[1]}:{number}"


def value_of(node: Any) -> Any:
    """What a node stands for: a fake tensor, a scalar, None, or a sequence of these."""
    return node.meta.get("val") if isinstance(node, Node) else node


def is_random(target: Any) -> bool:
    """Whether an operator draws numbers."""
    name = target._schema.name
    if name in _NOT_RANDOM:
        return False
    return name in _RANDOM or torch.Tag.nondeterministic_seeded in target.tags


def numbered(value: Any, first: int) -> tuple[Any, int]:
    """The values of a result, nested as it is, and the number after the last one."""
    if not isinstance(value, (list, tuple)):
        return _C.GraphValue(first), first + 1
    items = []
    for item in value:
        inner, first = numbered(item, first)
        items.append(inner)
    return items, first


def leaves(value: Any) -> Iterator[Any]:
    """The items of nested sequences, in order."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def tensors(values: Any) -> Iterator[torch.Tensor]:
    """The fake tensors that nodes stand for."""
    for value in leaves(values):
        found = value_of(value)
        if isinstance(found, (list, tuple)):
            yield from tensors(found)
        elif isinstance(found, torch.Tensor):
            yield found


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for tensors that share memory."""
    return tensor.untyped_storage()._cdata


def is_concrete(tensor: torch.Tensor) -> bool:
    """Whether its geometry has no symbols."""
    return all(isinstance(n, int) for n in (*tensor.shape, *tensor.stride()))


def is_data_dependent(value: Any) -> bool:
    """Whether a size, or a size of a tensor, is known only when values are."""
    if isinstance(value, torch.Tensor):
        return any(is_data_dependent(size) for size in value.shape)
    if not isinstance(value, torch.SymInt):
        return False
    return any(symbol.name.startswith("u") for symbol in expression(value).free_symbols)


def owns_memory(node: Any) -> bool:
    """Whether a tensor is all of its storage: others that share it can be views of it."""
    value = value_of(node)
    if not isinstance(value, torch.Tensor):
        return False
    size_bytes = value.numel() * value.element_size()
    if not statically_known_true(value.untyped_storage().nbytes() == size_bytes):
        return False
    if not statically_known_true(value.storage_offset() == 0) or value.is_conj() or value.is_neg():
        return False
    if is_concrete(value):
        return bool(torch.ops.aten.is_non_overlapping_and_dense(value))
    expected = torch._prims_common.make_contiguous_strides_for(value.shape)
    return all(statically_known_true(a == b) for a, b in zip(value.stride(), expected, strict=True))


def to_server(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as an argument of a call: single numbers travel with the record."""
    if tensor.device.type == "cpu" and tensor.dim() != 0:
        return tensor.to("rgpu")
    return tensor


def is_view(value: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether a tensor that shares memory with ``base`` is it with other sizes and strides."""
    return (
        value.dtype == base.dtype
        and value.is_conj() == base.is_conj()
        and value.is_neg() == base.is_neg()
    )


def name_of(target: Any) -> str:
    """What an operator is called."""
    return target.name() if hasattr(target, "name") and callable(target.name) else str(target)


def drawn(draws: Sequence[Any], symbols: dict[Any, int]) -> int:
    """How far a call moves the generator: as the ops would one by one."""
    total = 0
    for shapes in draws:
        elements = 0
        for shape in shapes:
            count = 1
            for size in shape:
                count *= evaluate(size, symbols)
            elements = max(elements, int(count))
        total += (elements + 7) // 4 * 4
    return total
