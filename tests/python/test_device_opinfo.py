"""PyTorch's own OpInfo database against device rgpu; the CPU is the reference.

Each op runs on a few of its samples, forward and backward, with the sample's tensors moved to the
device: in float32 all of them, in the other dtypes a part, and the rest with the slow tests.
"""

import warnings

import pytest
import torch
from device_opinfo import (
    DTYPES,
    OPS,
    assert_agree,
    dtype_for,
    is_random,
    run,
    samples_of,
    settle_session,
)
from device_parity import DEVICE

# The statistics beside the result are float32 on CUDA, and here; the CPU gives the input's dtype.
KEEPS_STATISTICS = {"native_layer_norm", "_batch_norm_with_update"}
PART = 12  # One in so many cases of the other dtypes runs each time.


@pytest.fixture(autouse=True)
def living_session():
    yield
    settle_session()


def compare(op, sample, backward):
    """False where the CPU itself cannot."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = run(op, sample, "cpu", backward)
        except (RuntimeError, TypeError, ValueError):
            return False
        assert_agree(run(op, sample, DEVICE, backward), want, is_random(op, sample))
        return True


@pytest.mark.parametrize("name", OPS)
def test_op_gives_the_cpus_values_and_gradients(name):
    op = OPS[name]
    dtype = dtype_for(op)
    backward = op.supports_autograd and dtype.is_floating_point
    compared = [compare(op, sample, backward) for sample in samples_of(op, dtype, backward)]
    assert all(compared)


def cases(backward):
    """(name, dtype) of each op in each of the other dtypes that the CPU has a kernel for."""
    for name, op in OPS.items():
        for dtype in DTYPES:
            if not op.supports_dtype(dtype, "cpu") or dtype == dtype_for(op):
                continue
            if name in KEEPS_STATISTICS and dtype in (torch.float16, torch.bfloat16):
                continue
            if backward and not (
                op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
            ):
                continue
            yield name, dtype


def params(backward):
    for number, (name, dtype) in enumerate(cases(backward)):
        marks = [pytest.mark.slow] if number % PART else []
        yield pytest.param(name, dtype, marks=marks, id=f"{name}-{str(dtype)[6:]}")


@pytest.mark.parametrize(("name", "dtype"), params(backward=False))
def test_op_in_another_dtype_gives_the_cpus_values(name, dtype):
    op = OPS[name]
    compared = [compare(op, sample, False) for sample in samples_of(op, dtype)]
    if True not in compared:
        pytest.skip("the CPU cannot")


@pytest.mark.parametrize(("name", "dtype"), params(backward=True))
def test_op_in_another_dtype_gives_the_cpus_gradients(name, dtype):
    op = OPS[name]
    compared = [compare(op, sample, True) for sample in samples_of(op, dtype, True)]
    if True not in compared:
        pytest.skip("the CPU cannot")
