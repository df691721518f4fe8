"""Several devices: rgpu:0, rgpu:1 and rgpu:2 of one CPU server."""

import io
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import rgpu
import torch
from rgpu_launch.services import start_opserver
from torch.nn.parallel import comm


@pytest.fixture(scope="module", autouse=True)
def three_devices(opserver):
    """A session with a server that has three devices, for the tests of this file."""
    with start_opserver("cpu", threads=1, devices=3) as service:
        rgpu.connect(service.address)
        yield service
        rgpu.connect(opserver.address)


@pytest.fixture(autouse=True)
def first_device():
    """Begin and end on device 0."""
    torch.rgpu.set_device(0)
    yield
    torch.rgpu.set_device(0)


def test_the_server_says_how_many_there_are():
    assert torch.rgpu.device_count() == torch.accelerator.device_count() == 3
    assert len(rgpu.server()["devices"]) == 3
    assert torch.rgpu.get_device_properties("rgpu:2").total_memory > 0
    assert torch.rgpu.get_device_name(1) == "cpu"


def test_results_are_where_their_arguments_are():
    for index in range(3):
        x = torch.arange(4.0, device=f"rgpu:{index}")
        assert x.device.index == (x * 2).device.index == x.sum().device.index == index
        assert torch.zeros_like(x).device == x.new_empty(3).device == x.device
        assert x[torch.tensor([1, 2])].device == x.device
        assert torch.nonzero(x).device == x.device and (x[x > 1]).device == x.device
        assert (x * torch.tensor(2.0)).tolist() == [0.0, 2.0, 4.0, 6.0]
        assert torch.split(x, 2)[1].device == x.device


def test_the_current_device_is_the_threads_own():
    def made():
        return [
            torch.empty(1, device="rgpu").device.index,
            torch.rand(1, device="rgpu").device.index,
            torch.ones(1).to("rgpu").device.index,
            torch.ones(1).rgpu().device.index,
        ]

    torch.rgpu.set_device(1)
    assert made() == [1] * 4
    with torch.rgpu.device(2):
        assert made() == [2] * 4
        with torch.rgpu.device_of(torch.ones(1, device="rgpu:0")):
            assert made() == [0] * 4
        assert torch.accelerator.current_device_index() == 2
    assert torch.rgpu.current_device() == 1
    seen = []
    thread = threading.Thread(target=lambda: seen.extend(made()))
    thread.start()
    thread.join()
    assert seen == [0] * 4
    with torch.accelerator.device_index(0):
        assert made() == [0] * 4
    torch.accelerator.set_device_index(2)
    assert made() == [2] * 4


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: a + b,
        lambda a, b: a.add_(b),
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.mm(a[:, None], b[None]),
        lambda a, b: torch.add(a, a, out=b),
        lambda a, b: a[b.long()],
        lambda a, b: torch.nn.functional.linear(a, b[None]),
        lambda a, b: torch.equal(a, b),
    ],
)
def test_tensors_of_two_devices_in_one_op_raise_at_the_call(call):
    a, b = torch.ones(2, device="rgpu:0"), torch.ones(2, device="rgpu:1")
    for _ in range(2):
        with pytest.raises(
            RuntimeError,
            match="Expected all tensors to be on the same device, but found at least two devices, "
            "rgpu:[01] and rgpu:[01]!",
        ):
            call(a, b)
    assert (a + a).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.ones(2, device="rgpu:3"),
        lambda: torch.ones(2).to("rgpu:3"),
        lambda: torch.ones(2, device="rgpu").to("rgpu:3"),
        lambda: torch.rgpu.set_device(3),
        lambda: torch.accelerator.set_device_index(3),
        lambda: torch.rgpu.current_stream(3),
        lambda: torch.rgpu.memory_allocated(3),
        lambda: torch.rgpu.get_device_properties(3),
        lambda: torch.rgpu.get_rng_state(3),
        lambda: torch.rgpu.synchronize(3),
        lambda: torch.rgpu.reset_peak_memory_stats(3),
        lambda: torch.Stream(device="rgpu:3"),
    ],
)
def test_a_device_that_the_server_lacks_is_an_error_of_the_call(use):
    message = "invalid device ordinal: rgpu:3 does not exist, the server has 3 devices"
    with pytest.raises(RuntimeError, match=message):
        use()
    assert torch.ones(2, device="rgpu:2").sum().item() == 2


