"""torch.func, higher derivatives, forward-mode AD, gradcheck, hooks and anomaly mode."""

import pytest
import torch
import torch.nn.functional as F
from device_parity import DEVICE, assert_parity, randn
from torch import nn
from torch.autograd import forward_ad
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

TIGHT = {"atol": 1e-5, "rtol": 1e-4}


def assert_parity_with_plain_kernels(case, **tolerances):
    """The CPU's fused kernels have no second and no forward derivatives; its others do."""

    def plain_on_the_cpu(device):
        if device != "cpu":
            return case(device)
        with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
            return case(device)

    assert_parity(plain_on_the_cpu, **{**TIGHT, **tolerances})


def network(device):
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 2)).to(device)
    return model, randn(device, 5, 4)


# ---- torch.func ---------------------------------------------------------------------------------

FUNCTIONS = {
    "elementwise": lambda x: (x.sin() * x.exp()).sum(),
    "matmul": lambda x: (x @ x.mT).square().sum(),
    "softmax": lambda x: (F.log_softmax(x, -1) * F.softmax(x, 0)).sum(),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]).pow(3).sum(),
    "indexing": lambda x: (x[[2, 0]] * x[:2].cumsum(0)).sum(),
    "linalg": lambda x: torch.linalg.inv(x @ x.mT + 2).exp().sum(),
    "convolution": lambda x: F.conv1d(x[None], x[None, :, :2]).square().sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("transform", [grad, jacrev, jacfwd, hessian, grad_and_value])
def test_derivatives_of_functions(transform, name):
    assert_parity(lambda device: transform(FUNCTIONS[name])(randn(device, 3, 4)), **TIGHT)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_of_many_inputs_at_once(name):
    def case(device):
        x = randn(device, 6, 3, 4)
        function = FUNCTIONS[name]
        return [vmap(function)(x), vmap(grad(function))(x), vmap(function, in_dims=1)(x.mT)]

    assert_parity(case, **TIGHT)


def test_products_with_jacobians():
    def case(device):
        x, v = randn(device, 3, 4), randn(device, 3, 4)
        out, tangent = jvp(lambda t: t.sin() @ t.mT, (x,), (v,))
        value, pull = vjp(lambda t: t.sin() @ t.mT, x)
        line, push = linearize(lambda t: t.cos() * t, x)
        return [out, tangent, value, pull(tangent), line, push(v)]

    assert_parity(case, **TIGHT)


def test_gradients_of_each_sample():
    def case(device):
        model, x = network(device)
        parameters = dict(model.named_parameters())

        def loss(parameters, sample):
            return functional_call(model, parameters, (sample[None],)).square().sum()

        return vmap(grad(loss), in_dims=(None, 0))(parameters, x)

    assert_parity(case, **TIGHT)


def test_ensemble_of_models():
    def case(device):
        models = [network(device)[0] for _ in range(3)]
        parameters, buffers = stack_module_state(models)
        x = randn(device, 5, 4)
        call = vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))
        return call(parameters, buffers)

    assert_parity(case, **TIGHT)


def test_functionalized_mutation():
    def change(x):
        y = x.clone()
        y[0].add_(1)
        y.view(-1)[1:3].mul_(2)
        return y

    assert_parity(lambda device: functionalize(change)(randn(device, 3, 4)))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers_under_vmap(randomness):
    x = randn(DEVICE, 64, 8)
    out = vmap(lambda t: F.dropout(torch.ones_like(t), 0.5), randomness=randomness)(x).cpu()
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert bool((out == out[0]).all()) == (randomness == "same")
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda t: F.dropout(t, 0.5))(x)


def test_attention_under_transforms():
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def case(device):
        q, k, v = (randn(device, 2, 3, 5, 4) for _ in range(3))
        first = grad(lambda q: attend(q, k, v).square().sum())(q)
        second = jacrev(lambda q: grad(lambda q: attend(q, k[0], v[0]).pow(3).sum())(q))(q[0])
        return [first, second, vmap(attend)(q, k, v), jvp(attend, (q, k, v), (v, q, k))]

    assert_parity_with_plain_kernels(case)


# ---- Higher derivatives -------------------------------------------------------------------------


