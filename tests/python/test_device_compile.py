"""torch.compile for the device: graphs are sent once, and a call of one is one record."""

import gc
import math

import pytest
import rgpu
import torch
import torch.nn.functional as F
from device_compile import (
    DEVICE,
    PROGRAMS,
    assert_same,
    batches,
    compiled,
    graph_calls,
    no_warnings,
    train,
)
from rgpu.capture import stored
from torch import nn
from torch.utils.checkpoint import checkpoint

# Their dtypes round more.
_TOLERANCES = {
    "autocast_inside": {"rtol": 0.02, "atol": 0.02},
    "half": {"rtol": 0.02, "atol": 0.02},
}


# Interprets; a graph that cannot be sent is an error.
SHIPS = {"compiler": "eager", "fallback": "error"}


@pytest.fixture(autouse=True)
def fresh_compiler():
    """Dynamo itself keeps the graphs of functions that it broke; those are no test's."""
    torch._dynamo.reset()
    gc.collect()
    stored._live.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "name, optimizer",
    [*((name, "sgd") for name in PROGRAMS), ("linear_layers", "adamw"), ("batch_norm", "adamw")],
)
def test_compiled_program_trains_as_on_the_cpu(name, optimizer):
    data = batches(3)
    with no_warnings(), torch._dynamo.config.patch(allow_rnn=True):
        ours = train(PROGRAMS[name], DEVICE, compiled(), data, optimizer)
        calls = graph_calls()
    reference = train(PROGRAMS[name], "cpu", lambda m: m, data, optimizer)
    assert_same(ours, reference, **_TOLERANCES.get(name, {}))
    assert calls["forward"] >= 3 and calls["backward"] >= 3


@pytest.mark.parametrize("name", ["linear_layers", "causal_attention", "buffers", "convolutions"])
def test_min_cut_graphs_compute_the_same(name):
    data = batches(3)
    ours = train(PROGRAMS[name], DEVICE, compiled(compiler="inductor"), data)
    assert_same(ours, train(PROGRAMS[name], "cpu", lambda m: m, data))


DYNAMIC = ["linear_layers", "batch_norm", "causal_attention", "masked_attention", "convolutions",
           "tied_embedding", "view_as_output", "losses", "checkpointed"]  # fmt: skip


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("name", DYNAMIC)
def test_one_graph_serves_many_sizes(name, dynamic):
    data = batches(5, rows=[4, 6, 10, 3, 12])
    with no_warnings():
        ours = train(PROGRAMS[name], DEVICE, compiled(dynamic=dynamic), data)
    forwards = [g for g in rgpu.graphs() if g.name.endswith("forward")]
    assert_same(ours, train(PROGRAMS[name], "cpu", lambda m: m, data))
    # Automatic: the first size has a graph of its own.
    assert len(forwards) == (1 if dynamic else 2)


def test_sizes_are_computed_by_the_graph():
    def function(x, y):
        rows, columns = x.shape
        folded = x.reshape(rows // 2, columns * 2)
        return folded.sum() / (rows * columns + 1) + y[: rows // 2].repeat(max(rows, 3), 1).mean()

    run = torch.compile(function, backend=rgpu.compile_backend(**SHIPS),
                        dynamic=True)  # fmt: skip
    for rows, columns in [(4, 6), (8, 2), (2, 10)]:
        x, y = torch.randn(rows, columns), torch.randn(16, 3)
        torch.testing.assert_close(run(x.to(DEVICE), y.to(DEVICE)).cpu(), function(x, y))


def test_sizes_that_the_server_cannot_compute_come_with_the_call():
    def function(x):
        rows = math.ceil(x.shape[0] * 0.7)
        return x[:rows] * 2 + x.new_ones(rows, 1) * abs(3 - x.shape[0])

    run = torch.compile(function, backend=rgpu.compile_backend(**SHIPS), dynamic=True)
    for rows in (4, 9, 6):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(run(x.to(DEVICE)).cpu(), function(x))
    assert graph_calls() == {"inference": 3}


@pytest.mark.parametrize("name", ["linear_layers", "encoder_layer", "losses"])
def test_full_graph(name):
    data = batches(3)
    ours = train(PROGRAMS[name], DEVICE, compiled(fullgraph=True), data)
    assert_same(ours, train(PROGRAMS[name], "cpu", lambda m: m, data))


def dropout_steps(compile_with):
    def make():
        return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.3))

    results = train(make, DEVICE, compile_with, batches(3))
    return results, torch.rgpu.get_rng_state().tolist()


