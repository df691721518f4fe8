"""PyTorch's op database for device rgpu: which ops, their samples moved there, and the comparison.

The CPU is the reference. Ops that draw random numbers give other numbers on the device: sizes and
dtypes alone are compared.
"""

import contextlib
import itertools
import warnings
from collections.abc import Iterator

import rgpu
import torch
from device_parity import DEVICE
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

SAMPLES = 3
DTYPES = (torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.bool)
# The server runs the CPU's kernels; what differs is how a result lies in memory, and so the order
# in which a sum is taken.
TOLERANCES = {
    torch.float16: {"rtol": 2e-3, "atol": 2e-3},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1.6e-2},
}
# What these return is not what they were given, and never written.
UNINITIALISED = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
    "resize_", "resize_as_",
}  # fmt: skip
RANDOM = {
    "cauchy", "exponential", "geometric", "log_normal", "normal", "uniform", "bernoulli",
    "rand_like", "randint_like", "randn_like", "randint", "randn", "multinomial",
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.rrelu", "svd_lowrank", "pca_lowrank",
}  # fmt: skip
LEFT_OUT = {
    "sparse.sampled_addmm", "sparse.mm", "to_sparse",  # Sparse layouts are no part of the device.
    "tensor_split",  # The sample's indices must stay on the CPU, on CUDA too; see the other tests.
    "as_strided_partial_views",  # Reads beyond the tensor that the sample gives.
    # In evaluation the sizes of what these save for the backward are the server's choice.
    "native_batch_norm", "_native_batch_norm_legit",
}  # fmt: skip


def full_name(op):
    return op.name + ("_" + op.variant_test_name if op.variant_test_name else "")


def dtype_for(op):
    """The first of these that the CPU has a kernel for, or None."""
    dtypes = (torch.float32, torch.int64, torch.bool, torch.complex64)
    return next((dtype for dtype in dtypes if op.supports_dtype(dtype, "cpu")), None)


OPS = {
    full_name(op): op
    for op in op_db
    if not {op.name, full_name(op)} & (UNINITIALISED | LEFT_OUT)
    and not op.name.startswith("jiterator")  # CUDA alone.
    and dtype_for(op) is not None
}


def settle_session():
    """Report an error that is still on its way here: it must not spoil the tests that follow."""
    try:
        rgpu.synchronize()
    except RuntimeError:
        with contextlib.suppress(RuntimeError):
            torch.ones(1, device=DEVICE).item()
            return
        rgpu.connect()


def moved(value, device):
    """The sample's tensors as fresh leaves on `device`, and what names the CPU as a device."""

    def move(item):
        if isinstance(item, torch.Tensor):
            return item.detach().clone().to(device).requires_grad_(item.requires_grad)
        if isinstance(item, torch.device) or item == "cpu":
            return torch.device(device)
        return item

    return tree_map(move, value)


def tensors_of(value):
    return [item for item in tree_flatten(value)[0] if isinstance(item, torch.Tensor)]


def samples_of(op, dtype, grad=False, most=SAMPLES) -> Iterator:
    """The op's first samples, on the CPU; the same ones each time."""
    torch.default_generator.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = op.sample_inputs("cpu", dtype, requires_grad=grad, set_seed=False)
        yield from itertools.islice(samples, most)


def run(op, sample, device, backward):
    """The op's results, and the gradients of what it was given."""
    given = moved((sample.input, tuple(sample.args), dict(sample.kwargs)), device)
    torch.manual_seed(0)
    result = op(given[0], *given[1], **given[2])
    if not backward:
        return result, []
    if sample.output_process_fn_grad is not None:
        result = sample.output_process_fn_grad(result)
    total = sum(
        t.real.sum() + 2 * t.imag.sum() if t.is_complex() else t.sum()
        for t in tensors_of(result)
        if t.requires_grad and (t.is_floating_point() or t.is_complex())
    )
    leaves = [t for t in tensors_of(given) if t.requires_grad]
    if not isinstance(total, torch.Tensor) or not leaves:
        return result, []
    return result, torch.autograd.grad(total, leaves, allow_unused=True)


def is_random(op, sample):
    """Attention draws where the sample asks for dropout."""
    if op.name == "nn.functional.multi_head_attention_forward":
        return sample.args[9] > 0
    return op.name in RANDOM or sample.kwargs.get("dropout_p", 0) > 0


def assert_agree(got, want, random=False):
    got, want = tree_flatten(got)[0], tree_flatten(want)[0]
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        if not isinstance(theirs, torch.Tensor):
            assert mine == theirs or mine != mine or random
            continue
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        if not random:
            mine = mine.detach().cpu()
            tolerances = TOLERANCES.get(theirs.dtype, {"rtol": 1e-4, "atol": 1e-5})
            torch.testing.assert_close(mine, theirs.detach(), equal_nan=True, **tolerances)
