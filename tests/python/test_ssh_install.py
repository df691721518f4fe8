"""rgpu-run --host --install: the wheel goes to the host once, and errors say what to do.

The host's HOME is a scratch folder. In the quick tests its environment has PyTorch beforehand, as
links to .venv's; the slow one starts from nothing.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sshd as sshd_module
from bare_venv import make_bare_venv
from rgpu_launch import ssh_install, ssh_server
from sshd import Sshd

RGPU_RUN = str(Path(sys.executable).with_name("rgpu-run"))
PROGRAM = [sys.executable, "-c", "import torch; print(torch.ones(4, device='rgpu').sum().item())"]
pytestmark = pytest.mark.skipif(sshd_module.PROGRAM is None, reason="no sshd on this machine")


@pytest.fixture
def host(tmp_path):
    (tmp_path / "host").mkdir()
    server = Sshd(tmp_path / "host")
    yield server
    server.stop()


@pytest.fixture
def install(host, tmp_path):
    """`install(*options)` runs PROGRAM with --install, from a folder without dist/."""
    here = tmp_path / "here"
    here.mkdir()

    def run(*options, timeout=100):
        return subprocess.run(
            [RGPU_RUN, *host.arguments(), "--device", "cpu", "--threads", "1", "--install",
             *options, *PROGRAM],
            cwd=here, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
            start_new_session=True,
        )  # fmt: skip

    run.folder = here
    return run


def environment_of(host: Sshd) -> Path:
    return host.home / ".local" / "share" / "rgpu" / "venv"


def last_line(result) -> str:
    assert (result.returncode, result.stdout) == (1, "")
    assert "Traceback" not in result.stderr
    return result.stderr.splitlines()[-1]


def test_it_is_installed_once_and_then_used(host, install):
    make_bare_venv(environment_of(host))
    first = install("--pip-args=--no-index --quiet")
    assert (first.returncode, first.stdout) == (0, "4.0\n"), first.stderr
    words = [line.split()[1] for line in first.stderr.splitlines()]
    assert words == ["copying", "installing", "installed"]
    second = install("--pip-args=--no-index --quiet")
    assert (second.returncode, second.stdout) == (0, "4.0\n")
    (line,) = second.stderr.splitlines()
    assert line.endswith(".whl installed")
    # The wheel is in the environment now; the copy is not kept.
    assert list((environment_of(host).parent / "wheels").iterdir()) == []


def test_a_failed_installation_is_said_and_does_not_count(host, install):
    make_bare_venv(environment_of(host))
    assert install("--pip-args=--no-index").returncode == 0
    line = last_line(install("--pip-args=--no-index --no-such-option"))
    assert "failed: no such option: --no-such-option" in line
    again = install("--pip-args=--no-index")
    assert again.stdout == "4.0\n"
    assert "copying" in again.stderr


def test_a_host_without_that_python_is_told(install):
    line = last_line(install("--remote-python", "/bin/false"))
    assert "which the wheel is for: name one with --remote-python" in line


def test_a_wheel_that_cannot_be_is_one_line(install):
    assert "no such wheel" in last_line(install("--wheel", "nowhere.whl"))
    other = install.folder / "other-1.0-py3-none-any.whl"
    other.touch()
    assert "is no wheel of rgpu's" in last_line(install("--wheel", other))
    (install.folder / "dist").mkdir()
    old = install.folder / "dist" / "rgpu-0.0.1-cp311-cp311-linux_x86_64.whl"
    old.touch()
    assert f"{old.name} is not of this rgpu" in last_line(install())


def test_scripts_pass_every_login_shell():
    """In single quotes, csh, fish and sh agree about everything else."""
    scripts = {ssh_server._START, ssh_install._STAMP, ssh_install._COPY, ssh_install._INSTALL}
    assert not [script for script in scripts if set("'!\\\n") & set(script)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_from_nothing(host, install):
    python = str(Path(os.path.realpath(sys.executable)))
    result = install("--remote-python", python, timeout=1700)
    assert (result.returncode, result.stdout) == (0, "4.0\n"), result.stderr
