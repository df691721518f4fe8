"""``RGPU_DEBUG=1``: every op waits until it is done and raises its own error, with full stacks.

For finding an error, not for running: each op is a round trip. It is read once, at the first op;
autograd's anomaly mode is on as well, so that an op of a backward pass names its forward's stack.
"""

from __future__ import annotations

import os
import traceback

import torch

ENABLED = os.environ.get("RGPU_DEBUG", "") not in ("", "0")


def install() -> None:
    """Have autograd keep the stacks of forward ops, if debugging is on. Once, at import."""
    if ENABLED:
        torch.autograd.set_detect_anomaly(True, check_nan=False)


def stack() -> str:
    """The calling thread's stack; in a backward op, the stack of its forward op after it."""
    text = "".join(traceback.format_stack()[:-1])
    node = torch._C._current_autograd_node()
    forward = None if node is None else node.metadata.get("traceback_")
    if forward:
        text += f"The forward op of {node.name()}:\n" + "".join(forward)
    return text
