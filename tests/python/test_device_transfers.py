"""How tensors travel: pinned memory, copies nobody waits for, large ones, and their progress."""

import os
import pty
import re
import select
import subprocess
import sys
import textwrap

import pytest
import rgpu
import torch
from device_parity import DEVICE

SIZES = [1 << 10, 3 << 20]  # Elements: a small copy, and one that is sent as it is copied.


def waits():
    return rgpu.stats()["waits"]


def test_pinned_tensors_are_known_and_views_of_them_too():
    plain = torch.arange(1000.0)
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and pinned[10:].is_pinned() and torch.equal(pinned, plain)
    assert not plain.is_pinned() and pinned.pin_memory() is pinned
    large = torch.empty(1 << 20, pin_memory=True)
    assert large.is_pinned() and torch.empty(0).pin_memory().is_pinned()
    assert not torch.ones(4, device=DEVICE).cpu().is_pinned()
    assert not torch.ones(1 << 20, device=DEVICE).cpu().is_pinned()


def test_only_host_memory_is_pinned():
    with pytest.raises(RuntimeError, match="pinned"):
        torch.ones(2, device=DEVICE).pin_memory()
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty(2, device=DEVICE, pin_memory=True)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("non_blocking", [False, True])
def test_pageable_memory_may_change_right_after_an_upload(size, non_blocking):
    for value in range(3):
        host = torch.full((size,), float(value))
        up = host.to(DEVICE, non_blocking=non_blocking)
        host.fill_(-1)
        assert (up == value).all().item()


@pytest.mark.parametrize("size", SIZES)
def test_pinned_memory_may_change_after_a_blocking_upload(size):
    host = torch.ones(size).pin_memory()
    up = host.to(DEVICE)
    host.fill_(-1)
    assert (up == 1).all().item()


@pytest.mark.parametrize("size", SIZES)
def test_pinned_uploads_keep_their_memory(size):
    before = waits()
    ups = [torch.full((size,), float(i)).pin_memory().to(DEVICE, non_blocking=True)
           for i in range(10)]  # fmt: skip
    assert waits() == before
    assert [up.mean().item() for up in ups] == list(range(10))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("wait", [
    lambda: torch.rgpu.synchronize(), lambda: torch.accelerator.synchronize(),
    lambda: torch.accelerator.current_stream().synchronize(),
], ids=["module", "accelerator", "stream"])  # fmt: skip
def test_non_blocking_downloads_are_there_after_synchronize(size, wait):
    x = torch.arange(float(size), device=DEVICE)
    target = torch.zeros(size).pin_memory()
    before = waits()
    made = (x * 2).to("cpu", non_blocking=True)
    target.copy_(x, non_blocking=True)
    assert waits() == before and made.is_pinned()
    x.fill_(9)
    wait()
    assert waits() == before + 1
    assert torch.equal(made, torch.arange(float(size)) * 2)
    assert torch.equal(target, torch.arange(float(size)))


def test_many_non_blocking_downloads_are_bounded():
    x = torch.arange(4.0, device=DEVICE)
    copies = [(x + i).to("cpu", non_blocking=True) for i in range(1500)]
    torch.rgpu.synchronize()
    assert all(copy[1].item() == i + 1 for i, copy in enumerate(copies))


def test_non_blocking_downloads_to_pageable_memory_wait():
    x = torch.arange(1000.0, device=DEVICE)
    target, before = torch.zeros(1000), waits()
    target.copy_(x, non_blocking=True)
    assert waits() == before + 1 and torch.equal(target, torch.arange(1000.0))


def test_a_dropped_download_harms_nobody():
    x = torch.ones(3 << 20, device=DEVICE)
    for _ in range(10):
        x.to("cpu", non_blocking=True)
    kept = [torch.zeros(3 << 20).pin_memory() for _ in range(3)]
    torch.rgpu.synchronize()
    assert all(t.count_nonzero().item() == 0 for t in kept)


