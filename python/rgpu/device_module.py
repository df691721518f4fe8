"""``torch.rgpu``: the device module, with the names PyTorch's accelerators have.

Threading: every function may be called from any thread; the current device is a thread's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from rgpu import _C

_PRIVATE_USE_1 = 20  # c10::DeviceType's number.
_initialized = True  # Activation checkpointing restores the random state only if this is set.


class DeviceProperties(NamedTuple):
    """What is known of one of the server's devices."""

    name: str
    total_memory: int
    """Bytes; 0 where the server does not know."""


def _index(device: Any = None) -> int:
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    parsed = torch.device(device)
    if parsed.type != "rgpu":
        raise ValueError(f"expected an rgpu device, but got {parsed}")
    return current_device() if parsed.index is None else parsed.index


def init() -> None:
    """Do nothing: the first op connects."""


def is_initialized() -> bool:
    """Whether the device can be used; True from import on."""
    return True


def _is_in_bad_fork() -> bool:
    return False


def is_available() -> bool:
    """Whether the device is registered; the server is asked at the first op."""
    return True


def device_count() -> int:
    """How many devices the server has; 0 when none can be reached. Waits at most once a session."""
    try:
        return _C.device_count()
    except RuntimeError:
        return 0


def current_device() -> int:
    """The calling thread's device index."""
    return _C.current_device()


def set_device(device: Any) -> None:
    """Make ``device`` the calling thread's current one; an error where the server lacks it."""
    _C.set_device(_index(device))


class device:  # noqa: N801 - PyTorch's name
    """Context manager that changes the current device; None or a negative index changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = current_device()
        if self.idx >= 0:
            set_device(self.idx)

    def __exit__(self, *_: object) -> None:
        set_device(self.prev_idx)


def synchronize(device: Any = None) -> None:
    """Wait until the server has done everything issued so far; raises what failed meanwhile."""
    del device
    _C.synchronize()


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name and memory of one device. Waits at most once a session."""
    devices = _C.server()["devices"]
    index = _index(device)
    if not 0 <= index < len(devices):
        raise ValueError(f"rgpu:{index} does not exist: the server has {len(devices)} device(s)")
    return DeviceProperties(*devices[index])


def get_device_name(device: Any = None) -> str:
    """The server's name of one device."""
    return get_device_properties(device).name


# Random state: a Philox seed and offset, kept here; no message is sent for any of these.


def manual_seed(seed: int) -> None:
    """Seed the current device's default generator."""
    _C.set_rng_state(_seed_state(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all devices."""
    manual_seed(seed)


def seed() -> None:
    """Seed the default generator from the machine's entropy."""
    manual_seed(torch.seed())


def initial_seed() -> int:
    """The default generator's seed."""
    return int.from_bytes(bytes(get_rng_state()[:8].tolist()), "little")


def _seed_state(seed: int) -> torch.Tensor:
    value = int(seed) & 0xFFFFFFFFFFFFFFFF
    return torch.tensor(list(value.to_bytes(8, "little") + bytes(8)), dtype=torch.uint8)


def get_rng_state(device: Any = None) -> torch.Tensor:
    """The default generator's state: uint8[16] on the CPU."""
    del device
    return _C.get_rng_state()


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Set what :func:`get_rng_state` returned."""
    del device
    _C.set_rng_state(new_state.cpu().contiguous())


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' default generators."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set what :func:`get_rng_state_all` returned."""
    for state in new_states:
        set_rng_state(state)


# Numbers formats


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types ``torch.autocast("rgpu")`` may use."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 tensors work; they do on every server."""
    del including_emulation
    return True


# Memory, as the server counts it. Each is one wait.


def memory_stats(device: Any = None) -> dict[str, int]:
    """Allocated bytes of this session on the server, with PyTorch's keys."""
    return dict(torch.accelerator.memory_stats(torch.device("rgpu", _index(device))))


def memory_allocated(device: Any = None) -> int:
    """Bytes this session's tensors hold on the server."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes this session's tensors have held."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: Any = None) -> int:
    """As :func:`memory_allocated`: the server's allocator is not the session's own."""
    return memory_allocated(device)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the device."""
    return torch.accelerator.get_memory_info(torch.device("rgpu", _index(device)))


def empty_cache() -> None:
    """Do nothing: what is freed here is freed on the server."""


# Streams and events: PyTorch's own classes, over the device guard. Recording and waiting for events
# are records like ops; query() asks the server beside the program and says no until it answered.

Stream = torch.Stream
Event = torch.Event


class StreamContext:
    """Context manager: the calling thread's ops inside go to ``stream``, if it is not None."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._before: torch.Stream | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before = current_stream()
            set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            set_stream(self._before)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager: the calling thread's ops inside are issued on ``stream``."""
    return StreamContext(stream)


def set_stream(stream: torch.Stream | None) -> None:
    """Make ``stream`` the calling thread's current one; None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


def current_stream(device: Any = None) -> torch.Stream:
    """The calling thread's current stream."""
    return torch.accelerator.current_stream(torch.device("rgpu", _index(device)))


def default_stream(device: Any = None) -> torch.Stream:
    """The device's default stream."""
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=_PRIVATE_USE_1)
