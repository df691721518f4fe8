"""Ops of device rgpu give the CPU's values, dtypes and sizes, forward and backward."""

import pytest
import rgpu  # noqa: F401 - registers the device
import torch
import torch.nn.functional as F
from device_parity import DEVICE, assert_parity, randn, with_gradients

POINTWISE = [
    "abs", "neg", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt",
    "square", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "atanh",
    "sigmoid", "erf", "erfc", "erfinv", "lgamma", "digamma", "floor", "ceil", "round", "trunc",
    "frac", "sign", "sgn", "reciprocal", "relu", "sinc", "logit", "deg2rad", "nan_to_num",
]  # fmt: skip
ACTIVATIONS = [
    "relu", "relu6", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "softsign",
    "hardtanh", "hardswish", "hardsigmoid", "leaky_relu", "logsigmoid", "tanhshrink", "softshrink",
    "hardshrink", "glu",
]  # fmt: skip
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_op_and_its_gradient(name):
    def case(device):
        x = (torch.rand(3, 5) * 0.8 + 0.1).to(device).requires_grad_()
        return with_gradients(getattr(torch, name)(x), [x])

    assert_parity(case)


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_op_in_place_and_out(name):
    def case(device):
        x = (torch.rand(4, 6) * 0.8 + 0.1).to(device)
        out = torch.empty(4, 3, device=device)
        op = getattr(torch, name)
        results = [] if name == "relu" else [op(x[:, :3], out=out)]
        getattr(x[1:3, ::2], name + "_")()
        return [x, *results]

    assert_parity(case)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_and_its_gradient(name):
    def case(device):
        x = randn(device, 4, 6, grad=True)
        return with_gradients(getattr(F, name)(x * 3), [x])

    assert_parity(case)


BINARY = {
    "add": lambda x, y: x + y,
    "sub_alpha": lambda x, y: torch.sub(x, y, alpha=3),
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "pow": lambda x, y: x.abs() ** y,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "maximum": torch.maximum,
    "fmin": torch.fmin,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "copysign": torch.copysign,
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "lerp_tensor": lambda x, y: torch.lerp(x, y, y.sigmoid()),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.7),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=-2),
    "where": lambda x, y: torch.where(x > y, x, y * 2),
    "where_scalar": lambda x, y: torch.where(x > y, x, 0.0),
    "clamp_tensors": lambda x, y: x.clamp(y - 1, y + 1),
    "logaddexp": torch.logaddexp,
    "xlogy": lambda x, y: torch.xlogy(x, y.abs()),
    "cdist": torch.cdist,
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y, dim=0),
    "dist": torch.dist,
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_op_and_its_gradients(name):
    def case(device):
        x, y = randn(device, 4, 5, grad=True), randn(device, 4, 5, grad=True)
        return with_gradients(BINARY[name](x, y), [x, y])

    assert_parity(case)


@pytest.mark.parametrize("shapes", [((4, 1), (5,)), ((), (3,)), ((2, 1, 3), (4, 1)), ((1,), ())])
def test_broadcasting_and_its_gradients(shapes):
    def case(device):
        x, y = (randn(device, *shape, grad=True) for shape in shapes)
        return with_gradients([x + y, x * y, torch.where(x > y, x, y)], [x, y])

    assert_parity(case)


