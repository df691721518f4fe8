"""PyTorch's own sparse samples (op_db) over device rgpu; the CPU is the reference."""

import itertools
import warnings

import pytest
import rgpu
import torch
from device_parity import DEVICE
from device_sparse import LAYOUTS, assert_same, connected, of_layout  # noqa: F401 - a fixture
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

pytestmark = [
    pytest.mark.usefixtures("connected"),
    pytest.mark.filterwarnings("ignore:Sparse"),
]


SAMPLES = 8


def supports(op, layout):
    name = "supports_sparse" + ("" if layout == "coo" else "_" + layout)
    return getattr(op, name, False) and op.supports_dtype(torch.float32, "cpu")


OPS = {
    f"{op.name}{'_' + op.variant_test_name if op.variant_test_name else ''}-{layout}": (op, layout)
    for op in op_db
    for layout in LAYOUTS
    if supports(op, layout) and op.name != "randn_like"  # Draws other numbers.
}


def samples_of(op, layout):
    """PyTorch's sparse samples; for value-by-value ops without any, a matrix of that layout."""
    try:
        found = getattr(op, "sample_inputs_sparse_" + layout)(
            "cpu", torch.float32, requires_grad=op.supports_autograd
        )
        samples = [(s.input, s.args, s.kwargs) for s in itertools.islice(found, SAMPLES)]
    except NotImplementedError:
        samples = []
    tensor = of_layout(layout, "cpu", 0.1)  # Within the domain of them all.
    return samples or [(tensor.requires_grad_(op.supports_autograd), (), {})]


def gradients(result, given):
    """Of the sum of the results' dense values; nothing where the CPU has none."""
    outputs = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
    outputs = [t for t in outputs if t.requires_grad]
    leaves = [t for t in tree_flatten(given)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outputs or not leaves:
        return []
    total = sum((t if t.layout is torch.strided else t.to_dense()).sum() for t in outputs)
    return torch.autograd.grad(total, leaves, allow_unused=True)


def fresh(value, device):
    """The sample's tensors as leaves on `device`, and what names the CPU as a device."""

    def move(item):
        if isinstance(item, torch.Tensor):
            return item.detach().clone().to(device).requires_grad_(item.requires_grad)
        return device if item == "cpu" or item == torch.device("cpu") else item

    return tree_map(move, value)


@pytest.mark.parametrize("name", OPS)
def test_pytorchs_samples(name):
    op, layout = OPS[name]
    torch.default_generator.manual_seed(0)
    ran = 0
    for sample in samples_of(op, layout):
        theirs, mine = fresh(sample, "cpu"), fresh(sample, DEVICE)
        try:
            want = op(theirs[0], *theirs[1], **theirs[2])
        except (RuntimeError, NotImplementedError):
            with pytest.raises((RuntimeError, NotImplementedError)):  # noqa: PT012
                op(mine[0], *mine[1], **mine[2])
                rgpu.synchronize()
            continue
        got = op(mine[0], *mine[1], **mine[2])
        assert_same(got, want)
        ran += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                wanted = gradients(want, theirs)
            except (RuntimeError, NotImplementedError):
                continue
            assert_same(gradients(got, mine), wanted)
    assert ran > 0
