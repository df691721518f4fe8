"""rgpu-run --host, against a real sshd: what passes through, what is said, and that all ends.

The sshd's sessions have a scratch HOME and a PATH with one folder of ours on it, where a test puts
the rgpu-opserver that its host is to have.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import sshd as sshd_module
from sshd import Sshd, all_end, descendants, make_key

RGPU_RUN = str(Path(sys.executable).with_name("rgpu-run"))
OPSERVER = Path(sys.executable).with_name("rgpu-opserver")
ON_CPU = ["--device", "cpu", "--threads", "1"]
pytestmark = pytest.mark.skipif(sshd_module.PROGRAM is None, reason="no sshd on this machine")

# Says its server's address, then does what it is told on its standard input.
OBEDIENT = """
import os, signal, sys, torch
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
x = torch.ones(4, device="rgpu")
print(int(x.sum().item()), flush=True)
word = sys.stdin.readline().strip()
print(int((x * 2).sum().item()), flush=True)
"""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    """A host that has rgpu-opserver on its PATH."""
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    (server.bin / "rgpu-opserver").symlink_to(OPSERVER)
    yield server
    server.stop()


@pytest.fixture
def make_sshd(tmp_path):
    """`make_sshd(*settings)`: a host of this test's own, without rgpu-opserver."""
    started = []

    def make(*settings):
        started.append(Sshd(tmp_path, *settings))
        return started[-1]

    yield make
    for server in started:
        server.stop()