REDUCTIONS = {
    "sum": lambda x: [x.sum(), x.sum(1), x.sum((0, 2), True), x.sum(-1, dtype=torch.double)],
    "mean": lambda x: [x.mean(), x.mean(0), x.mean((1, 2))],
    "prod": lambda x: [x.prod(), x.prod(1, keepdim=True)],
    "max": lambda x: [x.max(), x.max(1).values, x.amax((0, 1))],
    "min": lambda x: [x.min(), x.min(-1, keepdim=True).values, x.amin(2)],
    "std": lambda x: [x.std(), x.std(0), x.var(1, correction=0), *torch.var_mean(x, 2)],
    "norm": lambda x: [x.norm(), x.norm(1, 0), torch.linalg.vector_norm(x, 3, (0, 1))],
    "logsumexp": lambda x: [x.logsumexp(1), x.softmax(2), x.log_softmax(0)],
    "cumulative": lambda x: [x.cumsum(1), x.cumprod(2), x.logcumsumexp(0), x.cummax(1).values],
    "median": lambda x: [x.median(), x.median(1).values, x.kthvalue(2, 2).values],
    "nan": lambda x: [x.nansum(), x.nanmean(1), x.nanmedian()],
    "diff": lambda x: [x.diff(), torch.trapezoid(x, dim=1), x.renorm(2, 0, 1.0)],
    "aminmax": lambda x: [*torch.aminmax(x), *torch.aminmax(x, dim=1)],
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_and_its_gradient(name):
    def case(device):
        x = randn(device, 3, 4, 5, grad=True)
        return with_gradients(REDUCTIONS[name](x), [x])

    assert_parity(case)


def test_index_reductions():
    def case(device):
        x = randn(device, 3, 4)
        return [
            x.argmax(), x.argmax(1), x.argmin(0, keepdim=True), x.max(1).indices, (x > 0).any(),
            (x > 0).all(1), x.count_nonzero(), x.argsort(1, descending=True), x.median(0).indices,
            x.round().mode(1).values, (x > 0).sum(), (x > 0).sum(1), x.mul(9).int().sum(),
        ]  # fmt: skip

    assert_parity(case)


def test_reductions_over_nothing():
    def case(device):
        none, hollow = torch.empty(0, device=device), torch.empty(2, 0, 3, device=device)
        return [
            none.sum(), none.prod(), none.mean(), none.norm(), none.any(), none.all(),
            hollow.sum(1), hollow.prod(1), hollow.sum(0), hollow.logsumexp(1), hollow.amax(0),
            hollow.cumsum(1), hollow.sort(1)[1], hollow.mean(1), none.nonzero(), none.unique(),
            torch.cat([none, torch.ones(2, device=device)]), none.view(0, 3) @ hollow[0].t(),
            none.tolist(), hollow.bool().all(1), F.linear(none.view(2, 0), none.view(3, 0)),
        ]  # fmt: skip

    assert_parity(case)


@pytest.mark.parametrize(
    "call", [lambda x: x.max(), lambda x: x.argmax(), lambda x: x.view(0, 2).amax(0)]
)
def test_reductions_without_an_identity_refuse_nothing(call):
    for device in ("cpu", DEVICE):
        with pytest.raises((RuntimeError, IndexError), match="(?i)reduc"):
            call(torch.empty(0, device=device)).cpu()


LINEAR_ALGEBRA = {
    "mm": lambda a, b: a @ b,
    "addmm": lambda a, b: torch.addmm(a, a, b, beta=0.5, alpha=2),
    "bmm": lambda a, b: torch.bmm(a.expand(3, 4, 4), b.view(1, 4, 4).repeat(3, 1, 1)),
    "matmul_broadcast": lambda a, b: torch.matmul(a.view(2, 1, 2, 4), b),
    "vectors": lambda a, b: [a[0] @ b[:, 1], a @ b[0], torch.outer(a[0], b[1]), a[:, 0].dot(b[2])],
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
    "baddbmm": lambda a, b: torch.baddbmm(a[None], a[None], b[None], beta=2),
    "inv_det": lambda a, b: [torch.linalg.inv(a), torch.linalg.det(b), torch.logdet(a @ a.t())],
    "solve": lambda a, b: torch.linalg.solve(a, b),
    "cholesky": lambda a, b: torch.linalg.cholesky(a @ a.t()),
    "triangular": lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False),
    "values": lambda a, b: [torch.linalg.svdvals(a), torch.linalg.eigvalsh(b + b.t())],
    "qr": lambda a, b: [m.abs() for m in torch.linalg.qr(a)],
    "norms": lambda a, b: [torch.linalg.matrix_norm(a), torch.linalg.norm(b, 2)],
    "matrix_power": lambda a, b: [torch.linalg.matrix_power(a, 3), torch.linalg.pinv(b)],
    "kron_cross": lambda a, b: [torch.kron(a, b), torch.linalg.cross(a[:, :3], b[:, 1:])],
    "triangles": lambda a, b: [a.tril(), b.triu(1), torch.diag(a), torch.diag_embed(b), a.trace()],
}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
def test_linear_algebra_and_its_gradients(name):
    def case(device):
        a, b = randn(device, 4, 4, grad=True), randn(device, 4, 4, grad=True)
        return with_gradients(LINEAR_ALGEBRA[name](a, b), [a, b])

    assert_parity(case, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses_and_their_gradients(reduction):
    def case(device):
        x, y = randn(device, 5, 4, grad=True), randn(device, 5, 4)
        label = torch.randint(0, 4, (5,)).to(device)
        losses = [
            F.mse_loss(x, y, reduction=reduction),
            F.l1_loss(x, y, reduction=reduction),
            F.smooth_l1_loss(x, y, reduction=reduction, beta=0.5),
            F.huber_loss(x, y, reduction=reduction, delta=0.7),
            F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction=reduction),
            F.binary_cross_entropy_with_logits(x, y.sigmoid(), reduction=reduction),
            F.nll_loss(x.log_softmax(1), label, reduction=reduction),
            F.kl_div(x.log_softmax(1), y.softmax(1), reduction=reduction),
            F.poisson_nll_loss(x, y.exp(), reduction=reduction),
            F.multi_margin_loss(x, label, reduction=reduction),
            F.soft_margin_loss(x, y.sign(), reduction=reduction),
            F.cross_entropy(x, label, reduction=reduction, label_smoothing=0.1),
        ]
        return with_gradients(losses, [x])

    assert_parity(case)