@pytest.mark.parametrize("compiler", ["eager", "inductor"])
def test_dropout_draws_what_it_draws_without_a_compiler(compiler):
    ours, state = dropout_steps(compiled(compiler=compiler))
    reference, reference_state = dropout_steps(lambda m: m)
    assert_same(ours, reference)
    assert state == reference_state


@pytest.mark.parametrize("compiler", ["eager", "inductor"])
def test_checkpointed_dropout_is_drawn_once(compiler):
    def gradients(compile_with):
        torch.manual_seed(0)
        layer = nn.Linear(8, 8).to(DEVICE)

        def function(x):
            return checkpoint(lambda t: F.dropout(layer(t), 0.5).relu(), x, use_reentrant=False)

        result = compile_with(function)(torch.ones(4, 8, device=DEVICE))
        result.sum().backward()
        return [[result.detach().cpu(), layer.weight.grad.cpu()]]

    assert_same(gradients(compiled(compiler=compiler)), gradients(lambda f: f))


def test_random_functions_draw_what_they_draw_without_a_compiler():
    def function(x):
        return (
            x + torch.rand_like(x) + torch.randn(4, 8, device=DEVICE) + torch.bernoulli(x.sigmoid())
        )

    x = batches(1)[0].to(DEVICE)
    run = torch.compile(function, backend=rgpu.compile_backend(**SHIPS))
    torch.manual_seed(5)
    expected = [function(x).cpu(), function(x).cpu()]
    torch.manual_seed(5)
    torch.testing.assert_close([run(x).cpu(), run(x).cpu()], expected)


def test_inference_mode_and_no_grad():
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).to(DEVICE)
    run = compiled()(module)
    x = batches(1)[0].to(DEVICE)
    expected = module(x).cpu()
    with torch.inference_mode():
        torch.testing.assert_close(run(x).cpu(), expected)
    with torch.no_grad():
        torch.testing.assert_close(run(x).cpu(), expected)
    assert graph_calls() == {"inference": 2}


def test_inputs_written_in_place_are_written():
    def function(x, y):
        x.add_(1)
        y[0].mul_(3)
        return x * y

    run = torch.compile(function, backend=rgpu.compile_backend(**SHIPS))
    a, b = batches(2)
    x, y = a.to(DEVICE), b.to(DEVICE)
    version = x._version
    result = run(x, y)
    expected = function(a, b)
    torch.testing.assert_close([result.cpu(), x.cpu(), y.cpu()], [expected, a, b])
    assert x._version > version


def test_views_that_are_returned_share_memory():
    run = torch.compile(lambda x: (x.t(), x[1:], (x + 1).view(-1)),
                        backend=rgpu.compile_backend(**SHIPS))  # fmt: skip
    x = batches(1)[0].to(DEVICE)
    turned, rest, _ = run(x)
    x.fill_(7)
    assert turned.cpu().eq(7).all() and rest.cpu().eq(7).all()


def test_two_forwards_before_two_backwards_and_accumulated_gradients():
    def case(device, compile_with):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).to(device)
        run = compile_with(module)
        a, b = (x.to(device) for x in batches(2))
        first, second = run(a), run(b)
        second.sum().backward(retain_graph=True)
        first.sum().backward()
        second.sum().backward()
        return [[p.grad.cpu() for p in module.parameters()]]

    assert_same(case(DEVICE, compiled()), case("cpu", lambda m: m))


