"""The backend "rgpu" of ``torch.compile``: the entry point of the group ``torch_dynamo_backends``.

It stands outside the rgpu package so that listing backends does not load the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def backend(module: Any, example_inputs: Any, **options: Any) -> Callable[..., Any]:
    """As ``torch.compile(backend=rgpu.compile_backend(), options=…)``."""
    import rgpu

    return rgpu.compile_backend()(module, example_inputs, **options)
