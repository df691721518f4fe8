"""PyTorch's op database compiled for the device: graphs are sent, and give what the CPU gives.

A dealt part of the ops runs each time, all of them with the slow tests. `python FILE` runs all and
says which share passes, and of what kind the rest is.
"""

import collections
import sys
import warnings

import pytest
import rgpu
import torch
from device_opinfo import OPS, assert_agree, dtype_for, is_random, run, samples_of, settle_session
from device_parity import DEVICE
from rgpu.capture import stored
from torch.testing._internal import common_methods_invocations

SAMPLES = 2
PART = 20
# Dynamo captures nothing of these, with "aot_eager" on the CPU just so: their results' sizes or
# their control flow depend on values.
NOT_CAPTURED = {
    "item", "allclose", "broadcast_shapes", "combinations", "corrcoef", "cov", "equal",
    "masked_select", "unique", "unique_consecutive", "bincount", "nonzero", "argwhere",
    "nn.functional.ctc_loss", "nn.functional.gaussian_nll_loss", "linalg.lstsq",
    "linalg.lstsq_grad_oriented",
}  # fmt: skip
# Not in aten: their graphs are not sent, and their ops run one by one.
NOT_SENT = {
    "nn.functional.linear_cross_entropy_chunked",
    "nn.functional.linear_cross_entropy_chunked_none",
}


class Compiled:
    """An op whose calls are compiled; everything else of it is the op's."""

    def __init__(self, op, backend):
        self._op = op
        self._call = torch.compile(
            lambda *args, **kwargs: op(*args, **kwargs), backend=backend, dynamic=False
        )

    def __getattr__(self, name):
        return getattr(self._op, name)

    def __call__(self, *args, **kwargs):
        return self._call(*args, **kwargs)


def compare(name):
    """Whether graphs were sent. Raises where a sample gives something else than on the CPU."""
    op = OPS[name]
    dtype = dtype_for(op)
    backward = op.supports_autograd and dtype.is_floating_point
    backend = rgpu.compile_backend(compiler="eager")
    sent, refused = False, []
    for sample in samples_of(op, dtype, backward, SAMPLES):
        torch._dynamo.reset()
        stored._live.clear()
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            want = run(op, sample, "cpu", backward)
            got = run(Compiled(op, backend), sample, DEVICE, backward)
        assert_agree(got, want, is_random(op, sample))
        sent |= len(stored._live) > 0
        refused += [str(w.message) for w in shown if "cannot be sent" in str(w.message)]
    return sent and not refused


@pytest.fixture(scope="module", autouse=True)
def plain_seeds():
    """Dynamo captures nothing of what the database wraps to fix the seed; ``run`` fixes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common_methods_invocations, "wrapper_set_seed", without_wrapper)
        yield


def without_wrapper(op, *args, **kwargs):
    return op(*args, **kwargs)


@pytest.fixture(autouse=True)
def living_session():
    yield
    torch._dynamo.reset()
    settle_session()


def params():
    for number, name in enumerate(OPS):
        yield pytest.param(name, marks=[pytest.mark.slow] if number % PART else [])


@pytest.mark.parametrize("name", params())
def test_compiled_op_gives_the_cpus_values_and_gradients(name):
    assert compare(name) == (name not in NOT_CAPTURED | NOT_SENT)


def main():
    """Run all ops and print the share that passes of those that Dynamo can capture."""
    common_methods_invocations.wrapper_set_seed = without_wrapper
    kinds = collections.Counter()
    for name in sys.argv[1:] or list(OPS):
        try:
            kind = (
                "sent" if compare(name) else "not captured" if name in NOT_CAPTURED else "not sent"
            )
        except Exception as error:  # Whatever it is, it did not pass.
            kind = "failed"
            print(f"FAILED: {name}: {type(error).__name__}: {str(error)[:300]!r}", flush=True)
        if kind == "not sent":
            print(f"not sent: {name}", flush=True)
        kinds[kind] += 1
        torch._dynamo.reset()
        settle_session()
    wanted = kinds.total() - kinds["not captured"]
    print(f"{kinds['sent']} of {wanted} passed ({kinds['sent'] / wanted:.2%}): {dict(kinds)}")


if __name__ == "__main__":
    main()
