"""Nothing waits unless the program asks for a value: waits, records and bytes, counted.

rgpu's own count of waits is held against what a relay sees: how often the flow of data turned.
"""

import copy
import json

import pytest
import rgpu
import torch
import torch.nn.functional as F
from device_models import gpt, token_batches, token_loss
from device_parity import DEVICE
from torch import nn

# The training program of the README, word for word.
PROGRAM = """
import rgpu, torch
from torch import nn
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).to("rgpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(64, 16).to("rgpu"); target = torch.randn(64, 1).to("rgpu")
for step in range(100):
    optimizer.zero_grad()
    loss = (model(x) - target).square().mean()
    loss.backward()
    optimizer.step()
    if step % 10 == 0: print(step, loss.item())
print("Final loss:", loss.item())
"""
COUNTED = PROGRAM + "import json; print(json.dumps(rgpu.stats()))"


class Counted:
    """What the session's counters gained inside the block; `counted.waits`, `counted.records` …"""

    def __enter__(self):
        self._before = rgpu.stats()
        return self

    def __exit__(self, *_):
        after = rgpu.stats()
        self.all = {name: after[name] - self._before[name] for name in after}

    def __getattr__(self, name):
        return self.all[name]


@pytest.fixture(autouse=True)
def quiet_session():
    """Begin connected, with nothing on its way."""
    torch.ones(1, device=DEVICE)
    rgpu.synchronize()
    yield
    rgpu.synchronize()


def test_training_program_waits_eleven_times(run_snippet):
    result = run_snippet(COUNTED)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert len(lines) == 12 and lines[10].startswith("Final loss:")
    assert json.loads(lines[-1])["waits"] == 11


def test_no_wait_is_hidden_from_the_count(run_snippet, opserver, relay_to):
    # With the policy `sync` data flows only when somebody waits, so that each wait is one turn;
    # beside them the handshake.
    relay = relay_to(opserver.address, rtt_ms=4)
    result = run_snippet(COUNTED, server=relay.address, env={"RGPU_FLUSH": "sync"})
    waits = json.loads(result.stdout.splitlines()[-1])["waits"]
    relay.stop()
    turns = json.loads(relay.last_line)["turns"]
    assert waits <= turns <= waits + 1


def test_thousand_ops_without_a_read_wait_for_nothing():
    x = torch.ones(8, 8, device=DEVICE)
    with Counted() as counted:
        for _ in range(500):
            x = x + 1
            x.mul_(0.5)
    assert (counted.waits, counted.records) == (0, 1000)
    assert torch.allclose(x.cpu(), torch.ones(8, 8))


READS = {
    "print": print,
    "repr": repr,
    "cpu": lambda x: x.cpu(),
    "cpu_of_a_view": lambda x: x.t()[1:].cpu(),
    "cpu_in_another_dtype": lambda x: x.to("cpu", torch.double),
    "copy_to_host": lambda x: torch.zeros(4, 8).copy_(x),
    "tolist": lambda x: x.half().tolist(),
    "item": lambda x: x[3, 2].item(),
    "bool": lambda x: bool((x > 0).any()),
    "format": lambda x: f"{x.sum():.2f}",
    "equal": lambda x: torch.equal(x, x + 1),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "unique": lambda x: x.unique(),
    "synchronize": lambda x: rgpu.synchronize(),
    "accelerator_synchronize": lambda x: torch.accelerator.synchronize(),
}


@pytest.mark.parametrize("name", READS)
def test_reading_waits_once(name, capsys):
    x = torch.arange(32.0, device=DEVICE).view(4, 8)
    with Counted() as counted:
        READS[name](x)
    assert counted.waits == 1


def enter_and_leave(context):
    with context:
        pass


