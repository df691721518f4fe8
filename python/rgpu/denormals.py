"""``torch.set_flush_denormal`` for device rgpu.

PyTorch sets a register of the calling thread, which nothing else shows; so the server is told by
the call itself. It holds for the whole session, where PyTorch's own holds for one thread.
"""

from __future__ import annotations

import functools

import torch

from rgpu import _C


def install() -> None:
    """Wrap ``torch.set_flush_denormal``. Once, at import."""
    original = torch.set_flush_denormal

    @functools.wraps(original)
    def set_flush_denormal(mode: bool) -> bool:
        done = original(mode)
        if done:
            _C.note_flush_denormal(bool(mode))
        return done

    torch.set_flush_denormal = set_flush_denormal
