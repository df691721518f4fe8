"""Finding an error or a wait: RGPU_DEBUG=1, `rgpu.waits()`, errors whose results nobody reads."""

import contextlib
import sys
import textwrap
import threading

import pytest
import rgpu
import torch
import torch.nn.functional as F
from device_parity import DEVICE
from torch import nn


@pytest.fixture(autouse=True)
def other_tests_see_no_failure():
    yield
    with contextlib.suppress(Exception):
        rgpu.synchronize()


def fail():
    """An op that fails on the server alone, whose result nobody can read any more."""
    F.embedding(torch.tensor([99], device=DEVICE), torch.ones(3, 3, device=DEVICE))


def bad_index(result_of):
    return result_of(torch.tensor([99], device=DEVICE))


# ---- Errors that nobody can ask for any more -----------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: x.nonzero(),
        lambda x: x.unique(),
        lambda x: print(x),
        lambda x: bool((x > 0).all()),
        lambda x: torch.rgpu.memory_allocated(),
        lambda x: torch.rgpu.synchronize(),
    ],
)
def test_lost_error_is_raised_by_the_next_wait_once(ask, capsys):
    x = torch.ones(3, device=DEVICE)
    fail()
    for _ in range(50):
        x = x * 1
    with pytest.raises(IndexError, match=r"test_device_debugging.py:\d+ in fail"):
        ask(x)
    ask(x)
    assert x.tolist() == [1.0] * 3


def test_lost_error_says_that_it_is_an_earlier_ops():
    fail()
    with pytest.raises(IndexError, match="an earlier op.*ask again"):
        torch.ones(3, device=DEVICE).sum().item()


def test_error_whose_result_is_alive_waits_for_its_reader():
    bad = bad_index(lambda i: torch.ones(3, device=DEVICE)[i])
    derived = bad + 1
    del bad
    for _ in range(3):
        assert torch.ones(2, device=DEVICE).sum().item() == 2
    with pytest.raises(IndexError):
        derived.cpu()
    del derived
    assert torch.ones(2, device=DEVICE).sum().item() == 2


def test_results_of_a_wait_that_told_a_lost_error_are_freed():
    big = torch.ones(1 << 20, device=DEVICE)
    before = torch.rgpu.memory_allocated()
    fail()
    with pytest.raises(IndexError):
        big.nonzero()
    assert torch.rgpu.memory_allocated() == before


def test_error_that_nothing_ever_waits_for_is_told_at_the_end(run_snippet):
    result = run_snippet("""
        import torch, rgpu
        y = torch.ones(3, device="rgpu")[torch.tensor([9], device="rgpu")]
    """)
    assert result.returncode == 0
    assert "rgpu: warning: an op failed" in result.stderr and "index" in result.stderr
    assert "<string>:3" in result.stderr
    quiet = run_snippet("""
        import torch, rgpu
        y = torch.ones(3, device="rgpu") + 1
    """)
    assert (quiet.returncode, quiet.stderr) == (0, "")


# ---- Where an error says it comes from -----------------------------------------------------------


def line_of(text):
    return text[text.index("issued at ") :]


def test_errors_of_backward_optimizers_threads_and_graph_calls_name_op_shapes_and_line():
    def in_a_thread():
        made.append(bad_index(lambda i: torch.ones(3, device=DEVICE)[i]))

    made = []
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    with torch.inference_mode():
        made.append(bad_index(lambda i: torch.ones(3, device=DEVICE)[i]))
    for result in made:
        with pytest.raises(IndexError) as caught:
            result.cpu()
        text = str(caught.value)
        assert "aten::index" in text and "float32[3], int64[1]" in text
        assert "test_device_debugging.py:" in line_of(text)


def test_error_of_a_backward_op_names_the_forward_line_and_the_backward_line():
    # Its gradient flows through an in-place write whose index only the server can refuse.
    x = torch.zeros(3, 3, device=DEVICE, requires_grad=True)
    picked = x.gather(1, torch.tensor([[9]], device=DEVICE))
    forward = sys._getframe().f_lineno - 1
    picked.sum().backward()
    with pytest.raises((IndexError, RuntimeError)) as caught:
        x.grad.cpu()
    assert f"test_device_debugging.py:{forward} in" in line_of(str(caught.value))


def test_poisoned_parameters_name_the_op_that_failed_after_a_foreach_step():
    model = nn.Linear(3, 3).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    rows = F.embedding(torch.tensor([99], device=DEVICE), torch.ones(3, 3, device=DEVICE))
    model(rows).sum().backward()
    optimizer.step()
    with pytest.raises(IndexError, match="embedding") as caught:
        model.weight.cpu()
    assert "test_device_debugging.py:" in line_of(str(caught.value))


# ---- Waits ---------------------------------------------------------------------------------------


def waits_here():
    """Count by line number of this file, and the seconds of all."""
    rows = [wait for wait in rgpu.waits() if "test_device_debugging.py:" in wait.line]
    return {int(row.line.split("debugging.py:")[1].split()[0]): row.count for row in rows}


