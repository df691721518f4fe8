"""The server's memory, as ``torch.cuda`` has it.

What this session's tensors hold there is exact: asking is one wait, which also carries out every
free before it. Emptying caches and resetting figures are records like ops and wait for nothing.
"""

from __future__ import annotations

from typing import Any

import torch


def _device(device: Any) -> torch.device:
    if device is None or isinstance(device, int):
        index = torch.accelerator.current_device_index() if device is None else device
        return torch.device("rgpu", index)
    parsed = torch.device(device)
    if parsed.type != "rgpu":
        raise ValueError(f"expected an rgpu device, but got {parsed}")
    return parsed


def memory_stats(device: Any = None) -> dict[str, Any]:
    """PyTorch's statistics of an allocator, in its keys. Here storages are the blocks."""
    return dict(torch.accelerator.memory_stats(_device(device)))


def memory_allocated(device: Any = None) -> int:
    """Bytes this session's tensors hold on the device."""
    return torch.accelerator.memory_allocated(_device(device))


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes this session's tensors have held there."""
    return torch.accelerator.max_memory_allocated(_device(device))


def memory_reserved(device: Any = None) -> int:
    """As :func:`memory_allocated`, with what the server keeps of freed memory for the next tensors.

    The devices of a CPU server share what it keeps.
    """
    return torch.accelerator.memory_reserved(_device(device))


def max_memory_reserved(device: Any = None) -> int:
    """The most that :func:`memory_reserved` was whenever any of these figures was asked for."""
    return torch.accelerator.max_memory_reserved(_device(device))


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let the peaks begin again at what is held when the server comes to this point."""
    torch.accelerator.reset_peak_memory_stats(_device(device))


def reset_max_memory_allocated(device: Any = None) -> None:
    """As :func:`reset_peak_memory_stats`, which PyTorch prefers."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Let the totals (``allocated``, ``freed``, ``num_ooms``) begin again at zero."""
    torch.accelerator.reset_accumulated_memory_stats(_device(device))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the device; at most what the server's ``--memory-limit`` leaves."""
    return torch.accelerator.get_memory_info(_device(device))


def empty_cache() -> None:
    """Give back what this process and the server keep of freed memory, on all devices."""
    torch.accelerator.empty_cache()


_ROWS = (
    ("Allocated memory", "allocated_bytes"),
    ("Active memory", "active_bytes"),
    ("Reserved memory", "reserved_bytes"),
    ("Allocations", "allocation"),
)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The figures of :func:`memory_stats` as a table; ``abbreviated`` leaves the totals out."""
    place, stats = _device(device), memory_stats(device)
    columns = [("current", "Cur Usage"), ("peak", "Peak Usage")]
    if not abbreviated:
        columns += [("allocated", "Tot Alloc"), ("freed", "Tot Freed")]
    lines = [f"rgpu memory summary, device {place}; out of memory: {stats['num_ooms']} times"]
    lines.append(f"{'Metric':<18}" + "".join(f"{title:>14}" for _, title in columns))
    for title, name in _ROWS:
        values = [stats[f"{name}.all.{column}"] for column, _ in columns]
        cells = [_size(value) if name.endswith("bytes") else str(value) for value in values]
        lines.append(f"{title:<18}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def _size(size_bytes: float) -> str:
    """``size_bytes`` as PyTorch's summary writes it: "12 MiB"."""
    units = ["B  ", "KiB", "MiB", "GiB", "TiB"]
    while size_bytes >= 10240 and len(units) > 1:
        size_bytes /= 1024
        units.pop(0)
    return f"{size_bytes:.0f} {units[0]}"
