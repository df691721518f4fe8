"""Views, strides and in-place changes of device rgpu: a write through one alias shows in all."""

import itertools

import pytest
import rgpu  # noqa: F401 - registers the device
import torch
from device_parity import DEVICE, assert_parity, randn, with_gradients

VIEWS = {
    "slice": lambda x: x[1:3, ::2],
    "last_row": lambda x: x[-1],
    "element": lambda x: x[2, 3],
    "transpose": lambda x: x.t(),
    "transpose_slice": lambda x: x.t()[1:4, 1:],
    "reshaped": lambda x: x.view(2, 12)[:, 3:9],
    "flat_chain": lambda x: x.view(-1)[3:15].view(3, 4).t()[::2],
    "diagonal": lambda x: x.diagonal(1),
    "unfold": lambda x: x.unfold(1, 2, 2),
    "as_strided": lambda x: x.as_strided((3, 2), (4, 5), 2),
    "narrow": lambda x: x.narrow(1, 2, 3),
    "unsqueeze": lambda x: x[:, None, 2:].movedim(0, 2),
    "split": lambda x: x.split([1, 3, 2], dim=1)[1],
    "chunk": lambda x: x.chunk(2)[1],
    "unbind": lambda x: x.unbind(1)[4],
    "real_view": lambda x: torch.view_as_complex(x.view(4, 3, 2)).imag,
    "complex_view": lambda x: torch.view_as_complex(x.view(4, 3, 2)).t()[1:],
    "other_dtype": lambda x: x.view(torch.int32)[1:3].view(torch.float32),
    "empty": lambda x: x[2:2],
}


# Neither can be changed in place under autograd: several outputs, or another dtype.
NO_GRADIENT = ("other_dtype", "empty", "split", "chunk", "unbind")


@pytest.mark.parametrize("name", VIEWS)
def test_view_reads_as_on_the_cpu(name):
    def case(device):
        x = randn(device, 4, 6)
        view = VIEWS[name](x)
        meta = [view.shape, view.stride(), view.storage_offset(), view.is_contiguous()]
        return [view, view + 1, view.clone(), view.contiguous(), meta, view.sum()]

    assert_parity(case)


@pytest.mark.parametrize("name", VIEWS)
def test_write_through_view_changes_its_base_only_there(name):
    def case(device):
        x = randn(device, 4, 6)
        other = x.clone()
        view = VIEWS[name](x)
        view.mul_(2)
        view += view.detach().clone()
        if view.dim():
            view[0:1] = 7
        before = x.clone()
        x.add_(100)
        view.copy_(torch.ones(view.shape, dtype=view.dtype))
        return [before, x, view, other]

    assert_parity(case)


@pytest.mark.parametrize("name", VIEWS)
def test_out_argument_may_be_a_view(name):
    def case(device):
        x = randn(device, 4, 6)
        view = VIEWS[name](x)
        first, second = view.detach().clone(), view.detach().clone()
        torch.mul(first, second, out=view)
        return [x, view]

    assert_parity(case)


@pytest.mark.parametrize("name", [n for n in VIEWS if n not in NO_GRADIENT])
def test_gradient_flows_through_view_and_in_place_change(name):
    def case(device):
        leaf = randn(device, 4, 6, grad=True)
        x = leaf * 2
        VIEWS[name](x).mul_(3)
        return with_gradients([x * x, VIEWS[name](leaf)], [leaf])

    assert_parity(case)


def test_same_shape_with_other_strides_and_offset_is_another_call():
    def case(device):
        x = randn(device, 8, 8)
        parts = [
            x[:4, :4], x[4:, 4:], x[::2, ::2], x[1::2, 1::2], x[:4, :4].t(), x.t()[4:, :4],
            x[0, :4].expand(4, 4), x[:4, 0:1].expand(4, 4), x[:4, :4].clone(), x[:4, :4].flip(1),
        ]  # fmt: skip
        results = []
        for a, b in itertools.product(parts, parts):
            results += [a + b, a @ b]
        for part in parts:
            results += [part.sum(1), part.softmax(0), part.contiguous(), part.exp().t()]
        return results

    assert_parity(case)