def test_waits_are_counted_by_line_in_loops_threads_and_other_files(tmp_path, monkeypatch):
    (tmp_path / "reads_elsewhere.py").write_text(
        textwrap.dedent("""
        def read(x):
            return x.sum().item()
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import reads_elsewhere

    x = torch.ones(3, device=DEVICE)
    rgpu.synchronize()
    rgpu.reset_stats()
    assert rgpu.waits() == []
    for _ in range(7):
        x.sum().item()
    loop = sys._getframe().f_lineno - 1
    reads_elsewhere.read(x)
    reads_elsewhere.read(x)

    def read_often():
        for _ in range(20):
            x.cpu()

    threads = [threading.Thread(target=read_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = waits_here()
    assert counts[loop] == 7
    assert 80 in counts.values()
    elsewhere = [wait for wait in rgpu.waits() if "reads_elsewhere.py:3 in read" in wait.line]
    assert [wait.count for wait in elsewhere] == [2]
    assert sum(wait.count for wait in rgpu.waits()) == rgpu.stats()["waits"] == 7 + 2 + 80
    seconds = sum(wait.seconds for wait in rgpu.waits())
    assert seconds == pytest.approx(rgpu.stats()["wait_ns"] * 1e-9)


def test_waits_in_backward_name_the_backward_line():
    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx, given):
            return given * 1

        @staticmethod
        def backward(ctx, gradient):
            assert gradient.sum().item() == 3
            return gradient

    x = torch.ones(3, device=DEVICE, requires_grad=True)
    rgpu.reset_stats()
    Reads.apply(x).sum().backward()
    (wait,) = rgpu.waits()
    assert wait.count == 1 and "test_device_debugging.py:" in wait.line


def test_every_wait_is_in_the_list_whatever_its_cause(run_snippet):
    # A full ring and a handshake are waits like any other.
    result = run_snippet("""
        import torch, rgpu
        torch.rgpu.device_count()
        x = torch.ones(8, device="rgpu")
        host = torch.ones(1 << 22)
        for _ in range(8):
            y = host.to("rgpu")
        x.cpu(); x.nonzero(); rgpu.synchronize()
        listed = sum(wait.count for wait in rgpu.waits())
        print(listed, rgpu.stats()["waits"])
    """)
    listed, counted = result.stdout.split()
    assert listed == counted and int(listed) >= 4, result.stderr


# ---- RGPU_DEBUG ----------------------------------------------------------------------------------

DEBUG = {"RGPU_DEBUG": "1"}


def test_debug_raises_each_error_at_its_own_line_with_the_whole_stack(run_snippet):
    program = """
        import torch, rgpu, traceback

        def inner(indices):
            return torch.ones(3, device="rgpu")[indices]

        def outer(indices):
            return inner(indices)

        indices = torch.tensor([9], device="rgpu")
        try:
            outer(indices)
            print("not raised at the op")
        except IndexError as error:
            print("in inner" in str(error) and "in outer" in str(error))
            print(traceback.extract_tb(error.__traceback__)[-1].name)
        print(torch.ones(2, device="rgpu").sum().item(), rgpu.stats()["waits"])
    """
    result = run_snippet(program, env=DEBUG)
    lines = result.stdout.splitlines()
    assert lines[:2] == ["True", "inner"], result.stdout + result.stderr
    total, waits = lines[2].split()
    assert total == "2.0" and int(waits) >= 4
    relaxed = run_snippet(program, env={"RGPU_DEBUG": "0"})
    assert relaxed.stdout.splitlines()[0] == "not raised at the op"


def test_debug_names_the_forward_of_a_backward_op(run_snippet):
    result = run_snippet(
        """
        import torch, rgpu
        import torch.nn.functional as F

        def forward(scores):
            return F.nll_loss(scores, torch.tensor([0, 9]).to("rgpu"), reduction="none")

        class Fails(torch.autograd.Function):
            @staticmethod
            def forward(ctx, given):
                return given * 1

            @staticmethod
            def backward(ctx, gradient):
                return torch.linalg.inv(gradient * 0)

        def calls_it(x):
            return Fails.apply(x)

        x = torch.zeros(3, 3, device="rgpu", requires_grad=True)
        y = calls_it(x).sum()
        try:
            y.backward()
            print("not raised")
        except torch.linalg.LinAlgError as error:
            print("in backward" in str(error), "in calls_it" in str(error))
    """,
        env=DEBUG,
    )
    assert result.stdout.splitlines() == ["True True"], result.stdout + result.stderr


def test_debug_covers_graph_calls_uploads_and_optimizers(run_snippet):
    result = run_snippet(
        """
        import torch, rgpu
        from torch import nn
        model = nn.LSTM(4, 4).to("rgpu")
        attention = nn.MultiheadAttention(4, 2).to("rgpu")
        optimizer = torch.optim.AdamW([*model.parameters(), *attention.parameters()])
        x = torch.randn(5, 2, 4).to("rgpu")
        y = model(x)[0]
        z = attention(y, y, y)[0]
        z.sum().backward()
        optimizer.step()
        bad = torch.zeros(3, 4).to("rgpu")
        print(z.sum().isfinite().item())
        waits = rgpu.stats()["waits"]
        model(x)
        print(rgpu.stats()["waits"] > waits)
    """,
        env=DEBUG,
    )
    assert result.stdout.splitlines() == ["True", "True"], result.stderr
