"""rgpu.profile(): every op, wait, flush and execution is in the trace, on one clock."""

import json

import pytest
import rgpu
import torch
from device_parity import DEVICE


@pytest.fixture
def traced(tmp_path):
    """The trace of a small program that uses two streams and waits twice, and its summary."""
    path = tmp_path / "trace.json"
    x = torch.ones(64, 64).to(DEVICE)
    profile = rgpu.profile(path, print_summary=False)
    with profile:
        side = torch.rgpu.Stream()
        for _ in range(5):
            x = x.relu()
        with torch.rgpu.stream(side):
            y = x.exp()
        assert y.sum().item() > 0
        x.cpu()
    events = json.loads(path.read_text())["traceEvents"]
    return events, profile.summary()


def slices(events, process, name=None):
    """The slices of one process, in order of time."""
    found = [e for e in events if e["ph"] == "X" and e["pid"] == process]
    return sorted((e for e in found if name in (None, e["name"])), key=lambda e: e["ts"])


def tracks(events):
    """Track names by (process, track)."""
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}


def test_every_op_is_issued_and_executed_once(traced):
    events, _ = traced
    for process in (1, 2):
        assert len(slices(events, process, "aten::relu")) == 5
        assert len(slices(events, process, "aten::exp")) == 1


def test_ops_and_waits_have_their_program_lines(traced):
    events, _ = traced
    assert all("test_profile.py" in e["args"]["line"] for e in slices(events, 1, "aten::relu"))
    waits = [e for e in slices(events, 1) if e["name"].startswith("wait at ")]
    assert len(waits) == 2
    assert all("test_profile.py" in e["name"] for e in waits)


def test_an_op_is_executed_after_it_was_issued_and_on_its_stream(traced):
    events, _ = traced
    names = tracks(events)
    for name in ("aten::relu", "aten::exp"):
        for issued, executed in zip(slices(events, 1, name), slices(events, 2, name), strict=True):
            # Both clocks are this machine's here; they are compared to within the round trip.
            assert executed["ts"] + executed["dur"] > issued["ts"]
            assert executed["args"]["record"] == issued["args"]["record"]
            assert names[2, executed["tid"]] == f"stream {issued['args']['stream']}"


def test_batches_and_their_decoding_are_there(traced):
    events, _ = traced
    flushes, decodes = slices(events, 1, "flush"), slices(events, 2, "decode")
    assert flushes and decodes
    assert sum(e["args"]["records"] for e in flushes) >= 9
    assert sum(e["args"]["bytes"] for e in flushes) > 0
    assert sum(e["ph"] == "b" for e in events) == sum(e["ph"] == "e" for e in events) > 0


def test_the_summary_is_one_screen(traced):
    _, summary = traced
    lines = summary.splitlines()
    assert len(lines) < 40 and max(map(len, lines)) < 200
    assert "aten::relu" in summary and "test_profile.py" in summary
    assert "waiting        2 times" in summary


def test_one_profile_at_a_time_and_again_after_an_error(tmp_path):
    with rgpu.profile(None, print_summary=False), pytest.raises(RuntimeError, match="under way"):
        rgpu.profile(None).__enter__()
    with pytest.raises(ZeroDivisionError), rgpu.profile(tmp_path / "t.json", print_summary=False):
        _ = 1 / 0
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    with rgpu.profile(None, print_summary=False) as profile:
        torch.ones(3, device=DEVICE)
    assert "issuing" in profile.summary()


def test_nothing_is_traced_afterwards(capsys):
    with rgpu.profile(None):
        kept = torch.ones(3, device=DEVICE)
    assert "rgpu profile:" in capsys.readouterr().out
    kept.add_(1)
    with rgpu.profile(None, print_summary=False) as profile:
        pass
    assert "issuing        0 ops" in profile.summary()
