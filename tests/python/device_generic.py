"""PyTorch's device-generic test machinery for device rgpu: its databases, with its own exceptions.

Classes and tests that are named as PyTorch's are exempted from what PyTorch exempts them; since the
server runs the CPU's kernels, from what it exempts the CPU from as well. What it expects to fail is
left out, as it may well work here.
"""

import unittest

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import DecorateInfo

LEFT_OUT = {
    "sparse.sampled_addmm", "sparse.mm", "to_sparse",  # Sparse layouts have tests of their own.
    "tensor_split",  # The sample's indices must stay on the CPU, on CUDA too.
    # In evaluation the sizes of what these save for the backward are the server's choice.
    "native_batch_norm", "_native_batch_norm_legit",
}  # fmt: skip


def adopt_exceptions(infos):
    """Make the database's exceptions for the CPU and for every device those of rgpu."""
    for info in infos:
        for exception in info.decorators:
            if not isinstance(exception, DecorateInfo):
                continue
            if exception.device_type == "cpu":
                exception.device_type = "rgpu"
            if unittest.expectedFailure in exception.decorators:
                exception.decorators = [unittest.skip("PyTorch expects it to fail")]


OPS = [op for op in op_db if op.name not in LEFT_OUT and not op.name.startswith("jiterator")]
adopt_exceptions(OPS)
DIFFERENTIABLE = [op for op in OPS if op.supports_autograd]


def tensors_of(value):
    leaves = torch.utils._pytree.tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
