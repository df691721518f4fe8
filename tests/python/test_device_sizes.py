"""Much of everything: shapes, tensors, arguments, bytes and depth beyond what bounds there are."""

import threading

import pytest
import rgpu
import torch
from device_parity import DEVICE


def test_more_distinct_calls_than_templates_are_kept():
    total = torch.zeros((), device=DEVICE)
    keep = torch.arange(3.0, device=DEVICE)
    before = rgpu.stats()["templates"]
    for size in range(1, 17_500):  # limits::kTemplatesMax is 16384.
        total += torch.empty(size, device=DEVICE).fill_(1.0)[-1]
    assert rgpu.stats()["templates"] - before > 16_384
    assert total.item() == 17_499
    assert (keep + 1).tolist() == [1.0, 2.0, 3.0]


def test_tens_of_thousands_of_tensors_are_alive_at_once():
    tensors = [torch.full((2,), float(number), device=DEVICE) for number in range(20_000)]
    assert tensors[12_345].tolist() == [12_345.0] * 2
    del tensors[::2]
    assert torch.stack(tensors).sum().item() == 2.0 * sum(range(1, 20_000, 2))


def test_one_call_takes_thousands_of_tensors():
    tensors = [torch.ones(2, device=DEVICE) for _ in range(5000)]
    torch._foreach_add_(tensors, [float(number) for number in range(5000)])
    assert torch.cat(tensors).sum().item() == 2 * (5000 + sum(range(5000)))


def test_large_tensors_go_both_ways_unchanged():
    host = torch.arange(24 << 20, dtype=torch.int32)  # 96 MB
    x = host.to(DEVICE)
    assert torch.equal((x.view(2, -1).t() + 1).t().reshape(-1).cpu(), host + 1)


def test_result_larger_than_its_storage_is_downloaded_whole():
    assert torch.ones(1, device=DEVICE).expand(1000, 1000).cpu().sum().item() == 1e6


def test_deep_graph_runs_backward_and_is_released():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y + 1
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    del y


def test_tensors_of_many_dimensions():
    host = torch.arange(64.0).view(*[2] * 6, *[1] * 19)
    x = host.to(DEVICE)
    assert x.dim() == 25 and (x.transpose(0, 5) * 2).sum().item() == 2 * 2016
    reverse = tuple(reversed(range(25)))
    assert torch.equal(x.permute(reverse).cpu(), host.permute(reverse))


def test_threads_meet_new_shapes_at_the_same_time():
    totals, start = {}, threading.Barrier(4)

    def work(number):
        start.wait()
        totals[number] = sum(
            torch.ones(rows, number + 31, device=DEVICE).sum().item() for rows in range(1, 120)
        )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert totals == {number: 7140.0 * (number + 31) for number in range(4)}


@pytest.mark.parametrize("policy", ["sync", "bytes=100000000"])
def test_more_records_than_the_ring_holds_are_sent_unasked(policy):
    before = rgpu.flush_policy()
    rgpu.set_flush_policy(policy)
    try:
        x = torch.zeros(2, device=DEVICE)
        for _ in range(60_000):  # About 2 MB of records; the ring holds one.
            x.add_(1)
        assert x.tolist() == [60_000.0] * 2
    finally:
        rgpu.set_flush_policy(before)
