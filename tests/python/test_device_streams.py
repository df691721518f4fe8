"""Streams and events: real order, real overlap, and nothing that waits unless it is asked to.

Order and overlap are read off the server's own event times: no test looks at a clock here.
"""

import threading

import pytest
import rgpu
import torch
from device_parity import DEVICE
from test_device_waits import Counted

SIDE = 400


@pytest.fixture(scope="module")
def operand():
    """What long() multiplies."""
    return torch.eye(SIDE).to(DEVICE)


def long(x, count=30):
    """Keep the current stream busy for a while; the result."""
    for _ in range(count):
        x = x @ x
    return x


def event(stream=None):
    """An event with a time, recorded on the stream or the current one."""
    mark = torch.rgpu.Event(enable_timing=True)
    mark.record(stream) if stream is not None else mark.record()
    return mark


def test_the_current_stream_is_the_threads_own():
    side = torch.rgpu.Stream()
    seen = []
    with torch.rgpu.stream(side):
        assert torch.rgpu.current_stream() == side
        thread = threading.Thread(target=lambda: seen.append(torch.rgpu.current_stream()))
        thread.start()
        thread.join()
        with torch.rgpu.stream(None):
            assert torch.rgpu.current_stream() == side
    assert torch.rgpu.current_stream() == torch.rgpu.default_stream()
    assert seen == [torch.rgpu.default_stream()]
    with side:
        assert torch.accelerator.current_stream() == side


def test_two_new_streams_are_two():
    assert torch.rgpu.Stream() != torch.rgpu.Stream()


def test_a_stream_that_is_none_of_ours_is_refused():
    stream = torch.Stream(stream_id=4000, device_index=0, device_type=20)
    with pytest.raises(ValueError, match="rgpu has no stream 4000"):
        torch.rgpu.set_stream(stream)


def test_streams_overlap(operand):
    torch.rgpu.synchronize()
    first, second = torch.rgpu.Stream(), torch.rgpu.Stream()
    with torch.rgpu.stream(first):
        kept = long(operand)
        late = event()
    with torch.rgpu.stream(second):
        early = event()
    torch.rgpu.synchronize()
    assert early.elapsed_time(late) > 0
    assert kept.sum().item() == SIDE


@pytest.mark.parametrize("way", ["wait_stream", "wait_event", "event_wait"])
def test_a_stream_waits_for_another(operand, way):
    first, second = torch.rgpu.Stream(), torch.rgpu.Stream()
    with torch.rgpu.stream(first):
        kept = long(operand)
        late = event()
    if way == "wait_stream":
        second.wait_stream(first)
    elif way == "wait_event":
        second.wait_event(late)
    else:
        late.wait(second)
    early = event(second)
    torch.rgpu.synchronize()
    assert early.elapsed_time(late) <= 0
    del kept


def test_issuing_recording_and_waiting_for_events_waits_for_nothing(operand):
    first, second = torch.rgpu.Stream(), torch.rgpu.Stream()
    with Counted() as counted:
        with torch.rgpu.stream(first):
            x = operand + 1
            mark = first.record_event()
        second.wait_event(mark)
        with torch.rgpu.stream(second):
            y = x * 2
            x.record_stream(second)
        second.wait_stream(first)
        first.query()
        mark.query()
    assert counted.waits == 0
    assert y.sum().item() == 2 * (SIDE * SIDE + SIDE)


def test_query_says_yes_in_the_end_and_never_waits(operand):
    stream = torch.rgpu.Stream()
    with torch.rgpu.stream(stream):
        kept = long(operand)
        mark = event()
    with Counted() as counted:
        while not mark.query():
            pass
        while not stream.query():
            pass
    assert counted.waits == 0
    assert mark.query() and stream.query()
    del kept


@pytest.mark.parametrize("policy", ["sync", "bytes=1000000", "adaptive"])
def test_query_makes_progress_under_every_policy(operand, policy):
    before = rgpu.flush_policy()
    rgpu.set_flush_policy(policy)
    try:
        kept = operand * 3
        mark = event()
        while not mark.query():
            pass
        assert kept[0, 0].item() == 3
    finally:
        rgpu.set_flush_policy(before)


