"""Ops that fail on the server, and calls that device rgpu refuses.

What can be checked here raises at the call, as on the CPU or CUDA. What only the server can know
raises at the next read that depends on it, as the CPU's exception, naming op and program line.
"""

import contextlib
import sys

import pytest
import rgpu
import torch
import torch.nn.functional as F
from device_parity import DEVICE, randn
from torch import nn


@pytest.fixture(autouse=True)
def other_tests_see_no_failure():
    yield
    with contextlib.suppress(Exception):
        rgpu.synchronize()


def device(*values):
    return torch.tensor(values, device=DEVICE)


def this_line(lines_back=1):
    """How an error names the line that many lines above the call of this function."""
    frame = sys._getframe(1)
    return f"test_device_errors.py:{frame.f_lineno - lines_back} in {frame.f_code.co_qualname}"


def cpu_exception(call):
    """The type of the exception that the call raises on the CPU."""
    with pytest.raises(Exception) as caught:
        call("cpu")
    return caught.type


# Calls that fail by their values, and what the message calls the op.
FAILING = {
    "embedding": (
        lambda d: F.embedding(torch.tensor([99]).to(d), torch.ones(3, 3).to(d)), "embedding"),
    "index": (lambda d: torch.ones(3).to(d)[torch.tensor([7]).to(d)], "index"),
    "index_put": (lambda d: torch.ones(3).to(d).index_put_(
        (torch.tensor([-9]).to(d),), torch.ones(1).to(d)), "index_put"),
    "index_select": (
        lambda d: torch.ones(3).to(d).index_select(0, torch.tensor([5]).to(d)), "index_select"),
    "gather": (lambda d: torch.ones(3).to(d).gather(0, torch.tensor([5]).to(d)), "gather"),
    "scatter": (lambda d: torch.ones(3).to(d).scatter(0, torch.tensor([5]).to(d), 1.0), "scatter"),
    "take": (lambda d: torch.ones(3).to(d).take(torch.tensor([5]).to(d)), "take"),
    "nll_loss": (
        lambda d: F.nll_loss(torch.ones(2, 3).to(d), torch.tensor([1, 8]).to(d)), "nll_loss"),
    "inverse": (lambda d: torch.linalg.inv(torch.zeros(3, 3).to(d)), "linalg.inv"),
    "cholesky": (lambda d: torch.linalg.cholesky(-torch.eye(3).to(d)), "cholesky"),
    "solve": (
        lambda d: torch.linalg.solve(torch.zeros(2, 2).to(d), torch.ones(2).to(d)), "linalg.solve"),
    "multinomial": (lambda d: torch.multinomial(torch.tensor([-1.0, 2.0]).to(d), 1), "multinomial"),
    "bernoulli": (lambda d: torch.bernoulli(torch.tensor([3.0]).to(d)), "bernoulli"),
    "one_hot": (lambda d: F.one_hot(torch.tensor([1, 4]).to(d), 3), "scatter"),
    "integer_division": (lambda d: torch.tensor([1]).to(d) // torch.tensor([0]).to(d), "div"),
    "binary_cross_entropy": (
        lambda d: F.binary_cross_entropy(torch.tensor([2.0]).to(d), torch.ones(1).to(d)),
        "binary_cross_entropy"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_failure_raises_the_cpus_exception_at_the_read_that_depends_on_it(name):
    call, op = FAILING[name]
    unrelated = torch.ones(3, device=DEVICE) * 2
    with pytest.raises(cpu_exception(call)) as caught:
        # Nothing but the read may raise; ops that are checked here raise at the call as well.
        call(DEVICE).cpu()
    assert unrelated.tolist() == [2.0, 2.0, 2.0]
    assert op in str(caught.value), caught.value
    assert "test_device_errors.py:" in str(caught.value)


def test_failure_names_op_shapes_and_line():
    table = torch.ones(3, 4, device=DEVICE)
    result = F.embedding(device(99), table)
    where = this_line()
    later = (result * 2).sum()
    with pytest.raises(IndexError) as caught:
        later.item()
    text = str(caught.value)
    assert where in text and "embedding" in text and "[3, 4]" in text
    assert "index out of range" in text


def test_failure_flows_through_every_later_use_and_nowhere_else():
    poisoned = torch.ones(3, device=DEVICE)[device(7)]
    derived = torch.cat([poisoned, torch.ones(1, device=DEVICE)]).view(1, -1)[0, 1:]
    clean = torch.ones(3, device=DEVICE)
    for _ in range(100):
        clean = clean + 1
    assert clean.tolist() == [101.0] * 3
    for tensor in (derived, poisoned, derived):
        with pytest.raises(IndexError):
            tensor.tolist()
    assert (clean + 1).sum().item() == 306


def test_failed_write_poisons_what_it_wrote_to():
    target, other = torch.zeros(3, device=DEVICE), torch.zeros(3, device=DEVICE)
    view = target[1:]
    target.index_put_((device(9),), torch.ones(1, device=DEVICE))
    with pytest.raises(IndexError):
        view.cpu()
    assert other.tolist() == [0.0] * 3


def test_synchronize_raises_what_nobody_read():
    F.embedding(device(99), torch.ones(3, 3, device=DEVICE))
    where = this_line()
    with pytest.raises(IndexError) as caught:
        rgpu.synchronize()
    assert where in str(caught.value)
    rgpu.synchronize()
    assert torch.ones(2, device=DEVICE).sum().item() == 2


def test_failure_in_backward_names_the_forward_line_and_the_backward_line():
    x = torch.zeros(3, 3, device=DEVICE, requires_grad=True)

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, given):
            return given * 2

        @staticmethod
        def backward(ctx, gradient):
            return torch.linalg.inv(gradient * 0)

    y = Fails.apply(x)
    y.sum().backward()
    with pytest.raises(torch.linalg.LinAlgError) as caught:
        x.grad.cpu()
    assert "test_device_errors.py:" in str(caught.value)

    scores = torch.zeros(2, 3, device=DEVICE, requires_grad=True)
    loss = F.nll_loss(scores.log_softmax(1), device(0, 9))
    forward = this_line()
    loss.backward()
    backward = this_line()
    with pytest.raises((IndexError, RuntimeError)) as caught:
        scores.grad.cpu()
    assert forward in str(caught.value) or backward in str(caught.value)


def test_backward_of_a_whole_op_names_both_lines():
    query = torch.zeros(1, 2, 4, 8, device=DEVICE, requires_grad=True)
    bad = query + F.embedding(device(99), torch.ones(3, 8, device=DEVICE))
    where = this_line()
    F.scaled_dot_product_attention(bad, bad, bad).sum().backward()
    with pytest.raises(IndexError) as caught:
        query.grad.cpu()
    assert where in str(caught.value)


def test_singular_matrix_is_linalg_error_and_keeps_the_session():
    inverse = torch.linalg.inv(torch.zeros(2, 2, device=DEVICE))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        inverse.cpu()
    assert torch.linalg.inv(torch.eye(2, device=DEVICE)).tolist() == [[1.0, 0.0], [0.0, 1.0]]


AT_THE_CALL = {
    "mm_sizes": lambda d: torch.mm(torch.ones(2, 3).to(d), torch.ones(4, 5).to(d)),
    "mm_dtypes": lambda d: torch.mm(torch.ones(2, 2).to(d), torch.ones(2, 2).long().to(d)),
    "broadcast": lambda d: torch.ones(3).to(d) + torch.ones(4).to(d),
    "view_sizes": lambda d: torch.ones(6).to(d).view(4),
    "view_strides": lambda d: torch.ones(2, 3).to(d).t().view(6),
    "cat_sizes": lambda d: torch.cat([torch.ones(2, 3).to(d), torch.ones(3, 4).to(d)]),
    "dim_range": lambda d: torch.ones(3).to(d).sum(2),
    "reshape": lambda d: torch.ones(3).to(d).reshape(2, 2),
    "linear_sizes": lambda d: nn.Linear(3, 2).to(d)(torch.ones(2, 4).to(d)),
    "conv_channels": lambda d: nn.Conv2d(3, 4, 3).to(d)(torch.ones(1, 2, 5, 5).to(d)),
    "embedding_dtype": lambda d: F.embedding(torch.ones(2).to(d), torch.ones(3, 3).to(d)),
    "index_dtype": lambda d: torch.ones(3).to(d)[torch.ones(2).to(d)],
    "mask_size": lambda d: torch.ones(3).to(d)[torch.ones(2, dtype=torch.bool).to(d)],
    "select_range": lambda d: torch.ones(3).to(d)[5],
    "in_place_type": lambda d: torch.ones(3).long().to(d).add_(1.5),
    "in_place_size": lambda d: torch.ones(3).to(d).add_(torch.ones(2, 3).to(d)),
    "leaf_in_place": lambda d: torch.ones(3).to(d).requires_grad_().add_(1),
    "integer_gradient": lambda d: torch.ones(3).long().to(d).requires_grad_(),
    "subtract_bool": lambda d: torch.ones(3).bool().to(d) - torch.ones(3).bool().to(d),
    "negative_size": lambda d: torch.empty(-1, device=d),
    "item_of_many": lambda d: torch.ones(3).to(d).item(),
    "einsum": lambda d: torch.einsum("ij,jk->ik", torch.ones(2, 3).to(d), torch.ones(2, 3).to(d)),
    "expand": lambda d: torch.ones(3).to(d).expand(4),
    "as_strided_bounds": lambda d: torch.ones(3).to(d).as_strided((4,), (1,)),
    "cross_entropy_sizes": lambda d: F.nll_loss(torch.ones(2, 3).to(d), torch.ones(4).long().to(d)),
    "layer_norm_shape": lambda d: F.layer_norm(torch.ones(2, 3).to(d), (4,)),
    "topk_range": lambda d: torch.ones(3).to(d).topk(5),
    "copy_size": lambda d: torch.ones(3).to(d).copy_(torch.ones(2)),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_THE_CALL)
def test_what_can_be_checked_here_raises_the_cpus_exception_at_the_call(name):
    call = AT_THE_CALL[name]
    failure = cpu_exception(call)
    before = rgpu.stats()["waits"]
    with pytest.raises((failure, RuntimeError)):  # Meta kernels in Python know no IndexError.
        call(DEVICE)
    if name != "mask_size":  # The number of set elements decides there.
        assert rgpu.stats()["waits"] == before
    rgpu.synchronize()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, h: x + h,
        lambda x, h: h * x,
        lambda x, h: x @ h,
        lambda x, h: torch.where(x > 0, x, h),
        lambda x, h: torch.cat([x, h]),
        lambda x, h: x.add_(h),
        lambda x, h: F.linear(x, h),
        lambda x, h: F.mse_loss(x, h),
        lambda x, h: F.embedding(torch.tensor([0]), x),
        lambda x, h: F.layer_norm(x, (3,), weight=h[0]),
        lambda x, h: x.gather(0, torch.zeros(1, 3, dtype=torch.long)),
        lambda x, h: x.masked_fill(h > 0, 1.0),
        lambda x, h: torch._foreach_add([x], [h]),
        lambda x, h: nn.Linear(3, 3)(x),
        lambda x, h: nn.Linear(3, 3).to(DEVICE)(h),
        lambda x, h: F.scaled_dot_product_attention(x[None], h[None], x[None]),
        lambda x, h: nn.LSTM(3, 4)(x),
        lambda x, h: h.copy_(h).add_(x),
    ],
)
def test_cpu_tensor_is_refused_where_cuda_refuses_one(call):
    x, host = torch.ones(3, 3, device=DEVICE), torch.ones(3, 3)
    with pytest.raises(RuntimeError, match="(?i)device"):
        call(x, host)
    assert host.equal(torch.ones(3, 3))
    rgpu.synchronize()
    assert x.sum().item() == 9