def penalized(out, leaves):
    """Gradients of a loss that holds the size of its own gradient."""
    gradients = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
    penalty = sum(g.square().sum() for g in gradients)
    return [gradients, torch.autograd.grad(out.sum() + penalty, leaves, allow_unused=True)]


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"mask": "bool"}, {"mask": "float"}, {"scale": 0.3},
     {"heads": 2, "enable_gqa": True}],
    ids=str,
)  # fmt: skip
def test_second_derivatives_of_attention(options):
    def case(device):
        given = dict(options)
        heads, mask = given.pop("heads", 4), given.pop("mask", None)
        q = randn(device, 2, 4, 5, 8, grad=True)
        k, v = (randn(device, 2, heads, 5, 8, grad=True) for _ in range(2))
        if mask == "bool":
            given["attn_mask"] = torch.ones(5, 5, dtype=torch.bool).tril().to(device)
        elif mask == "float":
            given["attn_mask"] = randn(device, 5, 5)
        return penalized(F.scaled_dot_product_attention(q, k, v, **given), [q, k, v])

    assert_parity_with_plain_kernels(case)


def test_second_derivative_of_attention_to_itself():
    def case(device):
        x = randn(device, 1, 2, 4, 8, grad=True)
        key = x * 2
        return penalized(F.scaled_dot_product_attention(x, key, key + x), [x])

    assert_parity_with_plain_kernels(case, rtol=2e-3)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=str)
def test_second_derivatives_of_recurrent_networks(kind, options):
    def case(device):
        model = kind(4, 3, **options).to(device)
        x = randn(device, 5, 2, 4, grad=True)
        return penalized(model(x)[0], [x, *model.parameters()])

    assert_parity_with_plain_kernels(case)


def test_second_derivative_of_a_packed_sequence():
    def case(device):
        model, x = nn.LSTM(4, 3).to(device), randn(device, 5, 3, 4, grad=True)
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]))
        return penalized(model(packed)[0].data, [x])

    assert_parity_with_plain_kernels(case)


def test_third_derivative_of_attention():
    def case(device):
        x = randn(device, 1, 1, 3, 4, grad=True)
        out = F.scaled_dot_product_attention(x, x, x).pow(3).sum()
        results = []
        for _ in range(3):
            (gradient,) = torch.autograd.grad(out, x, create_graph=True)
            results.append(gradient)
            out = gradient.square().sum()
        return results

    assert_parity_with_plain_kernels(case, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("what", ["attention", "lstm"])
def test_second_derivative_with_dropout_is_refused_and_says_why(what):
    x = randn(DEVICE, 1, 2, 4, 8, grad=True)
    if what == "attention":
        out = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    else:
        out = nn.LSTM(8, 8, 2, dropout=0.5).to(DEVICE)(x[0])[0]
    (gradient,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="without dropout"):
        gradient.square().sum().backward()


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(4, 3),
        lambda: nn.Conv1d(4, 3, 2),
        lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU()),
        lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Conv1d(4, 3, 2), nn.MaxPool1d(2)),
        lambda: nn.GroupNorm(2, 4),
    ],
)
def test_gradient_penalty_of_modules(make):
    def case(device):
        model, x = make().to(device), randn(device, 3, 4, 4, grad=True)
        return penalized(model(x), [x, *model.parameters()])

    assert_parity(case, atol=1e-3, rtol=1e-3)


def test_functional_hessian_and_products():
    def case(device):
        x, v = randn(device, 4), randn(device, 4)
        function = FUNCTIONS["elementwise"]
        api = torch.autograd.functional
        return [
            api.hessian(function, x), api.hvp(function, x, v), api.vhp(function, x, v),
            api.jacobian(torch.exp, x), api.jvp(torch.sin, x, v), api.vjp(torch.sin, x, v),
        ]  # fmt: skip

    assert_parity(case, **TIGHT)


# ---- Forward mode -------------------------------------------------------------------------------


def tangents(function, device, *sizes):
    """Value and directional derivative of a function of one tensor."""
    x, v = randn(device, *sizes), randn(device, *sizes)
    with forward_ad.dual_level():
        out = function(forward_ad.make_dual(x, v))
        return list(forward_ad.unpack_dual(out))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_mode_derivative_of_functions(name):
    assert_parity(lambda device: tangents(FUNCTIONS[name], device, 3, 4), **TIGHT)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_forward_mode_derivative_of_recurrent_networks(kind):
    def case(device):
        model = kind(4, 3).to(device)
        with torch.no_grad():
            return tangents(lambda x: model(x)[0], device, 5, 2, 4)

    assert_parity_with_plain_kernels(case)


def test_forward_mode_derivative_of_attention():
    def case(device):
        key = randn(device, 2, 3, 5, 4)
        return tangents(
            lambda q: F.scaled_dot_product_attention(q, key, q, is_causal=True), device, 2, 3, 5, 4
        )

    assert_parity_with_plain_kernels(case)