def test_values_of_scalars_are_not_remembered():
    def case(device):
        x = randn(device, 3, 4)
        results = []
        for value in (1, 2, -3, 1.5, 2.5, True, 0):
            results += [x + value, x * value, x / (value + 9), torch.full_like(x, value)]
            results += [
                x.clamp(min=value),
                x > value,
                torch.add(x, x, alpha=value * 1),
                x.eq(value),
            ]
        for value in (0.5, 2, 3, -1):
            results += [x.abs() ** value, F.leaky_relu(x, value), F.elu(x, abs(value)), value**x]
            results += [torch.addmm(x[:, :3], x[:, :3], x[:, 1:], beta=value, alpha=-value)]
        for eps in (1e-5, 1e-1, 1.0):
            results += [F.layer_norm(x, (4,), eps=eps), F.normalize(x, eps=eps)]
        results += [x.clamp(-1, 1), x.clamp(-0.5, 0.5), x.clamp(max=0), x.clamp(min=0)]
        return results

    assert_parity(case)


def test_other_arguments_are_not_remembered():
    def case(device):
        x = randn(device, 4, 4)
        results = [x.sum(dim) for dim in (0, 1, -1, (0, 1))]
        results += [x.sum(1, keepdim=keep) for keep in (True, False, True)]
        results += [x.roll(shift, 1) for shift in (1, 2, -1)]
        results += [x.softmax(dim) for dim in (0, 1, 0)]
        results += [x.std(0, correction=correction) for correction in (0, 1, 2)]
        results += [x.topk(k, largest=large).values for k in (1, 3) for large in (True, False)]
        results += [x.round(decimals=digits) for digits in (0, 1, 2)]
        results += [x.tril(diagonal) for diagonal in (-1, 0, 1)]
        results += [torch.div(x, 0.3, rounding_mode=mode) for mode in (None, "floor", "trunc")]
        results += [F.gelu(x, approximate=how) for how in ("none", "tanh")]
        results += [x.to(dtype) for dtype in (torch.half, torch.int, torch.bool, torch.double)]
        return results

    assert_parity(case)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arithmetic_in_every_dtype(dtype):
    def case(device):
        x = torch.randn(3, 4).mul(5).to(dtype).to(device)
        y = torch.randn(3, 4).mul(5).to(dtype).to(device)
        results = [x * y, x == y, x != 2, torch.where(x == y, x, y), x.sum(), x.clone(), x.t() + 1]
        if dtype is not torch.bool:
            results += [x + y, x - y, x + 2, x * 2, x.square(), -x, x / 2, x.cumsum(1)]
        if not dtype.is_complex:
            results += [x < y, torch.maximum(x, y), x.max(), x.sort(1).values, x.float().mean()]
        if dtype.is_floating_point or dtype.is_complex:
            results += [x @ y.t(), x.exp(), x.mean(), torch.softmax(x.abs(), 1), x.abs()]
        else:
            results += [x & y, x | y, x ^ y, ~x, x.any(), x.float()]
        return results

    loose = {"rtol": 2e-2, "atol": 2e-2} if dtype in (torch.float16, torch.bfloat16) else {}
    assert_parity(case, **loose)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conversion_to_every_dtype(dtype):
    def case(device):
        x = torch.tensor([[0.0, 1.0, 2.5], [3.0, 100.0, 7.75]]).to(dtype).to(device)
        return [x.t()[1:].to(other) for other in DTYPES] + [x.type(torch.float), x.int().bool()]

    assert_parity(case)