@pytest.mark.parametrize(
    "write",
    [
        lambda x, out: torch.add(x, 1, out=out),
        lambda x, out: torch.mm(x, x, out=out),
        lambda x, out: torch.cat([x, x], out=out),
        lambda x, out: torch.sum(x, 0, out=out),
        lambda x, out: torch.sort(x, out=(out, torch.empty(0, dtype=torch.long))),
    ],
)
def test_cpu_out_argument_is_refused(write):
    out = torch.zeros(3, 3)
    with pytest.raises(RuntimeError, match="(?i)device|rgpu"):
        write(torch.ones(3, 3, device=DEVICE), out)
    assert out.equal(torch.zeros(3, 3))
    rgpu.synchronize()


def test_device_out_argument_of_cpu_inputs_is_refused():
    out = torch.zeros(3, device=DEVICE)
    with pytest.raises(RuntimeError, match="(?i)device|rgpu"):
        torch.add(torch.ones(3), torch.ones(3), out=out)
    assert out.tolist() == [0.0] * 3


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.ones(2, device="rgpu:7"),
        lambda: torch.ones(2).to("rgpu:7"),
        lambda: torch.rgpu.set_device(7),
        lambda: torch.empty(2, device="rgpu:7") + 1,
        lambda: torch.randn(2, device="rgpu:7"),
        lambda: torch.accelerator.set_device_index(7),
    ],
)
def test_device_that_the_server_lacks_is_an_error(use):
    with pytest.raises((RuntimeError, ValueError), match=r"rgpu:7 does not exist"):
        use()
    assert torch.rgpu.current_device() == 0


def test_generator_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match="(?i)device|generator"):
        torch.randn(2, device=DEVICE, generator=torch.Generator())


def test_anomaly_detection_finds_the_forward_op():
    x = randn(DEVICE, 3, grad=True)
    with (
        pytest.warns(UserWarning, match="Error detected in SqrtBackward0"),
        pytest.raises(RuntimeError, match="nan values"),
        torch.autograd.detect_anomaly(),
    ):
        (x * 0 - 1).sqrt().sum().backward()
