"""Printing a tensor of device rgpu: one download, then PyTorch's own text.

PyTorch's formatter computes on the tensor it prints (dozens of ops and reads), so it is given a
copy on the CPU.
"""

from __future__ import annotations

from typing import Any

import torch


def install() -> None:
    """Wrap the formatter of ``torch._tensor_str``. Once, at import."""
    original = torch._tensor_str._tensor_str

    def _tensor_str(self: torch.Tensor, indent: int) -> Any:
        if self.device.type == "rgpu":
            self = self.detach().cpu()
        return original(self, indent)

    torch._tensor_str._tensor_str = _tensor_str
