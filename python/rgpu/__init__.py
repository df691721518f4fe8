"""rgpu: a PyTorch device whose tensors and kernels live on another machine.

Importing this module registers ``device="rgpu"``; the first op connects to the server that
``RGPU_OPSERVER`` names (``host:port``, by default ``127.0.0.1:9720``). Nothing waits for that
server unless the program asks for a value.

Threading: every function may be called from any thread.
Errors: a lost or unreachable server is a ``RuntimeError`` that says what to do.
"""

from __future__ import annotations

import atexit as _atexit
from pathlib import Path as _Path

import torch as _torch

from rgpu import _build


def _major_minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


if _major_minor(_torch.__version__) != _major_minor(_build.TORCH_VERSION):
    raise ImportError(
        f"rgpu was built against PyTorch {_build.TORCH_VERSION} and cannot be used with "
        f"{_torch.__version__}: build it again with `pip install --no-build-isolation .`"
    )

from rgpu import (  # noqa: E402
    _C,
    compiling,
    data_parallel,
    debugging,
    denormals,
    device_module,
    distributed,
    library_hooks,
    meta_kernels,
    printing,
)
from rgpu.compiling import compile_backend, graphs  # noqa: E402
from rgpu.profiling import profile  # noqa: E402
from rgpu.session import (  # noqa: E402
    Wait,
    connect,
    flush_policy,
    reset_stats,
    server,
    set_flush_policy,
    stats,
    synchronize,
    waits,
)

__version__ = _build.VERSION
__all__ = [
    "Wait",
    "compile_backend",
    "connect",
    "flush_policy",
    "graphs",
    "profile",
    "reset_stats",
    "server",
    "set_flush_policy",
    "stats",
    "synchronize",
    "waits",
]

_torch.utils.rename_privateuse1_backend("rgpu")
_C.register_device([f"{_Path(path)}/" for path in (*_torch.__path__, *__path__)])
_torch._register_device_module("rgpu", device_module)
_torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
printing.install()
distributed.install()
data_parallel.install()
denormals.install()
debugging.install()
meta_kernels.defer_compiler()
library_hooks.install()
compiling.install()
compiling.hide_frames()
_atexit.register(_C.close)