def test_copies_go_between_devices_both_ways_and_wait_for_nothing():
    x = torch.arange(6.0, device="rgpu:1").view(2, 3)
    torch.ones(1, device="rgpu:2")
    rgpu.synchronize()
    rgpu.reset_stats()
    y = x.to("rgpu:2")
    back = torch.empty(3, 2, device="rgpu:0").copy_(y.t())
    half = x.to("rgpu:0", torch.float16)
    back += 1
    into = torch.zeros(4, 3, device="rgpu:2")
    into[1:3].copy_(x)
    wide = torch.zeros(2, 3, device="rgpu:0")
    wide.copy_(torch.full((3,), 5.0, device="rgpu:2"))  # Broadcast.
    assert rgpu.stats()["waits"] == 0
    assert y.tolist() == x.tolist() and y.device.index == 2
    assert back.tolist() == (x.cpu().t() + 1).tolist()
    assert half.tolist() == x.tolist() and half.device.index == 0
    assert into.tolist()[1:3] == x.tolist() and into.sum().item() == 15
    assert wide.tolist() == [[5.0] * 3] * 2
    assert x.conj().to("rgpu:0").tolist() == x.tolist()
    z = torch.tensor([1 + 2j], device="rgpu:0").conj().to("rgpu:1")
    assert z.tolist() == [1 - 2j]


def test_copies_keep_the_order_of_both_devices():
    side = torch.rgpu.Stream(device="rgpu:1")
    x = torch.eye(200, device="rgpu:0")
    results = []
    for i in range(100):
        y = x
        for _ in range(3):
            y = y @ x  # Takes a while, on device 0.
        y = y * i
        with torch.rgpu.stream(side):
            copy = y.to("rgpu:1")
        y.fill_(-1)  # Not before it was copied.
        with torch.rgpu.stream(side):
            results.append(copy.sum())
        del copy, y
    assert [r.item() for r in results] == [200.0 * i for i in range(100)]


def test_a_module_is_trained_across_two_devices():
    torch.manual_seed(0)
    first, second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    x = torch.randn(5, 8)
    second(first(x).relu()).square().sum().backward()
    expected = [p.grad.clone() for p in (*first.parameters(), *second.parameters())]
    first.to("rgpu:1").zero_grad()
    second.to("rgpu:2").zero_grad()
    optimizer = torch.optim.AdamW([*first.parameters(), *second.parameters()])
    rgpu.reset_stats()
    hidden = first(x.to("rgpu:1")).relu()
    out = second(hidden.to("rgpu:2"))
    out.square().sum().backward()
    total = torch.nn.utils.clip_grad_norm_([*first.parameters(), *second.parameters()], 1e9)
    optimizer.step()
    assert rgpu.stats()["waits"] == 0
    got = [p.grad for p in (*first.parameters(), *second.parameters())]
    assert [g.device.index for g in got] == [1, 1, 2, 2]
    for g, e in zip(got, expected, strict=True):
        torch.testing.assert_close(g.cpu(), e)
    assert total.item() > 0


def test_gradients_that_meet_come_from_two_devices():
    x = torch.ones(3, device="rgpu:0", requires_grad=True)
    loss = (
        (x * 2).sum() + (x.to("rgpu:1") * 3).sum().to("rgpu:0") + (x.to("rgpu:2") ** 2).sum().to(0)
    )
    loss.backward()
    assert x.grad.device.index == 0 and x.grad.tolist() == [7.0] * 3


def test_recurrent_nets_and_attention_run_on_any_device():
    q = torch.randn(1, 2, 8, 4, device="rgpu:1", requires_grad=True)
    out = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    out.sum().backward()
    assert out.device.index == q.grad.device.index == 1
    lstm = torch.nn.LSTM(3, 5).to("rgpu:2")
    y, (h, c) = lstm(
        torch.nn.utils.rnn.pack_padded_sequence(
            torch.randn(4, 2, 3).to("rgpu:2"), torch.tensor([4, 2])
        )
    )
    y.data.sum().backward()
    assert h.device.index == lstm.weight_ih_l0.grad.device.index == 2
    assert lstm.weight_ih_l0.grad.abs().sum().item() > 0