def test_the_error_of_a_non_blocking_download_comes_at_the_next_synchronize():
    bad = torch.ones(3, device=DEVICE).index_select(0, torch.tensor([7], device=DEVICE))
    copy = bad.to("cpu", non_blocking=True)
    with pytest.raises(IndexError, match="out of range"):
        torch.rgpu.synchronize()
    torch.rgpu.synchronize()
    del copy


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.float16])
@pytest.mark.parametrize("form", [
    lambda t: t, lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:],
], ids=["whole", "transposed", "strided", "part"])  # fmt: skip
def test_large_downloads_are_what_pytorch_makes_of_them(form, dtype):
    host = torch.randn(1100, 1024)
    got = form(host.to(DEVICE)).to("cpu", dtype)
    want = form(host).to("cpu", dtype, copy=True)
    assert torch.equal(got, want) and got.stride() == want.stride() and got.dtype == want.dtype
    got.untyped_storage().resize_(16)
    assert got.untyped_storage().nbytes() == 16


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("device", ["", DEVICE])
@pytest.mark.filterwarnings("ignore")
def test_dataloader_pins_its_batches(device, workers):
    data = torch.utils.data.TensorDataset(torch.arange(64.0), torch.arange(64))
    loader = torch.utils.data.DataLoader(
        data, batch_size=8, num_workers=workers, pin_memory=True, pin_memory_device=device,
        multiprocessing_context="spawn" if workers else None,
    )  # fmt: skip
    total = torch.zeros((), device=DEVICE)
    for x, y in loader:
        assert x.is_pinned() and y.is_pinned()
        total += (x.to(DEVICE, non_blocking=True) * y.to(DEVICE, non_blocking=True)).sum()
    assert total.item() == sum(i * i for i in range(64))


def test_writers_go_on_while_a_download_is_on_its_way(relay_to, fresh_opserver, run_snippet):
    relay = relay_to(fresh_opserver.address, mbit=200)
    done = run_snippet(
        """
        import torch, rgpu
        x = torch.ones(1 << 20, device="rgpu")
        copies = []
        for step in range(8):
            copies.append(x.to("cpu", non_blocking=True))
            x.add_(1)
        torch.rgpu.synchronize()
        print([int(copy.min()) == int(copy.max()) == step + 1 for step, copy in enumerate(copies)])
        """,
        server=relay.address,
    )
    assert done.stdout.strip() == str([True] * 8), done.stderr


# ---- The progress line --------------------------------------------------------------------------

LONG_COPY = """
    import torch, rgpu
    x = torch.zeros(5_000_000).to("rgpu")
    {between}
    print("sum", x.cpu().sum().item())
"""


def run_on_terminal(code, address, **env):
    """What a program writes to a terminal that is its stderr, and its stdout."""
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "RGPU_OPSERVER": address, **env},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, text=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # The other side is closed.
            break
        shown += piece
        if not piece:
            break
    os.close(ours)
    return shown.decode(), program.communicate(timeout=60)[0]


def test_a_long_transfer_shows_its_progress_on_a_terminal(relay_to, opserver):
    relay = relay_to(opserver.address, mbit=48)  # 3 s each way, less what buffers hold.
    code = LONG_COPY.format(between="torch.rgpu.synchronize()")
    shown, output = run_on_terminal(code, relay.address)
    line = r"rgpu: {} \d+\.\d of \d+\.\d MB, \d+\.\d MB/s, \d+ s left"
    assert output.strip() == "sum 0.0", shown
    for direction in ("up", "down"):
        assert re.search(line.format(direction), shown), shown
    assert "\n" not in shown and shown.endswith("\r\x1b[K"), "it is cleared at the end"


def test_progress_is_shown_to_nobody_else(relay_to, opserver, run_snippet):
    relay = relay_to(opserver.address, mbit=48)
    code = LONG_COPY.format(between="")
    assert run_on_terminal(code, relay.address, RGPU_PROGRESS="0") == ("", "sum 0.0\n")
    done = run_snippet(code, server=relay.address)
    assert done.stdout == "sum 0.0\n" and "MB" not in done.stderr