def test_types_are_promoted_as_on_the_cpu():
    def case(device):
        floats, ints = randn(device, 3), torch.arange(3).to(device)
        flags, bytes_ = ints > 0, ints.to(torch.uint8)
        zero_dim, host = torch.tensor(2.5, dtype=torch.double).to(device), torch.tensor(1.5)
        return [
            ints + 1.5, ints + 1, flags + 1, flags + flags, ints / 2, ints // 2, ints % 2, ints**2,
            floats + ints, floats.half() + floats, floats + zero_dim, ints + zero_dim, zero_dim + 1,
            floats * host, ints * host, host * floats, ints.half() * host.double(), bytes_ - 1,
            bytes_ + ints.int(), ints.mean(dtype=torch.float), flags.sum(), bytes_.sum(),
            floats + 1j, ints + 2j, torch.result_type(ints, 1.5),
        ]  # fmt: skip

    assert_parity(case)


def test_default_dtype_belongs_to_what_is_remembered():
    def case(device):
        results = []
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            try:
                ints = torch.arange(4, device=device)
                results += [ints / 2, ints + 0.5, torch.ones(2, device=device), ints.sqrt()]
            finally:
                torch.set_default_dtype(torch.float32)
        return results

    assert_parity(case)


def test_factories():
    def case(device):
        like = torch.randn(2, 3, 4, 5).to(device, memory_format=torch.channels_last)
        made = [
            torch.arange(5, device=device), torch.arange(1, 10, 3, device=device),
            torch.arange(0, 1, 0.25, device=device), torch.arange(0, device=device),
            torch.arange(3.0, 0, -1, device=device), torch.linspace(0, 1, 7, device=device),
            torch.linspace(-1, 1, 4, device=device), torch.logspace(0, 2, 3, device=device),
            torch.eye(3, device=device), torch.eye(2, 4, device=device, dtype=torch.int),
            torch.full((2, 2), 7, device=device), torch.full((2,), 0.5, device=device),
            torch.full((2,), True, device=device), torch.zeros(2, 0, device=device),
            torch.ones(3, device=device, dtype=torch.bool), torch.scalar_tensor(2.5, device=device),
            torch.tril_indices(3, 3, device=device), torch.triu_indices(3, 4, 1, device=device),
            torch.zeros_like(like), torch.ones_like(like, dtype=torch.int),
            like.new_zeros(2), like.new_tensor([1, 2]), like.new_full((2,), 4.0), like.new_ones(()),
            torch.tensor([[1, 2], [3, 4]], device=device), torch.as_tensor([1.5], device=device),
            torch.hann_window(8, device=device), torch.vander(torch.arange(3.0, device=device)),
            torch.cartesian_prod(*[torch.arange(2, device=device)] * 2), torch.complex(like, like),
            torch.polar(like.abs(), like), torch.full_like(like, 3),
        ]  # fmt: skip
        return [made, [m.stride() for m in made]]

    assert_parity(case)


def test_results_whose_size_follows_from_values():
    def case(device):
        x = torch.tensor([3.0, 0.0, 1.0, 3.0, 0.0, 3.0]).to(device)
        grid = x.view(2, 3)
        counts = torch.tensor([2, 0, 1]).to(device)
        return [
            x.nonzero(), grid.nonzero(as_tuple=True), torch.argwhere(grid), x[x > 1],
            torch.unique(x), torch.unique(x, return_inverse=True, return_counts=True),
            torch.unique(grid, dim=0), torch.unique_consecutive(x), x.long().bincount(),
            x.long().bincount(minlength=9), x.masked_select(x > 0), torch.histc(x, 4, 0, 4),
            torch.arange(3).to(device).repeat_interleave(counts), x.repeat_interleave(2),
            grid[grid == 0], torch.equal(x, x.clone()), torch.equal(x, x + 1), torch.allclose(x, x),
            torch.isin(x, x[:1]), torch.bucketize(x, torch.tensor([1.0, 2.0]).to(device)),
        ]  # fmt: skip

    assert_parity(case)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_interpolation_by_size_and_by_factor(mode):
    def case(device):
        x = randn(device, 1, 2, 4, 5, grad=True)
        align = None if mode == "nearest" else False
        results = [F.interpolate(x, size=(8, 3), mode=mode, align_corners=align)]
        for factor in (1.5, 2.0, 0.5):
            results.append(F.interpolate(x, scale_factor=factor, mode=mode, align_corners=align))
        return with_gradients(results, [x])

    assert_parity(case)


