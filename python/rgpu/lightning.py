"""Device rgpu for Lightning: ``Trainer(accelerator=RgpuAccelerator())``, and Fabric the same way.

Lightning knows its accelerators by class: what is no CUDAAccelerator is trained on the CPU
(``_choose_strategy`` in its accelerator_connector.py), so this is one, the Trainer's and Fabric's.
For mixed precision also pass ``plugins=MixedPrecision("bf16-mixed", "rgpu")``: Lightning itself
would say "cuda".

Works with the package ``lightning``, and with ``pytorch_lightning`` where that is all there is.
"""

from __future__ import annotations

from typing import Any

import torch

import rgpu  # noqa: F401 - importing it registers the device

try:
    from lightning.fabric.accelerators import CUDAAccelerator as _FabricAccelerator
    from lightning.pytorch.accelerators import CUDAAccelerator as _TrainerAccelerator
except ModuleNotFoundError:
    from lightning_fabric.accelerators import CUDAAccelerator as _FabricAccelerator
    from pytorch_lightning.accelerators import CUDAAccelerator as _TrainerAccelerator

__all__ = ["RgpuAccelerator"]


class RgpuAccelerator(_TrainerAccelerator, _FabricAccelerator):
    """The server's devices, as Lightning asks for them."""

    def setup_device(self, device: torch.device) -> None:
        """Make ``device`` the current one."""
        if device.type != "rgpu":
            raise ValueError(f"expected an rgpu device, but got {device}")
        torch.rgpu.set_device(device)

    def setup(self, trainer: Any) -> None:
        """Do nothing: there are no flags to set."""

    def teardown(self) -> None:
        """Do nothing: what is freed here is freed on the server."""

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """Memory of this session on the server. One wait."""
        return torch.rgpu.memory_stats(device)

    @staticmethod
    def parse_devices(devices: int | str | list[int] | tuple[int, ...]) -> list[int]:
        """Indices: a number counts devices, -1 or "auto" means all, a list names them."""
        if isinstance(devices, str) and devices not in ("auto", "-1"):
            return [int(part) for part in devices.split(",") if part.strip()]
        if isinstance(devices, (list, tuple)):
            return [int(index) for index in devices]
        count = torch.rgpu.device_count() if devices in (-1, "auto", "-1") else int(devices)
        return list(range(count))

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        """The devices themselves."""
        return [torch.device("rgpu", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        """One: training on several devices at once needs a strategy that is asked for."""
        return 1

    @staticmethod
    def is_available() -> bool:
        """Whether the device is registered."""
        return torch.rgpu.is_available()

    @staticmethod
    def name() -> str:
        """What the registry calls it."""
        return "rgpu"