# ---- gradcheck ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck_and_gradgradcheck(name):
    x = randn(DEVICE, 3, 4, dtype=torch.float64, grad=True)
    assert torch.autograd.gradcheck(
        FUNCTIONS[name], x, check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(FUNCTIONS[name], x)


def test_gradcheck_of_attention_and_recurrent_networks():
    x = randn(DEVICE, 1, 2, 3, 4, dtype=torch.float64, grad=True)
    lstm = nn.LSTM(4, 2).to(DEVICE, torch.float64)
    for function in (
        lambda t: F.scaled_dot_product_attention(t, t, t),
        lambda t: lstm(t[0])[0],
    ):
        assert torch.autograd.gradcheck(function, x)
        assert torch.autograd.gradgradcheck(function, x)


def test_gradcheck_finds_a_wrong_backward():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return 3 * x * gradient

    x = randn(DEVICE, 3, dtype=torch.float64, grad=True)
    assert not torch.autograd.gradcheck(Wrong.apply, x, raise_exception=False)


# ---- Hooks and modes ----------------------------------------------------------------------------


def test_hooks_see_and_change_gradients():
    def case(device):
        model, x = network(device)
        seen = []
        model[0].register_forward_hook(lambda module, given, out: out * 2)
        model[0].register_forward_pre_hook(lambda module, given: (given[0] + 1,))
        model[3].register_full_backward_hook(lambda module, into, out: seen.append(out[0]))
        model[0].weight.register_hook(lambda g: g * 3)
        model[0].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        x.requires_grad_()
        x.register_hook(lambda g: seen.append(g))
        middle = model(x)
        middle.grad_fn.register_prehook(lambda g: seen.append(g[0]))
        middle.square().sum().backward()
        return [seen, x.grad, [p.grad for p in model.parameters()]]

    assert_parity(case, **TIGHT)


def test_saved_tensors_pass_through_hooks():
    def case(device):
        model, x = network(device)
        places = []

        def pack(t):
            places.append(t.device.type == device)
            return t.cpu()

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.to(device)):
            out = model(x)
        out.square().sum().backward()
        return [all(places), len(places) > 0, [p.grad for p in model.parameters()]]

    assert_parity(case, **TIGHT)


def test_saved_tensors_offloaded_to_the_host():
    def case(device):
        model, x = network(device)
        with torch.autograd.graph.save_on_cpu():
            out = model(x)
        out.square().sum().backward()
        return [p.grad for p in model.parameters()]

    assert_parity(case, **TIGHT)


def test_anomaly_mode_names_the_forward_that_gave_nan():
    x = torch.zeros(3, device=DEVICE, requires_grad=True)
    with (
        pytest.warns(UserWarning, match="Error detected in SqrtBackward0"),
        pytest.raises(RuntimeError, match="nan values"),
        torch.autograd.detect_anomaly(),
    ):
        (x.sqrt() * 0).sum().backward()


@pytest.mark.parametrize("what", ["attention", "lstm"])
def test_many_gradients_at_once(what):
    def case(device):
        x = randn(device, 2, 3, 4, 8, grad=True)
        lstm = nn.LSTM(8, 6).to(device)
        out = F.scaled_dot_product_attention(x, x, x) if what == "attention" else lstm(x[0])[0]
        weights = randn(device, 5, *out.shape)
        return torch.autograd.grad(out, x, weights, is_grads_batched=True)

    assert_parity_with_plain_kernels(case)


def test_multi_grad_hook_and_graph_edges():
    def case(device):
        a, b = randn(device, 3, grad=True), randn(device, 3, grad=True)
        seen = []
        handle = torch.autograd.graph.register_multi_grad_hook(
            (a, b), lambda grads: seen.extend(grads)
        )
        (a * b).sum().backward()
        handle.remove()
        edge = torch.autograd.graph.get_gradient_edge(a * 2)
        return [seen, edge.node.name(), torch.autograd.grad((a * b).sum(), a)]

    assert_parity(case)


def test_custom_function_with_both_modes():
    class Cube(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def backward(ctx, gradient):
            return 3 * ctx.saved_tensors[0] ** 2 * gradient

        @staticmethod
        def jvp(ctx, tangent):
            return 3 * ctx.saved_tensors[0] ** 2 * tangent

    def case(device):
        x = randn(device, 4, 3)
        total = lambda t: Cube.apply(t).sum()  # noqa: E731
        return [vmap(grad(total))(x), jvp(Cube.apply, (x,), (x,)), hessian(total)(x[0])]

    assert_parity(case, **TIGHT)
