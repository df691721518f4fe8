"""Servers that are missing, strange, slow or dying: a clear exception in time, never a hang.

Each case runs in a process of its own, which says what it saw in lines on its standard output.
"""

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator

import pytest
from device_programs import (
    Program,
    go_on_with_server_stopped,
    signal_all,
    wait_until_still,
)

USE = """
import rgpu, torch
try:
    print(torch.ones(2, device="rgpu").sum().item())
except RuntimeError as error:
    print(error)
print("alive")
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def strange_server(kind: str) -> Iterator[str]:
    """A port that takes connections and is no rgpu-opserver."""
    listener = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0]
                taken.append(connection)
                if kind == "http":
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                elif kind == "garbage":
                    connection.sendall(bytes(range(256)) * 64)
                elif kind == "hangs up":
                    connection.close()
                elif kind == "banner":
                    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
        for connection in taken:
            connection.close()


def test_no_server_is_one_line_with_the_remedy(run_snippet):
    address = f"127.0.0.1:{free_port()}"
    result = run_snippet(USE, server=address)
    assert (result.returncode, result.stderr) == (0, "")
    message, alive = result.stdout.splitlines()
    assert address in message and "rgpu-opserver" in message and "rgpu-run --local" in message
    assert alive == "alive"


def test_port_that_speaks_something_else_is_named_within_five_seconds(run_snippet):
    code = """
    import rgpu, sys, time, torch
    for address in {addresses}:
        began = time.monotonic()
        try:
            rgpu.connect(address)
        except RuntimeError as error:
            print(address in str(error), time.monotonic() - began < 6, error)
    """
    kinds = ("http", "silence", "garbage", "hangs up", "banner")
    with contextlib.ExitStack() as servers:
        addresses = [servers.enter_context(strange_server(kind)) for kind in kinds]
        result = run_snippet(code.format(addresses=addresses), server=None)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert len(lines) == len(kinds) and all(line.startswith("True True") for line in lines), lines


@pytest.mark.parametrize("kind", ["silence", "garbage"])
def test_bad_server_found_in_backward_is_an_exception_there(run_snippet, kind):
    # The forward needs nothing from the server, so that the loss is first seen in backward.
    code = """
    import rgpu, torch
    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): return x * 2
        @staticmethod
        def backward(ctx, gradient):
            gradient.sum().item()
            return gradient
    try:
        x = torch.ones(2, device="rgpu", requires_grad=True)
        Reads.apply(x).sum().backward()
        print("no error")
    except RuntimeError as error:
        print(error)
    print("alive")
    """
    with strange_server(kind) as address:
        result = run_snippet(code, server=address)
    assert (result.returncode, result.stderr) == (0, "")
    message, alive = result.stdout.splitlines()
    assert address in message and alive == "alive"


def test_malformed_address_is_refused_by_name(run_snippet):
    code = """
    import rgpu, torch
    for act in (lambda: torch.ones(1, device="rgpu"), rgpu.connect, *(
            lambda a=a: rgpu.connect(a) for a in ("127.0.0.1", "127.0.0.1:0", "h:99999", ":1"))):
        try:
            act()
        except ValueError as error:
            print(error)
    """
    result = run_snippet(code, server="nonsense")
    assert (result.returncode, result.stderr) == (0, "")
    wanted = ["nonsense", "nonsense", "127.0.0.1", "127.0.0.1:0", "h:99999", ":1"]
    for line, address in zip(result.stdout.splitlines(), wanted, strict=True):
        assert f'"{address}"' in line and "HOST:PORT" in line


def test_session_can_be_made_after_a_failed_one(run_snippet, opserver):
    code = f"""
    import rgpu, torch
    try:
        rgpu.connect("127.0.0.1:{free_port()}")
    except RuntimeError:
        pass
    print(rgpu.connect("{opserver.address}")["devices"] != [])
    print(torch.ones(2, device="rgpu").sum().item())
    """
    result = run_snippet(code, server=None)
    assert (result.returncode, result.stderr, result.stdout) == (0, "", "True\n2.0\n")


def test_tensor_of_an_earlier_session_is_refused_not_confused(run_snippet):
    code = """
    import os, rgpu, torch
    old = torch.ones(2, device="rgpu")
    rgpu.connect(os.environ["RGPU_OPSERVER"])
    new = torch.full((2,), 5.0, device="rgpu")
    for use in (lambda: old + 1, lambda: old.cpu(), lambda: new.add_(old)):
        try:
            use()
        except RuntimeError as error:
            print("earlier session" in str(error))
    del old
    print(new.tolist())
    """
    result = run_snippet(code)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == ["True"] * 3 + ["[5.0, 5.0]"]


TRAINS = """
import rgpu, torch
model = torch.nn.Linear(4, 4).to("rgpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(2, 4, device="rgpu")
def step():
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss
step().item()
print("ready"); input()
try:
    for _ in range(1000):
        step()
    step().item()
    print("no error")
except RuntimeError as error:
    print(error)
for use in (lambda: x + 1, lambda: x.cpu(), rgpu.synchronize, lambda: torch.ones(1, device="rgpu")):
    try:
        use()
        print("no error")
    except RuntimeError as error:
        print(error)
"""


def test_server_killed_during_a_step_is_a_clear_exception_until_there_is_another(
    fresh_opserver, opserver
):
    code = f"""{TRAINS}
rgpu.connect("{opserver.address}")
print(torch.ones(3, device="rgpu").sum().item())
"""
    with Program(code, fresh_opserver.address) as program:
        assert program.heard() == "ready"
        signal_all(fresh_opserver, signal.SIGKILL)
        program.say()
        for _ in range(5):
            assert fresh_opserver.address in program.heard()
        assert program.heard() == "3.0"
        assert program.end() == (0, "")


KILLS_ITS_WORKER = """
import rgpu, torch
def crash():
    gradient = torch.ones(1, 1, 2, 2, device="rgpu")
    x = torch.ones(1, 1, 4, 4, device="rgpu")
    bad = torch.full((1, 1, 2, 2), 1 << 40, device="rgpu")
    return torch.ops.aten.max_pool2d_with_indices_backward(
        gradient, x, [2, 2], [2, 2], [0, 0], [1, 1], False, bad)
torch.ones(1, device="rgpu").item()
print("ready"); input()
try:
    crash().cpu()
    print("no error")
except RuntimeError as error:
    print(str(error).replace("\\n", " "))
print("alive")
"""


def test_op_that_kills_its_worker_ends_that_session_alone(opserver):
    bystander = """
    import rgpu, torch
    x = torch.ones(2, device="rgpu")
    for _ in range(3):
        x += 1
        print(x.sum().item()); input()
    """
    with Program(bystander, opserver.address) as other:
        assert other.heard() == "4.0"
        with Program(KILLS_ITS_WORKER, opserver.address) as program:
            assert program.heard() == "ready"
            other.say()
            assert other.heard() == "6.0"
            program.say()
            message = program.heard()
            assert "max_pool2d_with_indices_backward" in message, message
            assert program.heard() == "alive"
            assert program.end() == (0, "")
        other.say()
        assert other.heard() == "8.0"
        other.say()
        assert other.end() == (0, "")


FILLS_THE_RING = """
import rgpu, torch
x = torch.ones(2, device="rgpu")
x.sum().item()
print("ready"); input()
print("fills")
try:
    while True:
        x.add_(1)
except KeyboardInterrupt:
    print("interrupted", rgpu.stats()["stalls"] > 0)
except RuntimeError as error:
    print(error)
"""


def test_full_ring_of_a_stopped_server_can_be_interrupted(fresh_opserver):
    with Program(FILLS_THE_RING, fresh_opserver.address) as program:
        go_on_with_server_stopped(program, fresh_opserver, "fills")
        wait_until_still(program.process.pid)
        program.process.send_signal(signal.SIGINT)
        assert program.heard(within_s=10) == "interrupted True"
        signal_all(fresh_opserver, signal.SIGCONT)
        assert program.end() == (0, "")


@pytest.mark.slow
def test_full_ring_of_a_stopped_server_is_an_error_after_a_minute(fresh_opserver):
    with Program(FILLS_THE_RING, fresh_opserver.address) as program:
        go_on_with_server_stopped(program, fresh_opserver, "fills")
        assert fresh_opserver.address in program.heard(within_s=110)
        assert program.end() == (0, "")


def test_full_ring_of_a_killed_server_is_an_error_at_once(fresh_opserver):
    with Program(FILLS_THE_RING, fresh_opserver.address) as program:
        go_on_with_server_stopped(program, fresh_opserver, "fills")
        wait_until_still(program.process.pid)
        signal_all(fresh_opserver, signal.SIGKILL)
        assert fresh_opserver.address in program.heard()
        assert program.end() == (0, "")
