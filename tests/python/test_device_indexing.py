"""Indexing, gathering, joining and sorting on device rgpu, as NumPy and the CPU have it."""

import pytest
import rgpu  # noqa: F401 - registers the device
import torch
from device_parity import DEVICE, assert_parity, randn, with_gradients

READS = {
    "rows": lambda x, i: x[i],
    "columns": lambda x, i: x[:, i],
    "list": lambda x, i: x[[0, 2, -1]],
    "pairs": lambda x, i: x[i, i + 1],
    "outer": lambda x, i: x[i[:, None], i],
    "around_a_slice": lambda x, i: x[i, :, i],
    "after_ellipsis": lambda x, i: x[..., i],
    "with_new_axis": lambda x, i: x[None, i, 1:],
    "mask": lambda x, i: x[x > 0],
    "row_mask": lambda x, i: x[x[:, 0, 0] > 0],
    "mask_and_index": lambda x, i: x[:, x[0, :, 0] > 0, 1],
    "no_rows": lambda x, i: x[i[:0]],
    "negative": lambda x, i: x[-i - 1],
    "zero_dim_index": lambda x, i: x[i[1]],
    "bool_scalar": lambda x, i: x[True],
    "index_select": lambda x, i: x.index_select(1, i),
    "gather": lambda x, i: x.gather(1, i.view(1, -1, 1).expand(4, 3, 5)),
    "take": lambda x, i: x.take(i * 7),
    "take_along_dim": lambda x, i: x.take_along_dim(x.argsort(2), 2),
    "embedding": lambda x, i: torch.nn.functional.embedding(i, x[:, :, 0]),
    "one_hot": lambda x, i: torch.nn.functional.one_hot(i, 5) * x[:3, 0],
}

# Functions that take no index from the host, on CUDA neither.
NO_HOST_INDEX = ("index_select", "gather", "take", "embedding", "one_hot")


def read(name, device, index_device):
    x = randn(device, 4, 5, 5, grad=True)
    return with_gradients(READS[name](x, torch.tensor([2, 0, 3]).to(index_device)), [x])


@pytest.mark.parametrize("name", READS)
def test_indexed_read_and_its_gradient(name):
    assert_parity(lambda device: read(name, device, device))


@pytest.mark.parametrize("name", [name for name in READS if name not in NO_HOST_INDEX])
def test_indexed_read_by_an_index_on_the_host(name):
    assert_parity(lambda device: read(name, device, "cpu"))


def write(name, x, i):
    match name:
        case "rows":
            x[i] = 1.5
        case "tensor":
            x[i] = x[:3] * 2
        case "broadcast":
            x[:, i] = torch.ones(5).to(x.device)
        case "host_scalar":
            x[i, i] = torch.tensor(2.0)
        case "mask":
            x[x > 0] = 7
        case "mask_tensor":
            x[x[:, 0, 0] > 0] = x[0].clone()
        case "empty_mask":
            x[x > 1e9] = 7
        case "augmented":
            x[i] += 1
        case "slice_of_view":
            x.transpose(0, 2)[i, 1:3] *= 10
        case "accumulate":
            i = torch.cat([i, i])
            x.index_put_((i,), torch.ones(6, 5, 5).to(x.device), accumulate=True)
        case "accumulate_in_view":
            x[1:, ::2].index_put_((i[:2] % 2, i[:2] % 2), torch.tensor(3.0).to(x.device), True)
        case "index_add":
            x.index_add_(0, i, x[1:].clone(), alpha=2)
        case "index_copy":
            x.index_copy_(1, i, x[:, 2:].clone())
        case "index_fill":
            x.index_fill_(2, i, -1)
        case "index_reduce":
            x.index_reduce_(0, i, x[1:].clone(), "amax")
        case "scatter":
            x.scatter_(1, i.view(1, 3, 1).expand(4, 3, 5), x[:, 2:].clone())
        case "scatter_value":
            x[0].scatter_(0, i.view(3, 1), 4.0)
        case "scatter_add":
            x.scatter_add_(0, i.view(3, 1, 1).expand(3, 5, 5), x[:3].clone())
        case "scatter_reduce":
            x.scatter_reduce_(0, i.view(3, 1, 1).expand(3, 5, 5), x[:3].clone(), "mean")
        case "put":
            x.put_(i, x.view(-1)[:3].clone())
        case "masked_fill":
            x.transpose(0, 1).masked_fill_(x.transpose(0, 1) > 0, -5)
        case "masked_scatter":
            x.masked_scatter_(x > 0, torch.arange(100.0).to(x.device))
        case "fill_diagonal":
            x[0].fill_diagonal_(3)
        case "select_scatter":
            x.copy_(x.select_scatter(x[0] * 2, 0, 1).slice_scatter(x[:2] * 3, 0, 2))