def test_complex_numbers_with_lazy_conjugation_and_negation():
    def case(device):
        z = randn(device, 3, 4, dtype=torch.complex64, grad=True)
        twisted = z.conj()
        results = [
            twisted, twisted.imag, z.conj().t() @ z, z.real, z.imag, z.abs(), z.angle(), z.mH @ z,
            z.exp(), twisted.clone(), twisted.resolve_conj(), twisted.imag.resolve_neg(),
            twisted * 2, twisted.sum(),
            torch.view_as_real(z), torch.view_as_complex(torch.view_as_real(z) * 2),
        ]  # fmt: skip
        target = torch.zeros(3, 4, dtype=torch.complex64, device=device)
        target.conj().copy_(z.detach())
        target.imag.mul_(2)
        lazy = target.detach().conj()
        lazy[0] = 5j
        return [*with_gradients(results, [z]), target, lazy.is_conj(), lazy.imag.is_neg()]

    assert_parity(case)


def test_fourier_transforms():
    def case(device):
        x = randn(device, 4, 8, grad=True)
        spectrum = torch.fft.rfft(x)
        return with_gradients(
            [spectrum, torch.fft.irfft(spectrum), torch.fft.fft2(x).abs(), torch.fft.fftshift(x),
             torch.fft.rfft2(x),
             torch.stft(x, 8, window=torch.ones(8).to(device), return_complex=True)],
            [x],
        )  # fmt: skip

    assert_parity(case)


def test_higher_order_and_functional_gradients():
    def case(device):
        x = randn(device, 3, grad=True)
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        first.pow(2).sum().backward()
        plain = x.detach()
        per_row = torch.func.vmap(torch.func.grad(lambda row: (row**2).sum()))
        return [
            x.grad, per_row(plain.expand(2, 3)), torch.func.jacrev(lambda v: v**2)(plain),
            torch.func.jvp(torch.sin, (plain,), (plain,)),
            torch.func.hessian(lambda v: v.prod())(plain),
        ]  # fmt: skip

    assert_parity(case)


def test_gradients_accumulate_and_hooks_run():
    def case(device):
        x = randn(device, 4, grad=True)
        seen = []
        y = x * 2
        y.register_hook(lambda grad: seen.append(grad.clone()) or grad * 10)
        y.sum().backward(retain_graph=True)
        (y * y).sum().backward()
        return [x.grad, seen]

    assert_parity(case)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_grouped_products_take_the_types_that_cuda_takes(dtype):
    # PyTorch's shape function knows bfloat16 alone; mixtures of experts are often float32.
    def case(device):
        rows = randn(device, 10, 16).to(dtype).requires_grad_()
        experts = randn(device, 3, 16, 12 if dtype == torch.float32 else 8).to(dtype)
        experts.requires_grad_()
        ends = torch.tensor([4, 4, 10], dtype=torch.int32).to(device)
        return with_gradients(torch._grouped_mm(rows, experts, offs=ends), [rows, experts])

    assert_parity(case, atol=1e-2, rtol=1e-2)


def test_grouped_products_of_wrong_types_are_refused_at_the_call():
    rows, experts = torch.ones(4, 8, device=DEVICE).long(), torch.ones(1, 8, 8, device=DEVICE)
    with pytest.raises(RuntimeError, match="mat_a"):
        torch._grouped_mm(rows, experts, offs=torch.tensor([4], dtype=torch.int32).to(DEVICE))


def test_histograms_count_integers_as_on_cuda():
    # The CPU's own kernel refuses them.
    chosen = torch.tensor([3, 0, 1, 3, 3, 7], dtype=torch.int32).to(DEVICE)
    counts = torch.histc(chosen, bins=8, min=0, max=7)
    assert (counts.dtype, counts.tolist()) == (torch.int32, [1, 1, 0, 3, 0, 0, 0, 1])
    real = torch.histc(chosen.float(), bins=8, min=0, max=7)
    assert (real.dtype, real.tolist()) == (torch.float32, [1, 1, 0, 3, 0, 0, 0, 1])
