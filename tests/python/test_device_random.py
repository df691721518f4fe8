"""Random numbers of device rgpu: one seed fixes them, and nothing about them waits."""

import pytest
import rgpu
import torch
import torch.nn.functional as F
from device_parity import DEVICE
from torch.utils.checkpoint import checkpoint

DRAWS = {
    "randn": lambda g: torch.randn(5, device=DEVICE, generator=g),
    "rand": lambda g: torch.rand(3, 2, device=DEVICE, generator=g),
    "randint": lambda g: torch.randint(0, 100, (9,), device=DEVICE, generator=g),
    "randperm": lambda g: torch.randperm(20, device=DEVICE, generator=g),
    "uniform": lambda g: torch.empty(6, device=DEVICE).uniform_(generator=g),
    "normal": lambda g: torch.empty(6, device=DEVICE).normal_(2, 3, generator=g),
    "exponential": lambda g: torch.empty(6, device=DEVICE).exponential_(generator=g),
    "geometric": lambda g: torch.empty(6, device=DEVICE).geometric_(0.2, generator=g),
    "cauchy": lambda g: torch.empty(6, device=DEVICE).cauchy_(generator=g),
    "log_normal": lambda g: torch.empty(6, device=DEVICE).log_normal_(generator=g),
    "random": lambda g: torch.empty(6, device=DEVICE).random_(1000, generator=g),
    "bernoulli": lambda g: torch.full((64,), 0.5, device=DEVICE).bernoulli(generator=g),
    "bernoulli_in_place": lambda g: torch.empty(64, device=DEVICE).bernoulli_(0.5, generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(30, device=DEVICE), 9, generator=g),
    "poisson": lambda g: torch.poisson(torch.full((9,), 40.0, device=DEVICE), generator=g),
    "normal_of_tensors": lambda g: torch.normal(torch.zeros(4, device=DEVICE), 1.0, generator=g),
}
# These take no generator: the default one alone.
DRAWS_OF_THE_DEFAULT = {
    "dropout": lambda: F.dropout(torch.ones(200, device=DEVICE), 0.5),
    "feature_dropout": lambda: F.dropout1d(torch.ones(64, 3, device=DEVICE), 0.5),
    "alpha_dropout": lambda: F.alpha_dropout(torch.ones(200, device=DEVICE), 0.5, training=True),
    "rand_like": lambda: torch.rand_like(torch.ones(5, device=DEVICE)),
    "randint_like": lambda: torch.randint_like(torch.ones(9, device=DEVICE), 1000),
    "rrelu": lambda: F.rrelu(-torch.ones(50, device=DEVICE), training=True),
    "gumbel_softmax": lambda: F.gumbel_softmax(torch.ones(50, device=DEVICE)),
    "attention": lambda: F.scaled_dot_product_attention(
        *[torch.ones(1, 2, 16, 8, device=DEVICE)] * 2,
        torch.eye(16, 8, device=DEVICE).expand(1, 2, 16, 8),
        dropout_p=0.5),
    "lstm_dropout": lambda: torch.lstm(
        torch.ones(4, 2, 3, device=DEVICE), [torch.zeros(2, 2, 3, device=DEVICE)] * 2,
        [torch.ones(12, 3, device=DEVICE)] * 4, False, 2, 0.5, True, False, False)[0],
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWS)
def test_seed_fixes_the_numbers_and_draws_differ(name):
    draw = DRAWS[name]
    torch.manual_seed(7)
    first, second = draw(None).tolist(), draw(None).tolist()
    torch.manual_seed(7)
    again = draw(None).tolist()
    torch.manual_seed(8)
    other = draw(None).tolist()
    assert again == first and second != first and other != first


@pytest.mark.parametrize("name", DRAWS)
def test_generator_fixes_the_numbers_and_leaves_the_default_one_alone(name):
    draw = DRAWS[name]
    generator = torch.Generator(device=DEVICE).manual_seed(11)
    state = torch.rgpu.get_rng_state()
    first, later = draw(generator).tolist(), draw(generator).tolist()
    assert torch.equal(torch.rgpu.get_rng_state(), state)
    assert draw(torch.Generator(device=DEVICE).manual_seed(11)).tolist() == first
    assert later != first


@pytest.mark.parametrize("name", DRAWS_OF_THE_DEFAULT)
def test_seed_fixes_ops_that_take_no_generator(name):
    draw = DRAWS_OF_THE_DEFAULT[name]
    torch.manual_seed(7)
    first, second = draw().tolist(), draw().tolist()
    torch.manual_seed(7)
    assert draw().tolist() == first and second != first


