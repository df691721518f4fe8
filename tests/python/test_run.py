"""rgpu-run: the program's arguments, status and signals pass through; its services always end."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

RGPU_RUN = str(Path(sys.executable).with_name("rgpu-run"))


def run(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RGPU_RUN, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [RGPU_RUN, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def stops_listening(address: str, within_s: float = 20) -> bool:
    deadline = time.monotonic() + within_s
    while listens(address):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# Says its server's address, then does what it is told on its standard input.
OBEDIENT = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print(os.environ["RGPU_OPSERVER"], flush=True)
sys.exit(int(sys.stdin.readline() or 0))
"""


@pytest.mark.parametrize("status", [0, 3, 255])
def test_exit_status_is_the_programs(status):
    result = run("--local", "--device", "cpu", sys.executable, "-c", f"raise SystemExit({status})")
    assert (result.returncode, result.stderr) == (status, "")


def test_arguments_reach_the_program_unchanged():
    code = "import sys; print(sys.argv[1:])"
    result = run("--local", "--device", "cpu", sys.executable, "-c", code, "--rtt-ms", "a b", "--")
    assert result.stdout == "['--rtt-ms', 'a b', '--']\n"


def test_dies_by_the_signal_that_killed_the_program():
    result = run(
        "--local", "--device", "cpu", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"
    )
    assert result.returncode == -signal.SIGKILL


@pytest.mark.parametrize("link", [[], ["--rtt-ms", "1"]])
def test_services_end_with_the_program(link):
    process = start("--local", "--device", "cpu", *link, sys.executable, "-c", OBEDIENT)
    address = process.stdout.readline().strip()
    assert listens(address)
    process.communicate("5\n", timeout=60)
    assert process.returncode == 5
    assert not listens(address)


def test_a_signal_goes_to_the_program_and_its_status_comes_back():
    process = start("--local", "--device", "cpu", sys.executable, "-c", OBEDIENT)
    address = process.stdout.readline().strip()
    process.send_signal(signal.SIGTERM)
    # Not communicate(): closing its standard input would end the program as well.
    assert process.wait(timeout=60) == 7
    process.communicate()
    assert not listens(address)


def test_services_end_when_rgpu_run_is_killed():
    process = start("--local", "--device", "cpu", "--rtt-ms", "1", sys.executable, "-c", OBEDIENT)
    address = process.stdout.readline().strip()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 3  # The server, the link, the program.
    process.kill()
    process.wait()
    assert stops_listening(address)
    process.communicate("0\n", timeout=60)
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{child}/stat").exists() and alive(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(pid: str) -> bool:
    """Whether it runs; a zombie that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_rtt_ms_delays_every_read():
    code = """
import time, torch
x = torch.ones(4, device="rgpu")
x.sum().item()
def read():
    began = time.perf_counter()
    assert x.sum().item() == 4
    return time.perf_counter() - began
print(min(read() for _ in range(5)))
"""
    result = run("--local", "--device", "cpu", "--rtt-ms", "80", sys.executable, "-c", code)
    assert result.returncode == 0, result.stderr
    assert 0.080 <= float(result.stdout) < 0.110


def test_server_gives_the_program_that_address_and_starts_nothing(opserver):
    code = "import os; print(os.environ['RGPU_OPSERVER'])"
    result = run("--server", opserver.address, sys.executable, "-c", code)
    assert result.stdout.strip() == opserver.address


def test_stats_are_printed_at_the_end():
    code = "import torch; print(torch.ones(4, device='rgpu').sum().item())"
    result = run("--local", "--device", "cpu", "--stats", sys.executable, "-c", code)
    assert result.stdout == "4.0\n"
    line = result.stderr.splitlines()[-1]
    assert line.startswith("rgpu: ")
    assert "waits 1" in line


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--local"], 2, "no program given"),
        (["ls"], 2, "one of the arguments --local --server --host is required"),
        (["--local", "no-such-program"], 127, "rgpu-run: no-such-program: not found"),
        (["--local", "/etc/passwd"], 126, "rgpu-run: /etc/passwd: not executable"),
        (["--server", "nowhere", "ls"], 2, "not HOST:PORT"),
        (["--server", "a:1", "--rtt-ms", "9", "ls"], 2, "--rtt-ms goes with --local"),
        (["--local", "--rtt-ms", "-1", "ls"], 2, "--rtt-ms is negative"),
        (["--local", "--threads", "0", "ls"], 2, "--threads is at least 1"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, status, says):
    result = run(*arguments)
    assert result.returncode == status
    assert says in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_a_server_that_does_not_start_is_one_line(tmp_path):
    server = tmp_path / "rgpu-opserver"
    server.write_text("#!/bin/sh\necho 'cannot do it' >&2\nexit 1\n")
    server.chmod(0o755)
    result = subprocess.run(
        [RGPU_RUN, "--local", "ls"],
        env={**os.environ, "RGPU_BIN_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1
    assert result.stderr == "rgpu-run: rgpu-opserver did not start: cannot do it\n"
