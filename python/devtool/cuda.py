"""nvcc and the CUDA Runtime from PyPI, in a folder of their own: .dev/cuda.

The packages share one tree, nvidia/cu13, which is a CUDA toolkit but for two links that nvcc and
its users look for. They are not in .venv: 280 MB that no Python program imports.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from devtool.console import STATE, DevError, run_logged, say
from devtool.venv import PYTHON, group_requirements

FOLDER = STATE / "cuda"
TOOLKIT = FOLDER / "nvidia" / "cu13"
NVCC = TOOLKIT / "bin" / "nvcc"


def ensure_toolkit() -> bool:
    """Whether nvcc is there; installed if it can be. Without it tests that need it are skipped."""
    if not sys.platform.startswith("linux"):
        return False
    requirements = group_requirements("cuda")
    stamp = FOLDER / ".installed"
    wanted = "\n".join(requirements)
    if stamp.exists() and stamp.read_text() == wanted and _works():
        return True
    say(f"installing into .dev/cuda: {' '.join(requirements)}")
    shutil.rmtree(FOLDER, ignore_errors=True)
    try:
        run_logged(
            "pip install (cuda)",
            [PYTHON, "-m", "pip", "install", "--no-input", "--disable-pip-version-check",
             "--no-deps", "--target", FOLDER, *requirements],
        )  # fmt: skip
    except DevError as error:
        say(f"{error}; tests that compile CUDA programs are skipped")
        return False
    _complete()
    if not _works():
        say("the nvcc from PyPI does not run here; tests that compile CUDA programs are skipped")
        return False
    stamp.write_text(wanted)
    return True


def find_nvcc() -> Path:
    """The one in .dev/cuda, else one on the PATH of CUDA 13; DevError if there is none."""
    if ensure_toolkit():
        return NVCC
    found = shutil.which("nvcc")
    if found is None or "release 13." not in _version(Path(found)):
        raise DevError("no nvcc 13 here, and the one from PyPI cannot be installed or run")
    return Path(found)


def _complete() -> None:
    """What a toolkit has and the packages have not: lib64, and a name for the linker's -lcudart."""
    (TOOLKIT / "lib64").symlink_to("lib")
    (TOOLKIT / "lib" / "libcudart.so").symlink_to("libcudart.so.13")


def _works() -> bool:
    return _version(NVCC) != ""


def _version(nvcc: Path) -> str:
    """What it says; nothing if it does not run."""
    try:
        probe = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return probe.stdout if probe.returncode == 0 else ""
