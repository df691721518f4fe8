"""Runs a case on the CPU and on device rgpu, from the same CPU numbers, and compares what it gives.

A case is a function of the device's name that makes its inputs with randn() below (or from lists)
and returns tensors, Python values, or nests of them.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch

DEVICE = "rgpu"


def randn(device: str, *sizes: int, dtype: torch.dtype = torch.float32, grad: bool = False):
    """The CPU's next normal numbers, on `device`; a leaf if `grad`."""
    return torch.randn(sizes, dtype=dtype).to(device).requires_grad_(grad)


def with_gradients(result: Any, leaves: Iterable[torch.Tensor]) -> list[Any]:
    """`result` and the gradients of the `leaves` for an uneven weighting of its tensors."""
    tensors = [t for t in flatten(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    total = sum(
        (t * torch.linspace(0.5, 1.5, t.numel()).to(t).view(t.shape)).sum().abs() for t in tensors
    )
    total.backward()
    return [result, [leaf.grad for leaf in leaves]]


def flatten(value: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dictionaries."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, torch.Size) or not isinstance(value, (tuple, list)):
        return [value]
    return [leaf for item in value for leaf in flatten(item)]


def assert_same(got: Any, want: Any, **tolerances: float) -> None:
    """Each tensor of `got` is on the device, with dtype, sizes and values of its like in `want`."""
    got_leaves, want_leaves = flatten(got), flatten(want)
    assert len(got_leaves) == len(want_leaves)
    for position, (mine, theirs) in enumerate(zip(got_leaves, want_leaves, strict=True)):
        if not isinstance(theirs, torch.Tensor):
            assert mine == theirs or (mine != mine and theirs != theirs), (position, mine, theirs)
            continue
        assert mine.device.type == DEVICE, (position, mine.device)
        assert mine.requires_grad == theirs.requires_grad, position
        torch.testing.assert_close(
            mine.detach().cpu(),
            theirs.detach(),
            equal_nan=True,
            msg=lambda text, position=position: f"result {position}: {text}",
            **tolerances,
        )


def assert_parity(case: Callable[[str], Any], **tolerances: float) -> None:
    """The case gives the same on both devices."""
    torch.manual_seed(0)
    want = case("cpu")
    torch.manual_seed(0)
    got = case(DEVICE)
    assert_same(got, want, **tolerances)