def test_each_device_has_random_numbers_of_its_own():
    def draw(index):
        return torch.rand(4, device=f"rgpu:{index}").tolist()

    torch.manual_seed(7)
    assert draw(0) == draw(1) == draw(2)  # Seeded alike, as CUDA's.
    states = torch.rgpu.get_rng_state_all()
    assert len(states) == 3
    first = [draw(i) for i in range(3)]
    torch.rgpu.set_rng_state(states[1], 1)
    assert draw(1) == first[1] and draw(0) != first[0]
    torch.rgpu.set_rng_state_all(states)
    assert [draw(i) for i in range(3)] == first
    with torch.rgpu.device(2):
        torch.rgpu.manual_seed(7)
        assert torch.rgpu.initial_seed() == 7
    before = torch.rgpu.get_rng_state("rgpu:0")
    torch.rgpu.manual_seed_all(9)
    assert [torch.rgpu.get_rng_state(i)[0].item() for i in range(3)] == [9] * 3
    assert torch.rgpu.get_rng_state("rgpu:0").tolist() != before.tolist()
    mine = torch.Generator("rgpu:1").manual_seed(7)
    assert (
        torch.rand(4, device="rgpu:1", generator=mine).tolist()
        == torch.rand(
            4, device="rgpu:0", generator=torch.Generator("rgpu:0").manual_seed(7)
        ).tolist()
    )
    with torch.random.fork_rng([0, 1, 2], device_type="rgpu"):
        kept = [draw(i) for i in range(3)]
    assert [draw(i) for i in range(3)] == kept


def test_seeding_asks_the_server_nothing():
    torch.ones(1, device="rgpu")
    rgpu.synchronize()
    rgpu.reset_stats()
    torch.manual_seed(3)
    torch.rgpu.manual_seed(4)
    drawn = torch.rand(3, device="rgpu")
    assert rgpu.stats()["waits"] == 0
    assert drawn.shape == (3,)


def test_streams_and_events_belong_to_devices():
    one = torch.rgpu.Stream(device="rgpu:1")
    two = torch.Stream(device="rgpu:2")
    assert one.device.index == 1 and two.device.index == 2
    assert torch.rgpu.default_stream(1) == torch.rgpu.current_stream(1) != one
    with torch.rgpu.stream(one):
        assert torch.rgpu.current_device() == 1 and torch.rgpu.current_stream() == one
        x = torch.eye(300, device="rgpu") * 3
        for _ in range(10):
            x = x @ torch.eye(300, device="rgpu")
        mark = torch.rgpu.Event(enable_timing=True)
        mark.record()
    assert torch.rgpu.current_device() == 0 and torch.rgpu.current_stream(1) != one
    two.wait_event(mark)
    with torch.rgpu.stream(two):
        assert torch.rgpu.current_stream("rgpu:1") == torch.rgpu.default_stream(1)
        late = torch.rgpu.Event(enable_timing=True)
        late.record()
    torch.rgpu.synchronize(2)
    assert one.query() and two.query() and mark.query()
    assert mark.elapsed_time(late) >= 0
    assert x.device.index == 1 and x[0, 0].item() == 3
    pool = {torch.rgpu.Stream(device=1).stream_id for _ in range(32)}
    assert len(pool) == 32


def test_a_failure_on_one_device_is_told_when_it_is_synchronized():
    broken = torch.arange(3, device="rgpu:2")[torch.tensor([9])]
    with pytest.raises((IndexError, RuntimeError), match="index"):
        torch.rgpu.current_stream(2).synchronize()
    torch.rgpu.synchronize()  # It was told.
    del broken