def test_layout_of_results_is_as_on_the_cpu():
    def case(device):
        x = randn(device, 2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
        y, scattered = x.transpose(1, 2), x[:, :, ::2]
        made = [
            x + 1, x.relu(), x * y.transpose(1, 2), y.exp(), scattered.neg(), x.clone(), y.clone(),
            scattered.clone(), x.permute(2, 0, 3, 1),
            torch.empty_like(x), torch.zeros_like(y), x.contiguous(),
            x.half(),
            y.contiguous(), torch.cat([x, x], 1), x.mean((2, 3), keepdim=True), y.softmax(1),
            torch.nn.functional.max_pool2d(x, 2), x.flatten(1), y.reshape(-1),
        ]  # fmt: skip
        weight, leaf = randn(device, 6, 3, 2, 2, grad=True), x.detach().requires_grad_()
        made.append(torch.nn.functional.conv2d(leaf, weight))
        made += torch.autograd.grad(made[-1].square().sum(), [leaf, weight])
        layouts = [[m.shape, m.stride(), m.is_contiguous()] for m in made]
        return [layouts, x.stride()]

    assert_parity(case)


def test_expanded_and_overlapping_tensors():
    def case(device):
        x = randn(device, 3, 1, grad=True)
        wide = x.expand(3, 4)
        overlapping = randn(device, 10).as_strided((4, 4), (2, 1))
        with_gradients(wide * wide.detach()[:, :1], [x])
        return [wide, x.grad, overlapping, overlapping + overlapping.t(), overlapping.clone()]

    assert_parity(case)


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_write_into_expanded_tensor_is_refused(device):
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(3, 1, device=device).expand(3, 4).add_(1)


def test_metadata_changed_in_place():
    def case(device):
        x = randn(device, 2, 3)
        base = x.view(6)
        made = {
            "t_": x.clone().t_(),
            "transpose_": randn(device, 2, 3, 4).transpose_(0, 2),
            "unsqueeze_": x.clone().unsqueeze_(1),
            "squeeze_": randn(device, 1, 3, 1).squeeze_(),
            "squeeze_dim": randn(device, 1, 3, 1).squeeze_(0),
            "swapaxes_": x.clone().swapaxes_(0, 1),
            "as_strided_": x.clone().as_strided_((2, 2), (1, 2), 1),
            "detach_": (x * 2).detach_(),
        }
        x.t_()
        x[2] = 9
        x.unsqueeze_(0).mul_(2)
        made["after"] = [x + 1, base]
        return [made, [m.stride() for m in made.values() if isinstance(m, torch.Tensor)], x.shape]

    assert_parity(case)


def test_resize_keeps_what_fits_and_grows_what_does_not():
    def case(device):
        x = torch.arange(6.0).to(device)
        alias = x[1:3]
        x.resize_(2, 2)
        small = x.clone()
        x.resize_(3, 4)
        x[2] = 5
        kept = x.view(-1)[:6].clone()
        alias.add_(10)
        fresh = torch.empty(0, device=device).resize_(4).fill_(3)
        like = torch.empty(0, device=device).resize_as_(small).copy_(small)
        return [small, kept, x[2], x[0], alias, fresh, like, x.untyped_storage().nbytes()]

    assert_parity(case)


def test_set_makes_an_alias():
    def case(device):
        x, y = randn(device, 6), torch.empty(0, device=device)
        y.set_(x)
        y.add_(1)
        z = torch.empty(0, device=device).set_(x.untyped_storage(), 2, (2, 2), (2, 1))
        z.mul_(3)
        w = torch.empty(3, device=device).set_(x.untyped_storage())
        hollow = randn(device, 2).set_()
        return [x, y, z, w, hollow.shape, y.is_set_to(x), z.is_set_to(x)]

    assert_parity(case)


def test_data_assignment_replaces_the_values():
    def case(device):
        p = torch.nn.Parameter(randn(device, 3))
        view = p.detach()
        p.data = torch.arange(4.0).to(device)
        p.data[1] = 9
        p.data.mul_(2)
        (p * p).sum().backward()
        return [p, p.grad, view]

    assert_parity(case)


def test_out_argument_of_another_size_is_resized_with_a_warning():
    def case(device):
        x = randn(device, 3, 4)
        fresh = torch.empty(0, device=device)
        torch.mul(x, 2, out=fresh)
        wrong = torch.zeros(5, device=device)
        with pytest.warns(UserWarning, match="was resized"):
            torch.add(x, 1, out=wrong)
        values, indices = torch.empty(0, device=device), torch.empty(0, device=device).long()
        torch.sort(x, 1, out=(values, indices))
        torch.max(x, 0, out=(values.resize_(0), indices.resize_(0)))
        return [fresh, wrong, values, indices, torch.cat([x, x], out=torch.empty(0, device=device))]

    assert_parity(case)


def unbound(x, outs):
    torch.unbind_copy(x, out=outs)
    return outs


UNKNOWN_SIZES = {
    "nonzero": lambda x, out: torch.nonzero(x, out=out(torch.int64)),
    "masked_select": lambda x, out: torch.masked_select(x, x > 0, out=out(x.dtype)),
    "histogram": lambda x, out: torch.histogram(x, 2, out=(out(x.dtype), out(x.dtype))),
    "geqrf": lambda x, out: torch.geqrf(x.view(2, 2), out=(out(x.dtype), out(x.dtype))),
    "list": lambda x, out: unbound(x, [out(x.dtype) for _ in range(4)]),
}


@pytest.mark.parametrize("size", [0, 7])
@pytest.mark.parametrize("name", UNKNOWN_SIZES)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_argument_of_an_op_whose_size_is_not_known_here_is_resized(name, size):
    def case(device):
        x = torch.tensor([0.0, 1.0, 2.0, 0.0]).to(device)
        return UNKNOWN_SIZES[name](x, lambda dtype: torch.ones(size, dtype=dtype, device=device))

    assert_parity(case)


def test_out_argument_of_another_dtype():
    def case(device):
        x = randn(device, 3, 4)
        double, half = (
            torch.empty(3, 4, dtype=d, device=device) for d in (torch.double, torch.half)
        )
        torch.add(x, 1, out=double)
        torch.mul(x, 2, out=half)
        return [double, half, torch.gt(x, 0, out=torch.empty(3, 4, device=device))]

    assert_parity(case, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_out_argument_of_an_unfit_dtype_is_refused(device):
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(torch.ones(2, device=device), 1, out=torch.ones(2, device=device).long())


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_results_do_not_follow_later_changes_whatever_is_read_first(order):
    x, y = torch.ones(2, 2, device=DEVICE), torch.ones(2, 2, device=DEVICE)
    z = torch.full((2, 2), 3.0, device=DEVICE)
    results = [x + y]
    results.append(results[0] + z)
    x.add_(z * 100)
    results.append(x - y)
    y.copy_(results[2])
    z.zero_()
    results.append(y + z)
    del x, y, z
    assert {i: results[i].unique().tolist() for i in order} == {
        0: [2.0], 1: [5.0], 2: [300.0], 3: [300.0],
    }  # fmt: skip


def test_view_outlives_its_base():
    base = torch.arange(10.0, device=DEVICE)
    part = base[4:7]
    base.add_(1)
    del base
    for _ in range(50):  # What the server may put in its place.
        torch.full((10,), -1.0, device=DEVICE)
    part += part[0].clone()
    assert part.tolist() == [10.0, 11.0, 12.0]


def test_arguments_that_alias_each_other():
    def case(device):
        x = torch.arange(10.0).to(device)
        x[1:] += x[:-1].clone()
        x[:5].copy_(x[5:])
        x.view(2, 5).t()[:2].add_(x.view(2, 5).t()[2:4])
        y = torch.arange(16.0).view(4, 4).to(device)
        y.copy_(y.clone().t())
        y[:, 0], y[:, 1] = y[:, 1].clone(), y[:, 0].clone()
        torch.mul(y, y, out=y)
        return [x, y, torch.add(x, x, out=x), x]

    assert_parity(case)


def test_version_counters_guard_saved_tensors():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
