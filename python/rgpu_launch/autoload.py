"""What PyTorch calls at the end of `import torch`: the entry point of the group `torch.backends`.

It stands outside the rgpu package: an entry point inside it would be looked up in a half-imported
module when `import rgpu` is what imports torch.
"""

import atexit
import os
import sys


def autoload() -> None:
    """Make the device, if a server is configured; otherwise leave torch as it is."""
    if not os.environ.get("RGPU_OPSERVER"):
        return
    import rgpu  # noqa: F401 - importing it registers the device

    if os.environ.get("RGPU_STATS"):
        atexit.register(_print_stats)


def _print_stats() -> None:
    rgpu = sys.modules.get("rgpu")
    if rgpu is None:
        return
    counts = ", ".join(f"{name} {value:,}" for name, value in rgpu.stats().items())
    print(f"rgpu: {counts}", file=sys.stderr)