def test_results_that_are_brought_to_the_cpu_are_waited_for():
    def function(layer, x):
        y = layer(x)
        return y.relu(), y.detach().cpu().sum() + 1, y.mean().cpu()

    def case(device, compile_with):
        torch.manual_seed(0)
        layer = nn.Linear(8, 8).to(device)
        run = compile_with(function)
        found = []
        for x in batches(2):
            y, total, mean = run(layer, x.to(device))
            assert total.device.type == mean.device.type == "cpu"
            (y.sum().cpu() + mean).backward()
            found.append([y.detach().cpu(), total, mean.detach(), layer.weight.grad.cpu().clone()])
        return found

    with no_warnings():
        assert_same(case(DEVICE, compiled()), case("cpu", lambda m: m))


def test_a_tensor_that_goes_to_the_cpu_and_back_is_not_sent():
    run = torch.compile(lambda x: x.sin().cpu().cos().to(DEVICE) + 1,
                        backend=rgpu.compile_backend(compiler="eager"))  # fmt: skip
    with pytest.warns(UserWarning, match="brings a tensor to the CPU and back"):
        result = run(torch.ones(3, device=DEVICE))
    torch.testing.assert_close(result.cpu(), torch.ones(3).sin().cos() + 1)


def test_compiled_optimizer_step():
    def case(device, compile_with):
        torch.manual_seed(0)
        module = nn.Linear(8, 8).to(device)
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
        step = compile_with(optimizer.step)
        for x in batches(3):
            optimizer.zero_grad()
            module(x.to(device)).pow(2).sum().backward()
            step()
        return [[p.detach().cpu() for p in module.parameters()]]

    assert_same(case(DEVICE, compiled()), case("cpu", lambda m: m))


def test_several_compiled_functions_share_parameters():
    def case(device, compile_with):
        torch.manual_seed(0)
        module = nn.Linear(8, 8).to(device)
        one = compile_with(lambda x: module(x).relu())
        other = (
            torch.compile(
                lambda x: module(x).tanh(),
                backend=rgpu.compile_backend(**SHIPS),
            )
            if device == DEVICE
            else lambda x: module(x).tanh()
        )
        x = batches(1)[0].to(device)
        (one(x).sum() + other(x).sum()).backward()
        return [[p.grad.cpu() for p in module.parameters()]]  # fmt: skip

    assert_same(case(DEVICE, compiled()), case("cpu", lambda m: m))


def test_a_step_is_six_records_and_no_wait():
    module = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)).to(DEVICE)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, fused=True)
    run = torch.compile(lambda x, y: F.mse_loss(module(x), y), dynamic=False,
                        backend=rgpu.compile_backend(**SHIPS))  # fmt: skip
    x, y = batches(2)

    def step():
        optimizer.zero_grad()
        run(x.to(DEVICE), y.to(DEVICE)).backward()
        optimizer.step()

    for _ in range(3):
        step()
    before = rgpu.stats()
    for _ in range(10):
        step()
    after = rgpu.stats()
    spent = {name: after[name] - before[name] for name in ("records", "waits")}
    assert spent["records"] <= 60 and spent["waits"] == 0


def test_graphs_are_listed_and_freed_with_their_functions():
    torch._dynamo.reset()
    gc.collect()
    run = torch.compile(lambda x: x.sin() + 1, backend=rgpu.compile_backend(compiler="eager"))
    for _ in range(3):
        run(torch.ones(4, device=DEVICE))
    (row,) = rgpu.graphs()
    assert (row.state, row.calls, row.compiled_calls) == ("interpreting", 3, 0)
    assert len(row.hash) == 64 and row.size_bytes > 0 and row.name.endswith(".inference")
    held = torch.rgpu.memory_allocated()
    del run
    torch._dynamo.reset()
    gc.collect()
    assert rgpu.graphs() == []
    assert torch.rgpu.memory_allocated() < held


