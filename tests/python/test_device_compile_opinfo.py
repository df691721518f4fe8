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

SAMPLES = 2
PART = 20
# What Dynamo refuses on the CPU with "aot_eager" just so, or what is no call of one operator.
NOT_CAPTURED: dict[str, str] = {}


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
    """Raises where a sample gives something else than on the CPU; what was not sent, as text."""
    op = OPS[name]
    dtype = dtype_for(op)
    backward = op.supports_autograd and dtype.is_floating_point
    backend = rgpu.compile_backend(compiler="eager")
    refused = []
    for sample in samples_of(op, dtype, backward, SAMPLES):
        torch._dynamo.reset()
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            want = run(op, sample, "cpu", backward)
            got = run(Compiled(op, backend), sample, DEVICE, backward)
        assert_agree(got, want, is_random(op, sample))
        refused += [str(w.message) for w in shown if "cannot be sent" in str(w.message)]
    return refused


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
    if name in NOT_CAPTURED:
        pytest.xfail(NOT_CAPTURED[name])
    compare(name)


def main():
    """Run all ops and print the share that passes."""
    kinds = collections.Counter()
    names = sys.argv[1:] or list(OPS)
    for name in names:
        try:
            refused = compare(name)
            kinds["passed"] += 1
            if refused:
                kinds["passed, not sent"] += 1
                print(f"not sent: {name}: {refused[0].splitlines()[0][:150]}", flush=True)
        except Exception as error:  # Whatever it is, it did not pass.
            kinds["failed"] += 1
            print(f"FAILED: {name}: {type(error).__name__}: {str(error)[:300]!r}", flush=True)
        torch._dynamo.reset()
        settle_session()
    print(f"{kinds['passed']} of {len(names)} passed ({kinds['passed'] / len(names):.2%}), {kinds}")


if __name__ == "__main__":
    main()
