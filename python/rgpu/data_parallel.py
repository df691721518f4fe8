"""What ``torch.nn.DataParallel`` needs, which PyTorch has in C++ for CUDA alone.

``torch.nn.parallel.comm`` calls ``torch._C._scatter`` and its like, which only CUDA builds have
(``torch/csrc/cuda/python_comm.cpp``) and which know CUDA devices only. Where devices or tensors
are rgpu's, these functions take their place: plain copies, none of which waits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.nn.parallel import comm

_Tensors = tuple[torch.Tensor, ...]


def _is_ours(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether PyTorch would take the tensors to, from or between devices of this kind."""
    kinds = {tensor.device.type for tensor in tensors}
    if kinds != {"cpu"}:
        return kinds <= {"cpu", "rgpu"}
    current = torch.accelerator.current_accelerator()
    return current is not None and current.type == "rgpu"


def _index(device: Any) -> int:
    if device is None or device == "rgpu":
        return torch.accelerator.current_device_index()
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return torch.accelerator.current_device_index() if index is None else index


def _place(device: Any) -> torch.device:
    return torch.device("rgpu", _index(device))


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def broadcast(
    tensor: torch.Tensor,
    devices: Sequence[Any] | None = None,
    *,
    out: Sequence[torch.Tensor] | None = None,
) -> _Tensors:
    """See ``torch.nn.parallel.comm.broadcast``."""
    if (devices is None) == (out is None):
        raise RuntimeError(
            "Exactly one of 'devices' and 'out' must be specified, but got "
            f"devices={devices} and out={out}"
        )
    tensor = _plain(tensor)
    if out is None:
        assert devices is not None
        return tuple(tensor.to(_place(device), non_blocking=True) for device in devices)
    for target in out:
        target.copy_(tensor, non_blocking=True)
    return tuple(out)


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[Any], buffer_size: int = 10485760
) -> list[list[torch.Tensor]]:
    """See ``torch.nn.parallel.comm.broadcast_coalesced``; a copy is a record, so none is joined."""
    del buffer_size
    copies = [
        [_plain(tensor).to(_place(device), non_blocking=True) for tensor in tensors]
        for device in devices
    ]
    # A replica's tensor is another tensor, also where it shares the storage.
    return [[copy.detach() for copy in row] for row in copies]


def reduce_add(inputs: Sequence[torch.Tensor], destination: Any = None) -> torch.Tensor:
    """See ``torch.nn.parallel.comm.reduce_add``."""
    place = _place(destination)
    if all(tensor.device != place for tensor in inputs):
        raise RuntimeError(f"reduce_add expects one of the tensors on its destination, {place}")
    total, *others = (tensor.to(place, non_blocking=True) for tensor in inputs)
    for other in others:
        total = total + other
    return total


def scatter(
    tensor: torch.Tensor,
    devices: Sequence[Any] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[torch.Stream | None] | None = None,
    *,
    out: Sequence[torch.Tensor] | None = None,
) -> _Tensors:
    """See ``torch.nn.parallel.comm.scatter``."""
    tensor = _plain(tensor)
    if out is not None:
        if devices is not None or chunk_sizes is not None:
            raise RuntimeError("'devices' and 'chunk_sizes' do not go with 'out'")
        sizes = [target.size(dim) for target in out]
        for target, chunk in zip(out, tensor.split(sizes, dim), strict=True):
            target.copy_(chunk, non_blocking=True)
        return tuple(out)
    assert devices is not None
    places = [_place(device) for device in devices]
    chunks = (
        tensor.chunk(len(places), dim)
        if chunk_sizes is None
        else tensor.split(list(chunk_sizes), dim)
    )
    scattered = []
    for i, chunk in enumerate(chunks):
        with torch.rgpu.stream(streams[i] if streams else None):
            scattered.append(chunk.to(places[i], non_blocking=True).detach())
    return tuple(scattered)


def gather(
    tensors: Sequence[torch.Tensor],
    dim: int = 0,
    destination: Any = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """See ``torch.nn.parallel.comm.gather``."""
    plain = [_plain(tensor) for tensor in tensors]
    if out is not None:
        if destination is not None:
            raise RuntimeError(f"'destination' ({destination}) does not go with 'out'")
        sizes = [tensor.size(dim) for tensor in plain]
        for target, tensor in zip(out.split(sizes, dim), plain, strict=True):
            target.copy_(tensor, non_blocking=True)
        return out
    to_cpu = destination == -1 or (
        not isinstance(destination, int | None) and torch.device(destination).type == "cpu"
    )
    place = torch.device("cpu") if to_cpu else _place(destination)
    return torch.cat([tensor.to(place, non_blocking=not to_cpu) for tensor in plain], dim)


def _tensors_of(first: Any) -> list[torch.Tensor]:
    return [first] if isinstance(first, torch.Tensor) else list(first)


def _replaced(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def either(first: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = _tensors_of(first)
        chosen = ours if _is_ours(tensors) else original
        return chosen(first if isinstance(first, torch.Tensor) else tensors, *args, **kwargs)

    return either


def install() -> None:
    """Let ``torch.nn.parallel.comm`` know rgpu devices; others go where they went."""
    for ours in (broadcast, broadcast_coalesced, reduce_add, scatter, gather):
        setattr(comm, ours.__name__, _replaced(getattr(comm, ours.__name__), ours))
