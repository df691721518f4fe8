"""torch.distributed for tensors of device rgpu: Gloo between the processes, copies at both ends.

``init_process_group("gloo")`` serves the device as it serves CUDA, so a program that says "gloo"
needs no change; the backend's own name is ``rgpu`` (``"cpu:gloo,rgpu:rgpu"``, or no name at all).
The device's connections are made when a group is, like those of the other devices.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rgpu import _C


def install() -> None:
    """Register the backend. Once, at import; does nothing in a PyTorch without distributed."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        return
    from torch.distributed.distributed_c10d import Backend, BackendConfig

    Backend.register_backend("rgpu", _make_backend, devices=["rgpu"])
    make_config = BackendConfig.__init__

    def __init__(self: BackendConfig, backend: Backend) -> None:
        make_config(self, backend)
        if str(backend).lower() == Backend.GLOO:
            self.device_backend_map["rgpu"] = Backend("rgpu")

    BackendConfig.__init__ = __init__  # type: ignore[method-assign]


def _make_backend(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    from torch.distributed import ProcessGroupGloo

    return _C.host_staged_backend(ProcessGroupGloo(store, rank, size, timeout=timeout))