WRITES = [
    "rows", "tensor", "broadcast", "host_scalar", "mask", "mask_tensor", "empty_mask", "augmented",
    "slice_of_view", "accumulate", "accumulate_in_view", "index_add", "index_copy", "index_fill",
    "index_reduce", "scatter", "scatter_value", "scatter_add", "scatter_reduce", "put",
    "masked_fill", "masked_scatter", "fill_diagonal", "select_scatter",
]  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_indexed_write(name):
    def case(device):
        x, index = randn(device, 4, 5, 5), torch.tensor([2, 0, 3]).to(device)
        write(name, x, index)
        return [x, index]

    assert_parity(case)


def test_host_index_is_taken_at_the_call():
    x, index = torch.arange(4.0, device=DEVICE), torch.tensor([0, 2])
    taken = x[index]
    index.fill_(3)
    x.fill_(-1)
    assert taken.tolist() == [0.0, 2.0]


def test_host_scalar_is_taken_at_the_call():
    scale = torch.tensor(2.0)
    product = torch.ones(3, device=DEVICE) * scale
    scale.fill_(50.0)
    assert product.tolist() == [2.0, 2.0, 2.0]


def test_write_into_unaligned_boolean_view():
    def case(device):
        results = []
        for offset in range(5):
            base = torch.zeros(12, dtype=torch.bool, device=device)
            part = base.narrow(0, offset, 5)
            part[torch.tensor([0, 2]).to(device)] = True
            part.scatter_(0, torch.tensor([4]).to(device), True)
            results.append(base)
        return results

    assert_parity(case)


JOINS = {
    "cat": lambda x: torch.cat([x, x[:1], x * 2]),
    "cat_of_views": lambda x: torch.cat([x.t(), x[:, :2].t()], 0),
    "cat_types": lambda x: torch.cat([x, x.long()], 1),
    "stack": lambda x: torch.stack([x, x.flip(0)], 2),
    "vstack": lambda x: torch.vstack([x, x]),
    "split": lambda x: [s.sum(1) for s in x.split(2)],
    "chunk_unbind": lambda x: [*x.chunk(3, 1), *x.unbind(0)],
    "tensor_split": lambda x: [*x.tensor_split(3), *x.tensor_split((1, 2), 1)],
    "repeat_tile": lambda x: [x.repeat(2, 1, 3), x.tile(2), x.repeat_interleave(2, 1)],
    "flip_roll": lambda x: [x.flip(0, 1), x.roll((1, 2), (0, 1)), x.rot90(), x.fliplr()],
    "pad": lambda x: [
        torch.nn.functional.pad(x, (1, 2), value=3.0),
        torch.nn.functional.pad(x[None], (1, 2), mode="reflect"),
        torch.nn.functional.pad(x[None], (2, 1), mode="replicate"),
    ],
    "meshgrid": lambda x: torch.meshgrid(x[0], x[:, 0], indexing="ij"),
    "block_diag": lambda x: torch.block_diag(x, x[:1]),
    "fold": lambda x: torch.nn.functional.unfold(x.view(1, 1, 4, 6), 2).sum(1),
    "pixel_shuffle": lambda x: torch.nn.functional.pixel_shuffle(x.view(1, 4, 2, 3), 2),
}


@pytest.mark.parametrize("name", JOINS)
def test_joining_and_taking_apart_with_gradients(name):
    def case(device):
        x = randn(device, 4, 6, grad=True)
        return with_gradients(JOINS[name](x), [x])

    assert_parity(case)


def test_sorting_and_its_gradients():
    def case(device):
        x = randn(device, 5, 6, grad=True)
        results = [
            *x.sort(), *x.sort(0, descending=True), *x.topk(3), *x.topk(2, 0, largest=False),
            *torch.sort(x.t(), stable=True), x.argsort(1), *x.kthvalue(2), torch.msort(x),
            torch.searchsorted(x.detach().sort().values, x.detach()), *x.cummin(0),
        ]  # fmt: skip
        return with_gradients(results, [x])

    assert_parity(case)


def test_iteration_membership_and_length():
    def case(device):
        x = torch.arange(6).view(3, 2).to(device)
        return [[row.tolist() for row in x], 4 in x, 9 in x, len(x), [*x[0]], max(x[:, 0]).item()]

    assert_parity(case)
