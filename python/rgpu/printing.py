"""Printing a tensor of device rgpu: one download, then PyTorch's own text.

PyTorch's formatter computes on the tensor it prints (dozens of ops and reads), so it is given a
copy on the CPU; of a sparse tensor, whose components it prints one after the other, all of them.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

COMPRESSED_ROWS = (torch.sparse_csr, torch.sparse_bsr)


def components(tensor: torch.Tensor) -> list[torch.Tensor]:
    """What a sparse tensor's text shows, in that order."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in COMPRESSED_ROWS:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def install() -> None:
    """Wrap the formatter of ``torch._tensor_str``. Once, at import."""
    module = torch._tensor_str
    format_values, format_tensor = module._tensor_str, module._str_intern
    printing = threading.local()  # `fetched`: what is left of the sparse tensor being printed.

    def _tensor_str(self: torch.Tensor, indent: int) -> Any:
        if self.device.type == "rgpu":
            fetched = getattr(printing, "fetched", None)
            self = fetched.pop(0) if fetched else self.detach().cpu()
        return format_values(self, indent)

    def _str_intern(inp: torch.Tensor, *, tensor_contents: Any = None) -> Any:
        is_plain = inp.device.type != "rgpu" or inp.layout is torch.strided
        if is_plain or inp.is_nested or inp.is_meta:
            return format_tensor(inp, tensor_contents=tensor_contents)
        printing.fetched = components(inp.detach().cpu())
        try:
            return format_tensor(inp, tensor_contents=tensor_contents)
        finally:
            printing.fetched = None

    module._tensor_str = _tensor_str
    module._str_intern = _str_intern