def test_draws_have_the_right_distribution():
    torch.manual_seed(0)
    normal = torch.randn(20000, device=DEVICE).cpu()
    uniform = torch.rand(20000, device=DEVICE).cpu()
    kept = (F.dropout(torch.ones(20000, device=DEVICE), 0.3) != 0).float().mean().item()
    assert abs(normal.mean().item()) < 0.05 and abs(normal.std().item() - 1) < 0.05
    assert abs(uniform.mean().item() - 0.5) < 0.02 and uniform.min() >= 0 and uniform.max() < 1
    assert abs(kept - 0.7) < 0.02
    assert sorted(torch.randperm(50, device=DEVICE).tolist()) == list(range(50))


def test_successive_draws_do_not_overlap():
    torch.manual_seed(1)
    sizes = (1, 3, 4, 5, 7, 8, 100, 1000)
    drawn = torch.cat([torch.rand(size, dtype=torch.double, device=DEVICE) for size in sizes])
    assert drawn.unique().numel() == sum(sizes)


def test_another_process_draws_the_same_numbers_and_disturbs_none(run_snippet):
    code = """
import rgpu, torch
torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout()).to("rgpu")
said = [model(torch.randn(3, 4, device="rgpu")).tolist(), torch.randperm(9, device="rgpu").tolist()]
"""
    here: dict = {}
    exec(code, here)
    later = torch.rand(4, device=DEVICE).tolist()
    exec(code, here)
    there = run_snippet(code + "print(said)", env={"RGPU_FLUSH": "per_op"})
    assert (there.returncode, there.stderr) == (0, "")
    assert there.stdout == f"{here['said']}\n"
    assert torch.rand(4, device=DEVICE).tolist() == later


def test_state_can_be_taken_and_put_back():
    torch.manual_seed(2)
    torch.rand(3, device=DEVICE)
    state = torch.rgpu.get_rng_state()
    assert (state.device.type, state.dtype) == ("cpu", torch.uint8)
    first = torch.rand(3, device=DEVICE).tolist()
    torch.rgpu.set_rng_state(state)
    assert torch.rand(3, device=DEVICE).tolist() == first
    torch.rgpu.set_rng_state_all(torch.rgpu.get_rng_state_all())
    assert torch.rgpu.initial_seed() == 2


def test_state_of_a_generator_can_be_taken_and_put_back():
    generator = torch.Generator(device=DEVICE)
    generator.manual_seed(11)
    assert generator.device.type == DEVICE and generator.initial_seed() == 11
    state = generator.get_state()
    first = torch.rand(3, device=DEVICE, generator=generator).tolist()
    generator.set_state(state)
    assert torch.rand(3, device=DEVICE, generator=generator).tolist() == first
    twin = generator.clone_state() if hasattr(generator, "clone_state") else generator
    assert torch.equal(twin.get_state(), generator.get_state())
    with pytest.raises((RuntimeError, TypeError)):
        generator.set_state(torch.zeros(3, dtype=torch.uint8))


def test_forked_state_is_put_back():
    torch.manual_seed(4)
    first = torch.rand(3, device=DEVICE).tolist()
    torch.manual_seed(4)
    with torch.random.fork_rng(devices=[0], device_type=DEVICE):
        torch.manual_seed(99)
        torch.rand(3, device=DEVICE)
    assert torch.rand(3, device=DEVICE).tolist() == first


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_dropout_has_the_same_mask(reentrant):
    x = torch.ones(256, device=DEVICE, requires_grad=True)
    y = checkpoint(F.dropout, x, use_reentrant=reentrant)
    torch.rand(5, device=DEVICE)
    y.sum().backward()
    mask = y.detach().cpu() != 0
    assert torch.equal(x.grad.cpu() != 0, mask) and 0 < mask.sum() < 256


def test_recomputed_layers_give_the_gradients_of_plain_ones():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 8), torch.nn.Dropout(0.4), torch.nn.GELU(), torch.nn.Linear(8, 8)
    ).to(DEVICE)
    x = torch.randn(4, 8).to(DEVICE)
    gradients = []
    for run in (model, lambda x: checkpoint(model, x, use_reentrant=False)):
        model.zero_grad()
        torch.manual_seed(6)
        run(x).square().sum().backward()
        gradients.append([p.grad.cpu() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_seeding_and_states_are_local():
    torch.ones(1, device=DEVICE)
    rgpu.synchronize()
    before = rgpu.stats()
    generator = torch.Generator(device=DEVICE)
    for seed in range(100):
        torch.manual_seed(seed)
        torch.rgpu.set_rng_state(torch.rgpu.get_rng_state())
        generator.set_state(generator.manual_seed(seed).get_state())
        torch.rgpu.initial_seed(), torch.rgpu.seed()
    after = rgpu.stats()
    assert (after["records"], after["waits"]) == (before["records"], before["waits"])


def test_drawing_waits_for_nothing():
    torch.ones(1, device=DEVICE)
    rgpu.synchronize()
    before = rgpu.stats()["waits"]
    for draw in DRAWS.values():
        draw(None)
    for draw in DRAWS_OF_THE_DEFAULT.values():
        draw()
    assert rgpu.stats()["waits"] == before