def test_devices_have_memory_of_their_own():
    before = [torch.rgpu.memory_allocated(i) for i in range(3)]
    x = torch.ones(1000, device="rgpu:1")
    copy = x.to("rgpu:2")
    assert [torch.rgpu.memory_allocated(i) - b for i, b in enumerate(before)] == [0, 4000, 4000]
    torch.rgpu.reset_peak_memory_stats(2)
    del x
    assert torch.rgpu.memory_allocated("rgpu:1") == before[1]
    assert torch.rgpu.max_memory_allocated(1) >= 4000 + before[1]
    with torch.rgpu.device(2):
        assert (
            torch.rgpu.memory_allocated() == before[2] + 4000 == torch.rgpu.max_memory_allocated()
        )
    del copy


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (None, 1),
        ("rgpu:2", 2),
        ({"rgpu:1": "rgpu:0"}, 0),
        ({"rgpu:0": "rgpu:2"}, 1),
        (torch.device("rgpu", 0), 0),
        ("cpu", None),
        (lambda storage, _place: storage, None),
    ],
)
@pytest.mark.parametrize("weights_only", [True, False])
def test_files_are_loaded_to_where_map_location_says(where, index, weights_only):
    file = io.BytesIO()
    linear = torch.nn.Linear(2, 2).to("rgpu:1")
    torch.save({"w": torch.arange(4.0, device="rgpu:1"), "n": linear.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=where, weights_only=weights_only)
    assert {loaded["w"].device.index, loaded["n"]["weight"].device.index} == {index}
    assert loaded["w"].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_file_of_a_device_that_is_missing_says_so(monkeypatch):
    file = io.BytesIO()
    torch.save(torch.ones(2, device="rgpu:2"), file)
    file.seek(0)
    monkeypatch.setattr(torch.rgpu, "device_count", lambda: 1)
    with pytest.raises(RuntimeError, match="device 2 but.*map_location"):
        torch.load(file)


def test_foreach_ops_over_tensors_of_several_devices_go_one_by_one():
    tensors = [torch.full((2,), float(i), device=f"rgpu:{i}") for i in range(3)]
    rgpu.reset_stats()
    results = torch._foreach_add(tensors, 1)
    torch._foreach_mul_(tensors, 2)
    torch._foreach_copy_([torch.empty(2, device="rgpu:0") for _ in tensors], tensors)
    assert rgpu.stats()["waits"] == 0
    assert [r.device.index for r in results] == [0, 1, 2]
    assert [r.tolist() for r in results] == [[1.0] * 2, [2.0] * 2, [3.0] * 2]
    assert [t.tolist() for t in tensors] == [[0.0] * 2, [2.0] * 2, [4.0] * 2]


def check_data_parallel(device_ids):
    """Forward and backward of a wrapped model against the CPU's, with no wait."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(16, 2)).eval()
    x, other = torch.randn(12, 8), torch.randn(12, 2)
    expected = model(x)
    (expected - other).square().mean().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    parallel = torch.nn.DataParallel(model.to("rgpu"), device_ids=device_ids)
    for inputs in (x.to("rgpu"), x):
        model.zero_grad()
        rgpu.reset_stats()
        out = parallel(inputs)
        assert out.device == torch.device("rgpu:0") and out.shape == (12, 2)
        (out - other.to("rgpu")).square().mean().backward()
        assert rgpu.stats()["waits"] == 0, rgpu.waits()
        torch.testing.assert_close(out.detach().cpu(), expected.detach())
        for p, gradient in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(p.grad.cpu(), gradient)


@pytest.mark.parametrize("device_ids", [None, [0, 1], [0], [0, 2]])
def test_data_parallel_gives_what_one_device_does(device_ids):
    check_data_parallel(device_ids)


def test_data_parallel_with_the_only_device_runs(run_snippet):
    done = run_snippet("""
    import torch, rgpu
    model = torch.nn.DataParallel(torch.nn.Linear(8, 2).to("rgpu"))
    assert model(torch.ones(3, 8)).sum().backward() is None
    assert model.module.bias.grad.tolist() == [3.0, 3.0]
    """)
    assert done.returncode == 0, done.stderr


def test_scatter_gather_and_broadcast_do_what_they_do_for_cuda():
    x = torch.arange(10.0).view(5, 2)
    parts = comm.scatter(x, [1, 2], chunk_sizes=[2, 3])
    assert [(p.device.index, p.shape[0]) for p in parts] == [(1, 2), (2, 3)]
    assert comm.gather(parts, destination="cpu").tolist() == x.tolist()
    assert comm.gather(parts, destination=0).device.index == 0
    out = [torch.empty(1, 2, device="rgpu:1"), torch.empty(4, 2, device="rgpu:0")]
    comm.scatter(x, out=out)
    assert out[1].tolist() == x[1:].tolist()
    copies = comm.broadcast(x, ["rgpu:2", "rgpu:0"])
    assert [c.device.index for c in copies] == [2, 0] and copies[0].tolist() == x.tolist()
    rows = comm.broadcast_coalesced([x.to("rgpu:0"), x.to("rgpu:0") + 1], [0, 1])
    assert rows[1][1].device.index == 1 and rows[1][1].tolist() == (x + 1).tolist()
    total = comm.reduce_add([x.to("rgpu:1"), x.to("rgpu:2")], destination=1)
    assert total.device.index == 1 and total.tolist() == (2 * x).tolist()


def test_storages_of_two_devices_do_not_become_one_tensors():
    x, y = torch.ones(2, device="rgpu:0"), torch.ones(2, device="rgpu:1")
    with pytest.raises(RuntimeError, match="the devices must match"):
        x.set_(y.untyped_storage())
    x.data = y
    assert x.device.index == 1 and (x + y).tolist() == [2.0, 2.0]


def test_rgpu_run_starts_a_server_with_several_devices():
    program = "import torch; print(torch.accelerator.device_count(), torch.rgpu.mem_get_info()[1])"
    done = subprocess.run(
        [Path(sys.executable).with_name("rgpu-run"), "--local", "--device", "cpu", "--devices", "2",
         "--memory-limit", "64M", sys.executable, "-c", program],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == ["2", str(64 << 20)], done.stderr