def run(*arguments, timeout=100, **kwargs):
    return subprocess.run(
        [RGPU_RUN, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        start_new_session=True,  # No terminal: ssh must not ask whoever runs the tests.
        **kwargs,
    )


def start(*arguments):
    return subprocess.Popen(
        [RGPU_RUN, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def error_line(result) -> str:
    """The one line on stderr of a run that failed before its program started."""
    assert (result.returncode, result.stdout) == (1, "")
    assert re.fullmatch(r"rgpu-run: [^\n]+\n", result.stderr), result.stderr
    return result.stderr.strip()


def put_fake_server(host: Sshd, banner: str) -> None:
    """An rgpu-opserver that says `banner` and ends with its input."""
    fake = host.bin / "rgpu-opserver"
    fake.write_text(f'#!/bin/sh\necho "{banner}"\nexec cat >/dev/null\n')
    fake.chmod(0o755)


# ---- What passes through ----------------------------------------------------------------------


def test_a_program_computes_on_the_host(sshd):
    code = """
import os, rgpu, torch
print(torch.ones(4, device="rgpu").sum().item(), rgpu.server() == os.environ["RGPU_OPSERVER"])
"""
    result = run(*sshd.arguments(), *ON_CPU, "--stats", sys.executable, "-c", code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[0] == "4.0"
    (line,) = result.stderr.splitlines()
    assert line.startswith("rgpu: ")
    assert "waits 1" in line
    assert sshd.servers() == []


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)],
)
def test_exit_status_is_the_programs(sshd, code, status):
    result = run(*sshd.arguments(), *ON_CPU, sys.executable, "-c", code)
    assert (result.returncode, result.stderr) == (status, "")


def test_a_signal_goes_to_the_program_and_all_ends(sshd):
    process = start(*sshd.arguments(), *ON_CPU, sys.executable, "-c", OBEDIENT)
    assert process.stdout.readline() == "4\n"
    servers, locals_ = sshd.servers(), descendants(process.pid)
    assert len(servers) == 2  # The listener and the session's worker.
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 7
    assert process.communicate() == ("", "")
    assert sshd.servers() == []
    assert all_end([*servers, *locals_], within_s=0)


def test_options_go_through_to_the_server(sshd):
    code = "import torch; torch.ones(4, device='rgpu').sum().item()"
    result = run(
        *sshd.arguments(), "--device", "cpu", "--threads", "3", "--verbose",
        sys.executable, "-c", code,
    )  # fmt: skip
    assert result.returncode == 0
    assert re.search(r"session \w+ started", result.stderr)
    refused = run(*sshd.arguments(), "--device", "cuda", sys.executable, "-c", "")
    if refused.returncode != 0:  # There may be a GPU.
        assert "rgpu-opserver on" in error_line(refused)


def test_a_running_server_is_used_where_a_port_is_named(sshd, opserver):
    port = opserver.address.rpartition(":")[2]
    code = "import torch; print(torch.ones(4, device='rgpu').sum().item())"
    process = start(
        *sshd.arguments(), "--remote-port", port, sys.executable, "-c", code + "; input()"
    )
    assert process.stdout.readline() == "4.0\n"
    assert sshd.servers() == []
    assert process.communicate("\n", timeout=60) == ("", "")
    assert process.returncode == 0


# ---- What is refused, and how it is said --------------------------------------------------------


def test_a_wrong_key_is_one_line(sshd, tmp_path):
    result = run(*sshd.arguments(key=make_key(tmp_path / "other")), "ls")
    assert "Permission denied (publickey). (name a key with -i" in error_line(result)


def test_an_unknown_host_key_is_one_line(sshd, tmp_path):
    unknown = tmp_path / "known_hosts"
    result = run(*sshd.arguments(known_hosts=unknown), "ls")
    assert "Host key verification failed. (`ssh" in error_line(result)
    assert not unknown.exists()


def test_a_host_without_the_server_is_told_how_to_get_it(make_sshd):
    line = error_line(run(*make_sshd().arguments(), "ls"))
    assert line.endswith("it is not installed there: run again with --install")


@pytest.mark.parametrize(
    ("banner", "says"),
    [
        ("(device cpu, PyTorch 2.13.0)", "has an older rgpu, this machine rgpu"),
        ("(device cpu, PyTorch 2.12.1, rgpu {0}, protocol {1})", "for PyTorch 2.12, this machine"),
        ("(device cpu, PyTorch {2}.0+cu130, rgpu 0.0.1, protocol {1})", "has rgpu 0.0.1 (proto"),
        ("(device cpu, PyTorch {2}.0+cu130, rgpu {0}, protocol 99)", "(protocol 99)"),
    ],
)
def test_another_version_is_one_line(make_sshd, banner, says):
    from rgpu_launch.programs import build_info

    ours, host = build_info(), make_sshd()
    banner = banner.format(ours.version, ours.protocol, ours.torch)
    put_fake_server(host, f"rgpu-opserver listening on 127.0.0.1:9 {banner}")
    line = error_line(run(*host.arguments(), "ls"))
    assert says in line
    assert "run again with --install" in line


def test_a_port_where_no_server_is_is_one_line(sshd):
    line = error_line(run(*sshd.arguments(), "--remote-port", "1", "ls"))
    assert "no rgpu-opserver answers on port 1 of" in line
    assert "Connection refused" in line


def test_an_sshd_that_forwards_nothing_is_one_line(make_sshd):
    host = make_sshd("AllowTcpForwarding no")
    (host.bin / "rgpu-opserver").symlink_to(OPSERVER)
    line = error_line(run(*host.arguments(), *ON_CPU, "ls"))
    assert "administratively prohibited" in line
    assert host.servers() == []


def test_without_ssh_it_says_what_to_install(sshd, tmp_path):
    result = run(*sshd.arguments(), sys.executable, env={**os.environ, "PATH": str(tmp_path)})
    assert "(Debian: openssh-client)" in error_line(result)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host=-oProxyCommand=touch x", "ls"], "not [USER@]HOST"),
        (["--host", "h", "-i", "/no/such/key", "ls"], "there is no such file"),
        (["--host", "h", "--ssh-port", "0", "ls"], "--ssh-port is not a port"),
        (["--host", "h", "--wheel", "x.whl", "ls"], "--wheel goes with --install"),
        (["--host", "h", "--rtt-ms", "1", "ls"], "--rtt-ms goes with --local"),
        (["--host", "h", "--remote-port", "9", "--install", "ls"], "--install does not go with"),
        (["--local", "--install", "ls"], "--install goes with --host"),
        (["--server", "a:1", "--device", "cpu", "ls"], "--device goes with --local or --host"),
        (["--local", "--host", "h", "ls"], "not allowed with argument"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, says):
    result = run(*arguments)
    assert result.returncode == 2
    assert says in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


# ---- That all ends ------------------------------------------------------------------------------


def test_a_lost_tunnel_is_said_and_the_program_sees_it(make_sshd):
    host = make_sshd()
    (host.bin / "rgpu-opserver").symlink_to(OPSERVER)
    process = start(*host.arguments(), *ON_CPU, sys.executable, "-c", OBEDIENT)
    assert process.stdout.readline() == "4\n"
    servers = host.servers()
    assert len(servers) == 2
    host.stop()
    assert all_end(servers)
    out, err = process.communicate("go on\n", timeout=60)
    assert (process.returncode, out) == (1, "")
    lost = [line for line in err.splitlines() if line.startswith("rgpu-run: ")]
    assert len(lost) == 1
    assert re.match(r"rgpu-run: the SSH tunnel to \S+ was lost: Conn\w+ .*closed", lost[0]), lost
    assert "RuntimeError" in err  # The program's own traceback.


def test_a_server_that_dies_is_said(sshd):
    process = start(*sshd.arguments(), *ON_CPU, sys.executable, "-c", OBEDIENT)
    assert process.stdout.readline() == "4\n"
    for pid in sshd.servers():
        os.kill(pid, signal.SIGKILL)
    line = process.stderr.readline()
    assert re.match(r"rgpu-run: rgpu-opserver on \S+ has ended \(exit status \d+\); ", line)
    process.communicate("go on\n", timeout=60)
    assert process.returncode == 1


def test_all_ends_when_rgpu_run_is_killed(sshd):
    process = start(*sshd.arguments(), *ON_CPU, sys.executable, "-c", OBEDIENT)
    assert process.stdout.readline() == "4\n"
    servers, ssh = sshd.servers(), [p for p in descendants(process.pid) if is_ssh(p)]
    assert (len(servers), len(ssh)) == (2, 2)
    process.kill()
    assert all_end([*servers, *ssh])
    process.communicate("go on\n", timeout=60)  # The program itself is left to its errors.


def is_ssh(pid: int) -> bool:
    return sshd_module.name(pid) == "ssh"


def test_a_terminal_is_asked_for_the_passphrase_and_its_ctrl_c_is_the_programs(sshd, tmp_path):
    key = make_key(tmp_path / "locked", "open sesame")
    sshd.authorize(key)
    code = """
import time, torch
x = torch.ones(4, device="rgpu")
try:
    print("sum", int(x.sum().item()), flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("still", int((x * 2).sum().item()), flush=True)
"""
    pid, terminal = os.forkpty()
    if pid == 0:
        arguments = [*sshd.arguments(key=key), *ON_CPU, sys.executable, "-c", code]
        os.execv(RGPU_RUN, [RGPU_RUN, *arguments])
    try:
        said = read_until(terminal, b"passphrase")
        os.write(terminal, b"open sesame\n")
        said += read_until(terminal, b"sum 4")
        os.write(terminal, b"\x03")
        said += read_until(terminal, b"still 8")
        assert b"sesame" not in said
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(terminal)  # Hangs up what still runs.
    assert all_end(sshd.servers())


def test_ctrl_c_while_the_passphrase_is_asked_for_ends_it(sshd, tmp_path):
    key = make_key(tmp_path / "locked", "open sesame")
    sshd.authorize(key)
    pid, terminal = os.forkpty()
    if pid == 0:
        os.execv(RGPU_RUN, [RGPU_RUN, *sshd.arguments(key=key), "ls"])
    read_until(terminal, b"passphrase")
    ssh = descendants(pid)
    assert len(ssh) == 1
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGINT
    os.close(terminal)
    assert all_end(ssh, within_s=0)


def read_until(terminal: int, text: bytes) -> bytes:
    said = b""
    while text not in said:  # The test's timeout is the way out.
        said += os.read(terminal, 4096)
    return said


def test_the_server_ends_with_its_standard_input(run_snippet):
    server = subprocess.Popen(
        [OPSERVER, "--port", "0", "--device", "cpu", "--exit-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    server.stdin.write("what arrives is of no interest\n")
    server.stdin.flush()
    address = re.search(r"listening on (\S+)", server.stdout.readline())[1]
    code = "import torch; print(torch.ones(4, device='rgpu').sum().item())"
    assert run_snippet(code, server=address).stdout == "4.0\n"
    assert server.poll() is None
    server.stdin.close()
    assert server.wait(timeout=20) == 0
    assert "standard input has ended" in server.stderr.read()
