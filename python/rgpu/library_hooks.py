"""Libraries that choose a device from a list of names of their own are told that there is one more.

``accelerate``, and with it the Trainer of ``transformers``, takes the device that the environment
variable ``ACCELERATE_TORCH_DEVICE`` names; it is set here, unless it is set or there is CUDA. Asked
for the CPU expressly, accelerate would still obey the variable, so that is put right once its
module is imported; and it shares models (``device_map="auto"``) among the memory of the devices
that it knows. ``transformers`` asks vendor by vendor whether bfloat16 works. ``safetensors``
parses device names itself; a number it hands to PyTorch as it is, and number N is ``rgpu:N``,
because rgpu is PyTorch's accelerator.

Nothing is imported here, and a library that is not used costs nothing. Checked on accelerate 1.15,
transformers 5.24 and safetensors 0.8.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

_VARIABLE = "ACCELERATE_TORCH_DEVICE"


def install() -> None:
    """Once, at import."""
    if torch.version.cuda is None or not torch.cuda.is_available():
        os.environ.setdefault(_VARIABLE, "rgpu")
    for name, adapt in _ADAPTERS.items():
        if name in sys.modules:
            adapt(sys.modules[name])
    sys.meta_path.insert(0, _Finder())


def _adapt_accelerate(module: ModuleType) -> None:
    state = module.PartialState
    original = state.__init__

    @functools.wraps(original)
    def __init__(self: Any, cpu: bool = False, **kwargs: Any) -> None:
        given = os.environ.get(_VARIABLE)
        if not cpu or given != "rgpu":
            original(self, cpu, **kwargs)
            return
        del os.environ[_VARIABLE]
        try:
            original(self, cpu, **kwargs)
        finally:
            os.environ[_VARIABLE] = given

    state.__init__ = __init__


def _adapt_accelerate_memory(module: ModuleType) -> None:
    original = module.get_max_memory

    @functools.wraps(original)
    def get_max_memory(max_memory: dict[Any, Any] | None = None) -> dict[Any, Any]:
        found = original(max_memory)
        if max_memory is not None or any(isinstance(device, int) for device in found):
            return found
        free = {i: torch.rgpu.mem_get_info(i)[0] for i in range(torch.rgpu.device_count())}
        return {**free, **found}  # In the order in which they are filled.

    module.get_max_memory = get_max_memory


def _adapt_transformers(module: ModuleType) -> None:
    original = module.is_torch_bf16_gpu_available

    @functools.wraps(original)
    def is_torch_bf16_gpu_available() -> bool:
        return original() or torch.rgpu.is_bf16_supported()

    module.is_torch_bf16_gpu_available = is_torch_bf16_gpu_available


def _adapt_safetensors(module: ModuleType) -> None:
    original = module.safe_open

    @functools.wraps(original)
    def safe_open(filename: Any, framework: str, device: Any = "cpu", **kwargs: Any) -> Any:
        return original(filename, framework, device=_plain_device(device), **kwargs)

    module.safe_open = safe_open


def _plain_device(device: Any) -> Any:
    """An rgpu device as its number; anything else as it is."""
    text = str(device)
    if text.partition(":")[0] != "rgpu":
        return device
    index = torch.device(text).index
    return torch.rgpu.current_device() if index is None else index


_ADAPTERS: dict[str, Callable[[ModuleType], None]] = {
    "accelerate.state": _adapt_accelerate,
    "accelerate.utils.modeling": _adapt_accelerate_memory,
    "safetensors": _adapt_safetensors,
    "transformers.utils.import_utils": _adapt_transformers,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the others would find, and has the adapter called once it is executed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _ADAPTERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _ADAPTERS[name](module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