def test_synchronizing_a_stream_or_an_event_is_one_wait(operand):
    stream = torch.rgpu.Stream()
    with torch.rgpu.stream(stream):
        kept = long(operand, 3)
        mark = event()
    with Counted() as counted:
        mark.synchronize()
    assert counted.waits == 1
    with Counted() as counted:
        mark.synchronize()
        assert mark.query()
    assert counted.waits == 0  # It is known.
    with Counted() as counted:
        stream.synchronize()
    assert counted.waits == 1
    del kept


def test_elapsed_time_is_one_wait_and_adds_up(operand):
    marks = [event()]
    for _ in range(2):
        kept = long(operand, 5)
        marks.append(event())
    torch.rgpu.synchronize()
    with Counted() as counted:
        whole = marks[0].elapsed_time(marks[2])
    assert counted.waits == 1
    parts = marks[0].elapsed_time(marks[1]) + marks[1].elapsed_time(marks[2])
    assert whole > 0
    assert abs(whole - parts) < 1e-3
    del kept


def test_an_event_that_was_not_recorded_is_reached_and_has_no_time():
    mark = torch.rgpu.Event(enable_timing=True)
    assert mark.query()
    mark.synchronize()
    mark.wait(torch.rgpu.Stream())
    with pytest.raises(ValueError, match="recorded"):
        mark.elapsed_time(event())


def test_what_was_synchronized_is_reached_without_asking(operand):
    mark = event()
    torch.rgpu.synchronize()
    side = torch.rgpu.Stream()
    with torch.rgpu.stream(side):
        kept = operand + 1
        other = event()
    side.synchronize()
    with Counted() as counted:
        assert mark.query() and other.query() and side.query()
        mark.synchronize()
    assert counted.waits == counted.records == 0
    del kept


def test_a_failed_op_surfaces_when_its_stream_is_synchronized():
    stream = torch.rgpu.Stream()
    with torch.rgpu.stream(stream):
        index = torch.tensor([9]).to(DEVICE)
        broken = torch.arange(3, device=DEVICE)[index]
    with pytest.raises((IndexError, RuntimeError), match="index"):
        stream.synchronize()
    stream.synchronize()  # It was told.
    del broken


def test_a_storage_made_on_one_stream_is_used_on_another_and_freed_by_a_third_thread(operand):
    makers = [torch.rgpu.Stream() for _ in range(3)]
    user = torch.rgpu.Stream()
    results = []
    for i in range(60):
        with torch.rgpu.stream(makers[i % 3]):
            made = [long(operand, 2) * (i + 1)]
        with torch.rgpu.stream(user):
            user.wait_stream(makers[i % 3])
            results.append(made[0].sum())
            made[0].record_stream(user)
        thread = threading.Thread(target=made.clear)
        thread.start()
        thread.join()
    torch.rgpu.synchronize()
    assert [r.item() for r in results] == [SIDE * (i + 1) for i in range(60)]


def test_threads_with_a_stream_each_keep_their_order():
    def work(index):
        with torch.rgpu.stream(torch.rgpu.Stream()):
            x = torch.zeros(64, device=DEVICE)
            for step in range(200):
                x.mul_(1.0).add_(step + index)
            results[index] = x

    results = {}
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, x in results.items():
        assert x.cpu().tolist() == [sum(range(200)) + 200.0 * index] * 64


def test_backward_runs_on_the_streams_of_forward_and_is_right():
    torch.manual_seed(0)
    w = torch.randn(32, 32, requires_grad=True)
    x = torch.randn(8, 32)
    (x @ w).relu().sum().backward()
    remote = w.detach().to(DEVICE).requires_grad_()
    side = torch.rgpu.Stream()
    side.wait_stream(torch.rgpu.current_stream())
    with torch.rgpu.stream(side):
        loss = (x.to(DEVICE) @ remote).relu().sum()
    with Counted() as counted:
        loss.backward()
    assert counted.waits == 0
    torch.testing.assert_close(remote.grad.cpu(), w.grad)


def test_more_streams_than_the_pool_has_share_it(operand):
    streams = [torch.rgpu.Stream() for _ in range(70)]
    results = []
    for i, stream in enumerate(streams):
        with torch.rgpu.stream(stream):
            results.append((operand * i).sum())
    torch.rgpu.synchronize()
    assert [r.item() for r in results] == [float(SIDE * i) for i in range(70)]
