"""What rgpu-run sets for CUDA programs, and that a server does not get it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rgpu_launch.cuda_environment import AUDIT, PRELOAD, with_cuda, without_cuda

RGPU_RUN = str(Path(sys.executable).with_name("rgpu-run"))
LISTS = ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that stands for the installed one; its libraries are empty files."""

    def make(name: str = "cuda", *, audit: bool = True) -> Path:
        made = tmp_path / name
        made.mkdir()
        for library in [PRELOAD, AUDIT] if audit else [PRELOAD]:
            (made / library).touch()
        monkeypatch.setenv("RGPU_CUDA_LIB_DIR", str(made))
        return made

    return make


def test_everything_is_set_and_the_rest_stays(folder):
    cuda = folder()
    assert with_cuda({"HOME": "/root"}) == {
        "HOME": "/root",
        "LD_PRELOAD": f"{cuda}/{PRELOAD}",
        "LD_AUDIT": f"{cuda}/{AUDIT}",
        "LD_LIBRARY_PATH": str(cuda),
    }


def test_what_was_set_comes_after_ours(folder):
    cuda = folder()
    set_before = {"LD_PRELOAD": "a.so b.so", "LD_AUDIT": "c.so", "LD_LIBRARY_PATH": "/x:/y"}
    changed = with_cuda(set_before)
    assert changed["LD_PRELOAD"] == f"{cuda}/{PRELOAD}:a.so b.so"
    assert changed["LD_AUDIT"] == f"{cuda}/{AUDIT}:c.so"
    assert changed["LD_LIBRARY_PATH"] == f"{cuda}:/x:/y"
    assert without_cuda(changed) == set_before


def test_an_empty_list_gets_no_empty_entry(folder):
    # In LD_LIBRARY_PATH that would be the current folder.
    folder()
    changed = with_cuda(dict.fromkeys(LISTS, ""))
    assert all(":" not in changed[name] for name in LISTS)


def test_twice_is_once(folder):
    folder()
    once = with_cuda({"LD_PRELOAD": "a.so"})
    assert with_cuda(once) == once


def test_without_libraries_nothing_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("RGPU_CUDA_LIB_DIR", str(tmp_path))
    assert with_cuda({"LD_PRELOAD": "a.so"}) == {"LD_PRELOAD": "a.so"}


def test_a_folder_with_a_space_goes_by_name(folder):
    # LD_PRELOAD takes a space for the end of an entry.
    cuda = folder("with space")
    changed = with_cuda({})
    assert changed["LD_PRELOAD"] == PRELOAD
    assert changed["LD_LIBRARY_PATH"] == str(cuda)
    assert without_cuda(changed) == {}


def test_a_folder_with_a_colon_cannot_be_named(folder):
    folder("with:colon")
    assert with_cuda({"HOME": "/"}) == {"HOME": "/"}


# As a shell that rgpu-run started has it.
def inside_rgpu_run(folder) -> dict[str, str]:
    folder()
    return with_cuda({name: value for name, value in os.environ.items() if name not in LISTS})


def test_a_server_starts_without_them(folder, tmp_path):
    program = tmp_path / "rgpu-opserver"
    program.write_text("#!/bin/sh\nenv > \"$0.env\"\necho 'no' >&2\nexit 1\n")
    program.chmod(0o755)
    environment = {**inside_rgpu_run(folder), "RGPU_BIN_DIR": str(tmp_path)}
    # The libraries are empty files: ld.so says so for every program but the server.
    subprocess.run(
        [RGPU_RUN, "--local", "true"], env=environment, capture_output=True, timeout=60, check=False
    )
    seen = (tmp_path / "rgpu-opserver.env").read_text()
    assert "RGPU_BIN_DIR=" in seen
    assert "librgpu_cuda" not in seen


def options_of_the_server(tmp_path, *arguments: str) -> str:
    program = tmp_path / "rgpu-opserver"
    program.write_text('#!/bin/sh\necho "$@" > "$0.arguments"\nexit 1\n')
    program.chmod(0o755)
    subprocess.run(
        [RGPU_RUN, "--local", *arguments, "true"],
        env={**os.environ, "RGPU_BIN_DIR": str(tmp_path)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    return (tmp_path / "rgpu-opserver.arguments").read_text()


def test_options_of_the_emulated_devices_reach_the_server(tmp_path):
    given = ["--cuda", "emulated", "--cuda-arch", "8.0", "--cuda-devices", "2"]
    given += ["--cuda-memory", "1G", "--cuda-launch-delay", "5"]
    assert " ".join(given) in options_of_the_server(tmp_path, *given)


def test_options_that_are_not_given_are_left_to_the_server(tmp_path):
    assert "--cuda" not in options_of_the_server(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--devices"], "one of the arguments --local --server --host is required"),
        (["--local", "--devices", "ls"], "argument --devices: invalid int value: 'ls'"),
        (["--local", "--devices", "--", "ls"], "--devices before a program needs a number"),
        (["--local", "--devices", "2"], "no program given"),
        (["--local", "--cuda-arch", "sm_89", "ls"], "not a compute capability such as 8.9"),
        (["--local", "--cuda-devices", "0", "ls"], "--cuda-devices is at least 1"),
        (["--local", "--cuda-launch-delay", "-1", "ls"], "--cuda-launch-delay is negative"),
        (["--server", "a:1", "--cuda", "driver", "ls"], "--cuda goes with --local or --host"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, says):
    environment = {name: value for name, value in os.environ.items() if name != "RGPU_OPSERVER"}
    result = subprocess.run(
        [RGPU_RUN, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2
    assert says in result.stderr.splitlines()[-1]


def test_without_the_libraries_no_devices_are_listed(opserver, tmp_path):
    result = subprocess.run(
        [RGPU_RUN, "--server", opserver.address, "--devices"],
        env={**os.environ, "RGPU_CUDA_LIB_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "rgpu-run: this rgpu has no CUDA libraries\n"


DEVICE = r"\d: [^,]+, compute capability 8\.9, \d+\.\d GiB"


def test_devices_of_a_private_server_are_listed():
    private = ["--local", "--cuda", "null", "--cuda-devices", "2"]
    result = subprocess.run(
        [RGPU_RUN, *private, "--devices"], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(rf"{DEVICE}\n{DEVICE}\n", result.stdout)
    assert [line[0] for line in result.stdout.splitlines()] == ["0", "1"]


def test_inside_a_program_of_rgpu_run_its_server_is_asked():
    private = ["--local", "--cuda", "null"]
    result = subprocess.run(
        [RGPU_RUN, *private, "sh", "-c", f"'{RGPU_RUN}' --devices"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(rf"{DEVICE}\n", result.stdout)
