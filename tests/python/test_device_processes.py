"""Signals, forks and exits of a program that uses device rgpu."""

import signal
import time

import pytest
from device_programs import (
    Program,
    go_on_with_server_stopped,
    signal_all,
    waiting_thread_state,
)

WAITS = """
import rgpu, torch
x = torch.ones(2, device="rgpu")
x.sum().item()
print("ready"); input()
try:
    print("waits"); {wait}
    print("no error")
except KeyboardInterrupt:
    print("interrupted")
input()
print(x.sum().item(), rgpu.stats()["waits"] > 0)
"""


INTERRUPTED = {
    "item": "x.sum().item()",
    "synchronize": "rgpu.synchronize()",
    "read_of_a_gradient": "x.requires_grad_().sum().backward(); x.grad.cpu()",
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_interrupt_ends_a_wait_and_leaves_the_session_usable(fresh_opserver, name):
    with Program(WAITS.format(wait=INTERRUPTED[name]), fresh_opserver.address) as program:
        go_on_with_server_stopped(program, fresh_opserver, "waits")
        while waiting_thread_state(program.process.pid) != "S":
            time.sleep(0.01)
        program.process.send_signal(signal.SIGINT)
        assert program.heard(within_s=10) == "interrupted"
        signal_all(fresh_opserver, signal.SIGCONT)
        program.say()
        assert program.heard() == "2.0 True"
        assert program.end() == (0, "")


HANDLES_SIGNALS = """
import rgpu, signal, torch
x = torch.ones(2, device="rgpu")
x.sum().item()
def fails(*_): raise LookupError("from the handler")
signal.signal(signal.SIGUSR1, lambda *_: print("handled"))
signal.signal(signal.SIGUSR2, fails)
print("ready"); input()
try:
    print("waits"); x.sum().item()
except LookupError as error:
    print(error)
input()
print(x.sum().item())
"""


def test_signal_handlers_run_during_a_wait_and_may_end_it(fresh_opserver):
    with Program(HANDLES_SIGNALS, fresh_opserver.address) as program:
        go_on_with_server_stopped(program, fresh_opserver, "waits")
        while waiting_thread_state(program.process.pid) != "S":
            time.sleep(0.01)
        program.process.send_signal(signal.SIGUSR1)
        assert program.heard(within_s=10) == "handled"
        program.process.send_signal(signal.SIGUSR2)
        assert program.heard(within_s=10) == "from the handler"
        signal_all(fresh_opserver, signal.SIGCONT)
        program.say()
        assert program.heard() == "2.0"
        assert program.end() == (0, "")


def test_forked_child_gets_an_error_and_the_parent_goes_on(run_snippet):
    code = """
    import os, rgpu, torch
    x = torch.ones(2, device="rgpu")
    print(x.sum().item(), flush=True)
    if os.fork() == 0:
        make = lambda: torch.ones(1, device="rgpu")
        for use in (lambda: x + 1, lambda: x.cpu(), make, rgpu.connect):
            try:
                use()
                print("no error", flush=True)
            except RuntimeError as error:
                print("fork" in str(error), flush=True)
        del x
        os._exit(0)
    os.wait()
    print(x.sum().item(), torch.ones(3, device="rgpu").sum().item())
    """
    result = run_snippet(code)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == ["2.0"] + ["True"] * 4 + ["2.0 3.0"]


def test_child_forked_before_the_first_op_is_free_to_connect(run_snippet):
    code = """
    import os, rgpu, torch
    if os.fork() == 0:
        print(torch.ones(2, device="rgpu").sum().item(), flush=True)
        os._exit(0)
    os.wait()
    print(torch.ones(3, device="rgpu").sum().item())
    """
    result = run_snippet(code)
    assert (result.returncode, result.stderr, result.stdout) == (0, "", "2.0\n3.0\n")


EXITS = {
    "backward": "for _ in range(50): x = x @ x\n(x.requires_grad_() * 2).sum().backward()",
    "whole_backward": "torch.nn.LSTM(512, 4).to('rgpu')(x)[0].sum().backward()",
    "failure": "x[torch.tensor([999], device='rgpu')]",
    "thread": "import threading; threading.Thread(target=lambda: x + 1).start()",
}


@pytest.mark.parametrize("name", EXITS)
def test_exit_with_work_pending_is_clean(run_snippet, name):
    code = "import rgpu, torch; x = torch.ones(512, 512, device='rgpu')\n" + EXITS[name]
    result = run_snippet(code)
    assert result.returncode == 0
    if name == "failure":  # The last that can be said of it.
        assert result.stderr.startswith("rgpu: warning: an op failed, and the program ended")
        assert result.stderr.count("\n") == 2
    else:
        assert result.stderr == ""


def test_uncaught_failure_of_an_op_is_a_traceback_and_status_one(run_snippet):
    result = run_snippet(
        "import rgpu, torch\ntorch.ones(3, device='rgpu')[torch.tensor([9])].cpu()"
    )
    assert result.returncode == 1
    assert result.stderr.startswith("Traceback") and "IndexError: index 9" in result.stderr
