"""Training on device rgpu gives the CPU's losses, under every flush policy and after any move."""

import threading

import pytest
import rgpu
import torch
import torch.nn.functional as F
from device_models import MODELS, gpt, token_batches, token_loss
from device_parity import DEVICE
from torch import nn

POLICIES = ["per_op", "sync", "bytes=4096", "deadline=200", "adaptive"]


def train(name, device, steps=20, make=None):
    """Losses of `steps` steps, read at the end, from the same weights and batches."""
    torch.manual_seed(1234)
    model, loss_of, batches, optimizer_of = MODELS[name]
    model = (make or model)().to(device)
    optimizer = optimizer_of(model.parameters())
    losses = []
    for x, y in batches(steps):
        optimizer.zero_grad()
        loss = loss_of(model, x.to(device), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu().double()


@pytest.fixture(scope="module")
def cpu_losses():
    return {name: train(name, "cpu") for name in MODELS}


@pytest.fixture
def flush_policy():
    """Sets a flush policy for the test."""
    before = rgpu.flush_policy()
    yield rgpu.set_flush_policy
    rgpu.set_flush_policy(before)


def assert_close(losses, wanted):
    torch.testing.assert_close(losses, wanted, rtol=1e-5, atol=0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", MODELS)
def test_losses_are_the_cpus_under_every_flush_policy(name, policy, flush_policy, cpu_losses):
    flush_policy(policy)
    assert rgpu.flush_policy() == policy
    waits = rgpu.stats()["waits"]
    losses = train(name, DEVICE)
    assert rgpu.stats()["waits"] == waits + 1  # The losses are read at the end.
    assert losses[-1] != losses[0]
    assert_close(losses, cpu_losses[name])


def test_unknown_flush_policy_is_refused_with_the_list(flush_policy):
    for name in ("", "fast", "bytes=", "bytes=-1", "deadline=x", "adaptive "):
        with pytest.raises(ValueError, match="adaptive"):
            flush_policy(name)
    assert rgpu.flush_policy() in POLICIES


def test_tied_weights_stay_tied_when_moved():
    model = gpt(tied=True)
    weight = model.head.weight
    model.to(DEVICE)
    assert model.head.weight is model.tokens.weight is weight and weight.device.type == DEVICE
    assert len(list(model.parameters())) == len({id(p) for p in model.parameters()})
    tied = {"make": lambda: gpt(tied=True)}
    assert_close(train("gpt", DEVICE, **tied), train("gpt", "cpu", **tied))


def test_optimizer_made_before_the_move_drives_the_moved_weights():
    weights = {}
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        model.to(device)
        x = torch.randn(4, 3).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
        weights[device] = model.weight.detach().cpu()
    torch.testing.assert_close(weights[DEVICE], weights["cpu"])


def test_module_moves_after_a_forward_that_tracks_gradients():
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    weight, loss = model[0].weight, model(torch.ones(1, 2)).sum()
    model.to(DEVICE)
    assert model[0].weight is weight and weight.device.type == DEVICE
    on_device = model(torch.ones(1, 2, device=DEVICE)).sum()
    assert torch.allclose(on_device.cpu(), loss)
    model.to("cpu")
    assert model[0].weight is weight and weight.device.type == "cpu"
    assert torch.allclose(model(torch.ones(1, 2)).sum(), loss)


def test_gradients_and_hooks_move_with_their_parameters():
    model = nn.Linear(3, 2)
    seen = []
    model.weight.register_hook(lambda gradient: seen.append(gradient.device.type))
    model(torch.ones(1, 3)).sum().backward()
    model.to(DEVICE)
    assert model.weight.grad.device.type == DEVICE
    model(torch.ones(1, 3, device=DEVICE)).sum().backward()
    assert seen == ["cpu", DEVICE] and model.weight.grad.tolist() == [[2.0] * 3] * 2


def test_lazy_and_empty_modules_materialize_on_the_device():
    lazy = nn.LazyLinear(3).to(DEVICE)
    assert lazy(torch.ones(2, 5, device=DEVICE)).shape == (2, 3)
    assert lazy.weight.shape == (3, 5) and lazy.weight.device.type == DEVICE
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    model.to_empty(device=DEVICE)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    assert model(torch.ones(1, 2, device=DEVICE)).tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize(
    "init", ["xavier_uniform_", "kaiming_normal_", "orthogonal_", "trunc_normal_"]
)
def test_initializers_run_on_the_device(init):
    weight = torch.empty(8, 8, device=DEVICE)
    getattr(nn.init, init)(weight)
    assert weight.isfinite().all().item() and weight.std().item() > 0.01


def test_gradient_accumulation_and_no_grad_evaluation():
    results = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).to(device)
        x = torch.randn(4, 8, 4)
        for part in x:
            (model(part.to(device)).square().mean() / 4).backward()
        model.eval()
        with torch.inference_mode():
            score = model(x[0].to(device)).mean()
        results.append([score.cpu(), *(p.grad.cpu() for p in model.parameters())])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_four_threads_issue_ops_side_by_side():
    results: dict[int, list[float]] = {}

    def work(number):

        x = torch.full((4,), float(number), device=DEVICE)
        w = torch.full((4,), 2.0, device=DEVICE, requires_grad=True)
        for step in range(100):
            x = x + 1
            (x * w).sum().backward()
            if step % 25 == 0:
                x.sum().item()
        results[number] = [*x.tolist(), *w.grad.tolist()]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in range(4):
        gradient = float(sum(number + step for step in range(1, 101)))
        assert results[number] == [number + 100.0] * 4 + [gradient] * 4


def test_threads_that_wait_do_not_stop_each_other():
    x = torch.ones(4, device=DEVICE)
    totals = []

    def read():
        for _ in range(50):
            totals.append((x * 2).sum().item())

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert totals == [8.0] * 200


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_chooses_types_as_on_cuda(dtype):
    x = torch.randn(4, 4).to(DEVICE)
    with torch.autocast(DEVICE, dtype=dtype):
        product = x @ x
        kept = torch.softmax(product, -1)
        with torch.autocast(DEVICE, enabled=False):
            full = x @ x
        joined = torch.cat([product, x])
    assert (product.dtype, kept.dtype, full.dtype) == (dtype, torch.float32, torch.float32)
    assert joined.dtype is torch.float32
    torch.testing.assert_close(product.cpu().float(), full.cpu(), rtol=0.05, atol=0.05)
    with (
        torch.autocast(DEVICE, dtype=dtype),
        pytest.raises(RuntimeError, match="unsafe to autocast"),
    ):
        F.binary_cross_entropy(x.sigmoid(), x.sigmoid())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_autocast_casts_recurrent_networks_as_on_cuda(kind):
    model = kind(4, 8, num_layers=2).to(DEVICE)
    x = torch.randn(3, 2, 4).to(DEVICE)
    packed = nn.utils.rnn.pack_sequence([x[:, 0], x[:2, 1]])
    full, _ = model(x)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        cast, _ = model(x)
        rows, _ = model(packed)
    assert (cast.dtype, rows.data.dtype) == (torch.bfloat16, torch.bfloat16)
    torch.testing.assert_close(cast.float(), full, rtol=0.05, atol=0.05)
    cast.sum().backward()
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}


def test_grad_scaler_steps_and_skips_a_step_that_overflows():
    model = nn.Linear(4, 4).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=256.0)
    changes, scales = [], []
    for factor in (1.0, float("inf"), 1.0):
        before = model.weight.detach().cpu().clone()
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.float16):
            loss = model(torch.ones(2, 4, device=DEVICE)).square().mean() * factor
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        changes.append(not torch.equal(before, model.weight.detach().cpu()))
        scales.append(scaler.get_scale())
    assert changes == [True, False, True] and scales == [256.0, 128.0, 128.0]


def test_training_in_bfloat16_is_near_the_cpus():
    losses = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        model = gpt().to(device, torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for x, y in token_batches(5):
            optimizer.zero_grad()
            loss = token_loss(model, x.to(device), y.to(device)).float()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert abs(losses[0] - losses[1]) < 0.05
