"""``torch.rgpu``: the device module, with the names PyTorch's accelerators have.

Threading: every function may be called from any thread; the current device is a thread's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from rgpu import _C, memory  # noqa: F401
from rgpu.memory import (  # noqa: F401 - torch.rgpu has them, as torch.cuda does
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)

_PRIVATE_USE_1 = 20  # c10::DeviceType's number.
_initialized = True  # Activation checkpointing restores the random state only if this is set.


class DeviceProperties(NamedTuple):
    """What is known of one of the server's devices."""

    name: str
    total_memory: int
    """Bytes a session may use; 0 where the server does not know."""
    multi_processor_count: int = 1
    """1 where the server does not know."""


def _index(device: Any = None) -> int:
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    parsed = torch.device(device)
    if parsed.type != "rgpu":
        raise ValueError(f"expected an rgpu device, but got {parsed}")
    return current_device() if parsed.index is None else parsed.index


def _existing_index(device: Any = None) -> int:
    """As :func:`_index`; an error where the server lacks it. Waits at most once a session."""
    index = _index(device)
    if index != 0:
        _C.check_device(index)
    return index


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


class device_of(device):  # noqa: N801 - PyTorch's name
    """Context manager: the current device is that of a tensor or storage, if it is one of ours."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if obj.device.type == "rgpu" else None)


def synchronize(device: Any = None) -> None:
    """Wait until the server has done everything issued so far; raises what failed meanwhile.

    ``device`` must exist, but all devices are waited for.
    """
    _existing_index(device)
    _C.synchronize()


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether the server copies between the two devices itself; it does between any two."""
    return _existing_index(device) != _existing_index(peer_device)


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name and memory of one device. Waits at most once a session."""
    return DeviceProperties(*_C.server()["devices"][_existing_index(device)])


def get_device_name(device: Any = None) -> str:
    """The server's name of one device."""
    return get_device_properties(device).name


# Random state: a Philox seed and offset a device, kept here; no message is sent for any of these,
# and the server is asked at most once how many devices it has.


def manual_seed(seed: int) -> None:
    """Seed the current device's default generator."""
    set_rng_state(_seed_state(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all devices."""
    _C.manual_seed_all(int(seed) & 0xFFFFFFFFFFFFFFFF)


def seed() -> None:
    """Seed the current device's default generator from the machine's entropy."""
    manual_seed(int.from_bytes(os.urandom(8), "little"))


def seed_all() -> None:
    """Seed the default generators of all devices, alike, from the machine's entropy."""
    manual_seed_all(int.from_bytes(os.urandom(8), "little"))


def initial_seed() -> int:
    """The seed of the current device's default generator."""
    return int.from_bytes(bytes(get_rng_state()[:8].tolist()), "little")


def _seed_state(seed: int) -> torch.Tensor:
    value = int(seed) & 0xFFFFFFFFFFFFFFFF
    return torch.tensor(list(value.to_bytes(8, "little") + bytes(8)), dtype=torch.uint8)


def get_rng_state(device: Any = None) -> torch.Tensor:
    """The state of a device's default generator: uint8[16] on the CPU."""
    return _C.get_rng_state(_index(device))


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Set what :func:`get_rng_state` returned."""
    _C.set_rng_state(new_state.cpu().contiguous(), _index(device))


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' default generators."""
    return [get_rng_state(index) for index in range(max(1, device_count()))]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set what :func:`get_rng_state_all` returned."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


# Numbers formats


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types ``torch.autocast("rgpu")`` may use."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 tensors work; they do on every server."""
    del including_emulation
    return True


# Streams and events: PyTorch's own classes, over the device guard. Recording and waiting for events
# are records like ops; query() asks the server beside the program and says no until it answered.

Stream = torch.Stream
Event = torch.Event


class StreamContext:
    """Context manager: the calling thread's ops inside go to ``stream``, if it is not None.

    Inside, the stream's device is the current one.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._before: torch.Stream | None = None
        self._device = 0

    def __enter__(self) -> None:
        if self.stream is not None:
            self._device = current_device()
            self._before = current_stream(self.stream.device)
            set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            set_stream(self._before)
            set_device(self._device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager: the calling thread's ops inside are issued on ``stream``."""
    return StreamContext(stream)


def set_stream(stream: torch.Stream | None) -> None:
    """Make ``stream``, and its device, the calling thread's current one; None changes nothing."""
    if stream is not None:
        set_device(stream.device)
        torch.accelerator.set_stream(stream)


def current_stream(device: Any = None) -> torch.Stream:
    """The calling thread's current stream on a device."""
    return torch.accelerator.current_stream(torch.device("rgpu", _index(device)))


def default_stream(device: Any = None) -> torch.Stream:
    """The device's default stream."""
    index = _existing_index(device)
    return torch.Stream(stream_id=0, device_index=index, device_type=_PRIVATE_USE_1)
