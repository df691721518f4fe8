"""The server's memory: what is counted and freed, and how a program survives running out of it."""

import gc
import re
import threading
import time
from pathlib import Path

import pytest
import rgpu
import torch
from rgpu_launch.services import start_opserver
from test_device_waits import Counted

DEVICE = "rgpu"
MIB = 1 << 20
LIMIT = 64 * MIB


@pytest.fixture(scope="module", autouse=True)
def limited(opserver):
    """A session with a server that lets it hold 64 MiB, for the tests of this file."""
    with start_opserver("cpu", threads=1, memory_limit="64M") as service:
        rgpu.connect(service.address)
        yield service
        rgpu.connect(opserver.address)


@pytest.fixture
def held():
    """How many bytes more are held now than when the test began."""
    gc.collect()
    before = torch.rgpu.memory_allocated()
    return lambda: torch.rgpu.memory_allocated() - before


def mib(count):
    """A tensor of so many MiB, not yet on the server."""
    return torch.empty(count * MIB // 4, device=DEVICE)


def test_what_tensors_hold_is_counted_to_the_byte(held):
    x = torch.ones(1000, device=DEVICE)
    y = x.double()
    assert held() == 4000 + 8000
    view, alias = x[:10], y.view(10, 100)
    assert held() == 4000 + 8000
    del x, y
    assert held() == 4000 + 8000
    del view
    assert held() == 8000
    del alias
    assert held() == 0


def test_peaks_begin_anew_where_they_are_reset():
    torch.rgpu.reset_peak_memory_stats()
    start = torch.rgpu.max_memory_allocated()
    assert start == torch.rgpu.memory_allocated()
    x = mib(4).fill_(1)
    del x
    with Counted() as counted:
        torch.rgpu.reset_peak_memory_stats()
        torch.rgpu.reset_accumulated_memory_stats()
        y = mib(2).fill_(1)
    assert counted.waits == 0
    assert torch.rgpu.max_memory_allocated() == start + 2 * MIB
    assert torch.accelerator.max_memory_allocated() == start + 2 * MIB
    assert torch.rgpu.memory_stats()["allocated_bytes.all.allocated"] == 2 * MIB
    del y
    assert torch.rgpu.max_memory_allocated() == start + 2 * MIB
    assert torch.rgpu.memory_stats()["allocated_bytes.all.freed"] == 2 * MIB


def test_statistics_have_the_keys_of_pytorchs_allocators():
    x = torch.ones(3, device=DEVICE)
    stats = torch.rgpu.memory_stats()
    kinds = ["allocation", "segment", "active", "allocated_bytes", "reserved_bytes"]
    for kind in [*kinds, "active_bytes", "requested_bytes", "inactive_split_bytes"]:
        for pool in ("all", "small_pool", "large_pool"):
            for what in ("current", "peak", "allocated", "freed"):
                assert stats[f"{kind}.{pool}.{what}"] >= 0
    assert stats["num_ooms"] >= 0 and stats["num_alloc_retries"] == 0
    assert stats["allocation.all.current"] >= 1
    assert stats["reserved_bytes.all.current"] >= stats["allocated_bytes.all.current"] >= 12
    assert stats == dict(torch.accelerator.memory_stats())
    del x


def test_the_summary_says_what_is_held():
    x = mib(16).fill_(0)
    text = torch.rgpu.memory_summary()
    held = torch.rgpu.memory_allocated() // MIB
    assert re.search(rf"^Allocated memory +{held} MiB", text, re.MULTILINE), text
    assert "Tot Freed" in text and "Tot Freed" not in torch.rgpu.memory_summary(abbreviated=True)
    del x


def test_emptying_the_cache_gives_back_what_is_kept_and_waits_for_nothing():
    x = mib(8).fill_(1)
    del x
    kept = torch.rgpu.memory_reserved() - torch.rgpu.memory_allocated()
    assert kept >= 8 * MIB
    with Counted() as counted:
        torch.rgpu.empty_cache()
    assert counted.waits == 0
    assert torch.rgpu.memory_reserved() == torch.rgpu.memory_allocated()
    assert torch.rgpu.max_memory_reserved() >= kept
    torch.accelerator.empty_cache()


def test_free_memory_is_what_the_limit_leaves():
    torch.rgpu.synchronize()
    free, total = torch.rgpu.mem_get_info()
    assert total == LIMIT == torch.rgpu.get_device_properties().total_memory
    assert free == LIMIT - torch.rgpu.memory_allocated()
    assert torch.accelerator.get_memory_info() == (free, total)
    x = mib(1).fill_(0)
    assert torch.rgpu.mem_get_info() == (free - MIB, total)
    del x


def fill(mebibytes):
    return mib(mebibytes).fill_(1)


def upload(mebibytes):
    return torch.ones(mebibytes * MIB // 4).to(DEVICE)


def result(mebibytes):
    return torch.ones(1, device=DEVICE).expand(mebibytes * MIB // 4) + 1


def resize(mebibytes):
    return torch.empty(0, device=DEVICE).resize_(mebibytes * MIB // 4).fill_(1)


def list_of(mebibytes):
    return torch._foreach_add([torch.ones(1, device=DEVICE).expand(mebibytes * MIB // 4)], 1)[0]


MAKERS = [fill, upload, result, resize, list_of]


@pytest.mark.parametrize("make", MAKERS)
def test_a_program_catches_it_frees_and_goes_on(make, held):
    kept = fill(32)
    failed = make(40)
    derived = failed * 2
    with pytest.raises(torch.OutOfMemoryError, match="64.00 MiB") as raised:
        derived[0].item()
    assert "out of memory: tried to allocate 40.00 MiB" in str(raised.value)
    assert "MiB are in use by this session's tensors on rgpu:0" in str(raised.value)
    assert kept[-1].item() == 1  # The others are as they were.
    del kept, failed, derived, raised
    torch.rgpu.empty_cache()
    again = make(40)
    assert (again.sum() / again[0]).item() == 40 * MIB / 4
    del again
    assert held() == 0
    torch.rgpu.synchronize()  # Nothing is left to be told.


@pytest.mark.parametrize("make", MAKERS)
def test_the_error_names_op_sizes_and_the_programs_line(make):
    failed = make(100)
    used = failed.mul_(3)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        used[0].item()
    text = str(raised.value)
    assert re.search(r"raised on the server by \S+\(.*(104857600 bytes|float32\[26214400\])", text)
    assert "test_device_memory.py:" in text and "program line unknown" not in text, text


def test_a_burst_of_failed_allocations_is_told_once(held):
    kept = []
    with pytest.raises(torch.OutOfMemoryError):
        for _ in range(20):
            kept.append(torch.ones(16 * MIB // 4, device=DEVICE))
        kept[-1][0].item()
    kept.clear()
    assert torch.ones(16 * MIB // 4, device=DEVICE).sum().item() == 16 * MIB // 4
    rgpu.synchronize()
    assert held() == 0


def test_it_is_told_at_synchronize_if_nobody_asks_before():
    broken = fill(100)
    with pytest.raises(torch.OutOfMemoryError):
        torch.rgpu.synchronize()
    torch.rgpu.synchronize()
    assert torch.rgpu.memory_stats()["num_ooms"] >= 1
    del broken


def test_a_result_whose_size_only_the_server_knows_is_limited_too(held):
    ones = torch.ones(4 * MIB // 4, device=DEVICE).expand(12, -1)
    with pytest.raises(torch.OutOfMemoryError):
        torch.nonzero(ones)  # 192 MiB.
    del ones
    assert held() == 0


def test_a_training_step_that_does_not_fit_is_retried_with_a_smaller_batch():
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8)
    )
    model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    batch, losses = 16384, []
    while not losses:
        optimizer.zero_grad()
        try:
            loss = model(torch.ones(batch, 256, device=DEVICE)).square().mean()
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
        except torch.OutOfMemoryError:
            batch //= 2
            loss = None
            torch.rgpu.empty_cache()
    assert 64 <= batch < 16384
    torch.rgpu.synchronize()
    assert all(torch.isfinite(p).all().item() for p in model.parameters())


def test_more_than_any_machine_has_is_out_of_memory_without_a_limit_too(run_snippet):
    done = run_snippet("""
    import torch, rgpu
    x = torch.zeros(10 << 40, device="rgpu")  # 40 TiB.
    try:
        x[0].item()
        raise SystemExit("no error")
    except torch.OutOfMemoryError as error:
        assert "43980465111040 bytes" in str(error) and "<string>" in str(error), error
    del x
    torch.rgpu.empty_cache()
    y = torch.ones(1, device="rgpu").expand(10 << 40) * 2
    try:
        torch.rgpu.synchronize()
        raise SystemExit("no error")
    except torch.OutOfMemoryError as error:
        assert "aten::mul" in str(error), error
    assert torch.ones(3, device="rgpu").sum().item() == 3
    assert torch.rgpu.memory_stats()["num_ooms"] == 2
    """)
    assert done.returncode == 0, done.stderr


# ---- Everything is freed ----


def test_tensors_freed_in_any_order_are_freed(held):
    tensors = [torch.ones(100 + i, device=DEVICE) for i in range(50)]
    results = [a.sum() + b.sum() for a in tensors for b in tensors[:3]]
    for i in (7, 0, -1, 3):
        del tensors[i]
    del results[::2]
    tensors.clear()
    assert held() == 4 * len(results)
    results.clear()
    assert held() == 0


def test_tensors_in_reference_cycles_are_freed_when_those_are(held):
    class Node:
        pass

    gc.disable()
    try:
        first, second = Node(), Node()
        first.other, second.other = second, first
        first.data, second.data = fill(1), fill(1)
        second.graph = (first.data.clone().requires_grad_() * 2).sum()
        del first, second
        assert held() > 2 * MIB
        gc.collect()
    finally:
        gc.enable()
    assert held() == 0


def test_tensors_freed_by_another_thread_are_freed(held):
    box = [torch.ones(1000, device=DEVICE) for _ in range(100)]
    box.append(sum(t.sum() for t in box))
    threads = [threading.Thread(target=lambda: [box.pop() for _ in range(25)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    box.clear()
    assert held() == 0


def test_tensors_of_a_thread_that_ended_are_freed(held):
    def work():
        local = threading.local()
        local.x = torch.ones(1000, device=DEVICE, requires_grad=True)
        with torch.rgpu.stream(torch.rgpu.Stream()):
            (local.x * 2).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert held() == 0


def test_a_model_its_optimizer_and_their_graph_are_freed(held):
    model = torch.nn.Sequential(torch.nn.LSTM(8, 8)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        out, _ = model(torch.ones(4, 2, 8, device=DEVICE))
        out.sum().backward()
        optimizer.step()
    assert held() > 0
    del model, optimizer, out, _
    gc.collect()
    assert held() == 0


def test_tensors_of_an_exception_are_freed_with_it(held):
    def work():
        kept = fill(1)
        raise ValueError(str(kept.shape))

    try:
        work()
    except ValueError as error:
        assert held() == MIB
        del error
    gc.collect()
    assert held() == 0


def test_what_streams_still_use_is_freed_after_that(held):
    streams = [torch.rgpu.Stream() for _ in range(3)]
    for i in range(30):
        with torch.rgpu.stream(streams[i % 3]):
            x = torch.ones(1000, device=DEVICE) @ torch.ones(1000, 100, device=DEVICE)
        y = x * 2
        del x, y
    assert held() == 0


def test_a_program_that_ends_leaves_nothing_behind(limited, run_snippet):
    workers = Path(f"/proc/{limited.process.pid}/task/{limited.process.pid}/children")
    before = workers.read_text()
    done = run_snippet(
        f"""
        import torch, rgpu
        model = torch.nn.Linear(100, 100).to("rgpu")
        kept = [torch.ones(1 << 20, device="rgpu") for _ in range(5)]
        kept[0].sum().item()
        assert open("{workers}").read() != "{before}"
        model(torch.ones(3, 100, device="rgpu")).sum().backward()
        """,
        server=limited.address,
    )
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + 20
    while workers.read_text() != before:  # A session's memory is its worker's.
        assert time.monotonic() < deadline, limited.log()
        time.sleep(0.02)
