"""PyTorch's own OpInfo database against device rgpu; the CPU is the reference.

Each op runs on a few of its samples, forward and backward, with the sample's tensors moved to the
device. Ops that draw random numbers give other numbers there: sizes and dtypes alone are compared.
"""

import contextlib
import itertools
import warnings

import pytest
import rgpu
import torch
from device_parity import DEVICE
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

SAMPLES = 3
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
    "tensor_split",  # The sample's indices must stay on the CPU, on CUDA too; see the other tests.
    "as_strided_partial_views",  # Reads beyond the tensor that the sample gives.
    "histogramdd",  # CUDA has none.
    # In evaluation the sizes of what these save for the backward are the server's choice.
    "native_batch_norm", "_native_batch_norm_legit",
}  # fmt: skip


def dtype_for(op):
    """The first of these that the CPU has a kernel for, or None."""
    dtypes = (torch.float32, torch.int64, torch.bool, torch.complex64)
    return next((dtype for dtype in dtypes if op.supports_dtype(dtype, "cpu")), None)


OPS = {
    name: op
    for op in op_db
    if (name := op.name + ("_" + op.variant_test_name if op.variant_test_name else ""))
    and not {op.name, name} & (UNINITIALISED | LEFT_OUT)
    and not op.name.startswith("jiterator")  # CUDA alone.
    and dtype_for(op) is not None
}


@pytest.fixture(autouse=True)
def living_session():
    """A failure here must not spoil the tests that follow."""
    yield
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


def assert_agree(got, want, random):
    got, want = tree_flatten(got)[0], tree_flatten(want)[0]
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        if not isinstance(theirs, torch.Tensor):
            assert mine == theirs or mine != mine or random
            continue
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        if not random:
            mine = mine.detach().cpu()
            torch.testing.assert_close(mine, theirs.detach(), rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", OPS)
def test_op_gives_the_cpus_values_and_gradients(name):
    op = OPS[name]
    dtype = dtype_for(op)
    backward = op.supports_autograd and dtype.is_floating_point
    torch.default_generator.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = op.sample_inputs("cpu", dtype, requires_grad=backward, set_seed=False)
        for sample in itertools.islice(samples, SAMPLES):
            want = run(op, sample, "cpu", backward)
            assert_agree(run(op, sample, DEVICE, backward), want, is_random(op, sample))
