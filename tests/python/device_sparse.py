"""Sparse tensors for the tests of device rgpu, and their comparison with the CPU's.

Results are compared by layout, sizes, dtype and dense values.
"""

import pytest
import rgpu
import torch
from device_parity import DEVICE
from torch.utils._pytree import tree_flatten

LAYOUTS = {
    "coo": torch.sparse_coo,
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
}


@pytest.fixture
def connected():
    """Begin connected; a test that leaves an error on its way fails itself, not the next."""
    torch.ones(1, device=DEVICE)
    yield
    rgpu.synchronize()


class Waits:
    """How often the block waited: `waits.count`."""

    def __enter__(self):
        self._before = rgpu.stats()["waits"]
        return self

    def __exit__(self, *_):
        self.count = rgpu.stats()["waits"] - self._before


def coo(device, *, coalesced=False, dtype=torch.float32, grad=False):
    """A 3 x 4 matrix of 5 elements, two of them in one place."""
    indices = torch.tensor([[2, 0, 1, 2, 0], [1, 3, 0, 1, 0]])
    values = torch.tensor([1.0, -2.0, 3.0, 4.5, 0.25], dtype=dtype)
    tensor = torch.sparse_coo_tensor(indices, values, (3, 4))
    tensor = (tensor.coalesce() if coalesced else tensor).to(device)
    return tensor.requires_grad_(grad)


def dense(device, *sizes, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sizes, generator=generator).to(device)


def of_layout(layout, device, scale=1.0):
    """A 4 x 6 matrix with 9 elements."""
    matrix = torch.zeros(4, 6)
    matrix[[0, 0, 1, 1, 2, 3, 3, 3, 3], [0, 5, 2, 3, 1, 0, 1, 4, 5]] = torch.arange(1.0, 10) * scale
    block = {"blocksize": (2, 2)} if layout in ("bsr", "bsc") else {}
    return matrix.to_sparse(layout=LAYOUTS[layout], **block).to(device)


def as_dense(tensor):
    tensor = tensor.detach().cpu()
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def assert_same(got, want):
    got, want = tree_flatten(got)[0], tree_flatten(want)[0]
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        if not isinstance(theirs, torch.Tensor):
            assert mine == theirs
            continue
        assert mine.device.type == DEVICE
        assert (mine.layout, mine.dtype, mine.shape) == (theirs.layout, theirs.dtype, theirs.shape)
        torch.testing.assert_close(as_dense(mine), as_dense(theirs), equal_nan=True)


def assert_parity(case):
    assert_same(case(DEVICE), case("cpu"))