QUIET = {
    "upload": lambda x: torch.randn(1000).to(DEVICE),
    "make_from_list": lambda x: torch.tensor([1, 2], device=DEVICE),
    "convert": lambda x: x.to(DEVICE, torch.half),
    "host_index": lambda x: x[torch.tensor([0, 2])],
    "host_scalar": lambda x: x * torch.tensor(2.0),
    "assign": lambda x: x.__setitem__(0, 5),
    "copy_from_host": lambda x: x.copy_(torch.ones(32)),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1),
    "geometry": lambda x: (x.size(), x.is_contiguous(), x.untyped_storage().nbytes()),
    "random": lambda x: (torch.randn(4, device=DEVICE), torch.randperm(9, device=DEVICE)),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "dropout": lambda x: F.dropout(x, 0.5),
    "seed": lambda x: torch.manual_seed(3),
    "arange": lambda x: torch.arange(7, device=DEVICE),
    "sort": lambda x: (x.sort(), x.max(0), x.topk(3)),
    "inverse": lambda x: torch.linalg.inv(x + torch.eye(32, device=DEVICE)),
    "views": lambda x: x.split(8)[1].t_().unsqueeze_(0).squeeze_(),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "cat": lambda x: torch.cat([x, x]),
    "module": lambda x: nn.Linear(32, 4).to(DEVICE)(x),
    "resize": lambda x: x.clone().resize_(5),
    "event": lambda x: torch.Event(device=DEVICE).record(),
    "stream": lambda x: torch.accelerator.current_stream(),
    "lstm": lambda x: nn.LSTM(32, 4, device=DEVICE)(x),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.expand(2, 2, 32, 32)] * 3, None, 0.1),
    "scatter": lambda x: x.scatter_(0, torch.zeros(1, 32, device=DEVICE).long(), 1.0),
    "autocast": lambda x: enter_and_leave(torch.autocast(DEVICE)),
    "device_context": lambda x: enter_and_leave(torch.rgpu.device(0)),
    "loss": lambda x: F.cross_entropy(x, torch.arange(32, device=DEVICE)),
    "deepcopy": lambda x: copy.deepcopy(x),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_needs_no_answer_waits_for_nothing(name):
    x = torch.randn(32, 32).to(DEVICE)
    with Counted() as counted:
        QUIET[name](x)
    assert counted.waits == 0


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_training_steps_wait_for_nothing(name):
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(), nn.Linear(32, 4))
    optimizer = getattr(torch.optim, name)(model.to(DEVICE).parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    with Counted() as counted:
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(
                model(torch.randn(8, 16).to(DEVICE)), torch.arange(8).to(DEVICE) % 4
            )
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    assert counted.waits == 0
    assert loss.isfinite().item()


def records(action) -> int:
    """How many records the action takes once everything about it is known."""
    action()
    with Counted() as counted:
        action()
    return counted.records


def test_linear_forward_and_backward_take_at_most_six_records():
    layer, x = nn.Linear(32, 32).to(DEVICE), torch.randn(32, 32).to(DEVICE)

    def forward_and_backward():
        layer.zero_grad()
        layer(x).sum().backward()

    assert records(forward_and_backward) <= 6


@pytest.mark.parametrize("fused,limit", [(None, 8), (True, 2)])
def test_adamw_over_twenty_parameters_takes_few_records(fused, limit):
    parameters = [nn.Parameter(torch.randn(8, 8).to(DEVICE)) for _ in range(20)]
    for p in parameters:
        p.grad = torch.ones_like(p)
    optimizer = torch.optim.AdamW(parameters, fused=fused)
    assert records(optimizer.step) <= limit


@pytest.fixture(scope="module")
def gpt_steps():
    """Counters of ten steady GPT steps with the layers of the README's, smaller tensors."""
    torch.manual_seed(0)
    model = gpt(layers=4, width=16, heads=4, block=64).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def steps(count):
        for x, y in token_batches(count, batch=16, block=64):
            optimizer.zero_grad()
            loss = token_loss(model, x.to(DEVICE), y.to(DEVICE))
            loss.backward()
            optimizer.step()
        return loss

    steps(3).item()
    with Counted() as counted:
        steps(10).item()
    return counted


def test_gpt_step_takes_at_most_150_records(gpt_steps):
    assert gpt_steps.records / 10 <= 150
    assert gpt_steps.templates == 0


def test_gpt_step_takes_at_most_ten_kilobytes(gpt_steps):
    # Tokens and targets, and the one that backward() begins with.
    assert gpt_steps.payload_bytes_out == 10 * (2 * 16 * 64 * 8 + 4)
    assert (gpt_steps.bytes_out - gpt_steps.payload_bytes_out) / 10 <= 10_000


def test_gpt_steps_wait_only_for_what_is_read(gpt_steps):
    assert (gpt_steps.waits, gpt_steps.stalls) == (1, 0)


def test_waits_are_listed_with_their_lines():
    x = torch.ones(3, device=DEVICE)
    rgpu.reset_stats()
    for _ in range(3):
        x.sum().item()
    x.tolist()
    found = {wait.line.rpartition("/")[2]: wait.count for wait in rgpu.waits()}
    assert sorted(found.values()) == [1, 3]
    assert all(line.startswith("test_device_waits.py:") for line in found)
    assert all(line.endswith("in test_waits_are_listed_with_their_lines") for line in found)
    assert rgpu.stats()["waits"] == 4
    rgpu.reset_stats()
    assert rgpu.waits() == [] and rgpu.stats()["waits"] == 0


def test_messages_are_records_and_frames_are_fewer():
    with Counted() as counted:
        x = torch.ones(4, device=DEVICE)
        for _ in range(100):
            x = x * 1.5
        x.cpu()
    assert counted.messages == counted.records >= 101
    assert 1 <= counted.frames <= counted.records and counted.frees >= 99
    assert counted.bytes_in >= counted.payload_bytes_in == 16