def test_the_default_backend_and_the_registered_name_are_ours():
    x = torch.ones(4, device=DEVICE)
    for options in ({}, {"backend": "rgpu"}):
        torch._dynamo.reset()
        torch.testing.assert_close(
            torch.compile(lambda t: t.cos() * 2, **options)(x).cpu(), torch.ones(4).cos() * 2
        )
        assert graph_calls() == {"inference": 1}
    assert "rgpu" in torch._dynamo.list_backends()


def test_options_of_torch_compile_reach_the_backend():
    x = torch.ones(4, device=DEVICE)
    backend = rgpu.compile_backend()
    torch.compile(lambda t: t + 1, backend=backend, options={"compiler": "eager"})(x)
    torch._dynamo.reset()
    for options, text in [
        ({"options": {"triton": True}}, "has no option triton"),
        ({"options": {"fallback": "no"}}, "must be one of 'eager', 'error'"),
        ({"mode": "max-autotune"}, "mode is 'max-autotune', but must be one of 'default'"),
    ]:
        torch._dynamo.reset()
        with pytest.raises(Exception, match=text):
            torch.compile(lambda t: t + 1, backend=backend, **options)(x)


def test_an_option_that_does_not_exist_lists_those_that_do():
    for name, choice in [("compiler", "'inductor', 'eager'"), ("mode", "'default'"),
                         ("fallback", "'eager', 'error'")]:  # fmt: skip
        with pytest.raises(ValueError, match=f"{name} is 'fast', but must be one of {choice}"):
            rgpu.compile_backend(**{name: "fast"})


def test_an_operator_of_a_library_runs_here_with_a_warning_or_is_an_error():
    @torch.library.custom_op("rgpu_tests::shift", mutates_args=())
    def shift(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @shift.register_fake
    def _(x):
        return torch.empty_like(x)

    x = torch.ones(4, device=DEVICE)
    run = torch.compile(lambda t: shift(t * 2) * 3, backend=rgpu.compile_backend(compiler="eager"))
    with pytest.warns(UserWarning, match="cannot be sent to the server: .* rgpu_tests::shift"):
        result = run(x)
    assert result.tolist() == [9] * 4
    torch._dynamo.reset()
    run = torch.compile(lambda t: shift(t * 2) * 3,
                        backend=rgpu.compile_backend(**SHIPS))  # fmt: skip
    with pytest.raises(Exception, match='rgpu_tests::shift.*fallback="eager"'):
        run(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.nonzero().sum(),
        lambda x: x[x > 0].sum(),
        lambda x: torch.unique(x).sum(),
        lambda x: x * x.sum().item(),
    ],
)
def test_sizes_and_values_that_depend_on_data_break_the_graph(function):
    x = batches(1)[0]
    run = torch.compile(function, backend=rgpu.compile_backend(compiler="eager"))
    torch.testing.assert_close(run(x.to(DEVICE)).cpu(), function(x))


def test_sizes_that_depend_on_data_inside_a_graph_are_named():
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    try:
        run = torch.compile(lambda x: x.nonzero() + 1,
                            backend=rgpu.compile_backend(compiler="eager"))  # fmt: skip
        with pytest.warns(UserWarning, match="aten::nonzero .*depends on the values"):
            result = run(torch.eye(3, device=DEVICE))
        assert result.tolist() == (torch.eye(3).nonzero() + 1).tolist()
    finally:
        torch._dynamo.config.capture_dynamic_output_shape_ops = False


def test_an_error_inside_a_graph_names_the_op_and_its_line():
    def function(table, ids):
        return table[ids] * 2  # The line.

    run = torch.compile(function, backend=rgpu.compile_backend(compiler="eager"))
    result = run(torch.ones(4, device=DEVICE), torch.tensor([1, 9], device=DEVICE))
    with pytest.raises(Exception, match=r"aten::index.Tensor, from .*test_device_compile.py:\d+"):
        result.cpu()


def test_second_derivatives_are_refused_as_autograd_refuses_them():
    module = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).to(DEVICE)
    x = batches(1)[0].to(DEVICE).requires_grad_()
    loss = compiled()(module)(x).sum()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()
