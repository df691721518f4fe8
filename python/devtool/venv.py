""".venv at the root of the checkout, and the Python packages pinned in pyproject.toml."""

import hashlib
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

from devtool.console import ROOT, DevError, run_logged, say

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"


def ensure_venv() -> None:
    """Make .venv with this Python, unless one that works is there."""
    if PYTHON.exists() and _runs():
        return
    if importlib.util.find_spec("ensurepip") is None:
        raise DevError(
            f"{sys.executable} has no ensurepip, so it cannot make .venv (Debian: python3-venv)"
        )
    say(f"making .venv with Python {sys.version.split()[0]}")
    run_logged("venv", [sys.executable, "-m", "venv", "--clear", VENV])


def ensure_group(group: str) -> None:
    """Install a dependency group of pyproject.toml into .venv, unless it is there."""
    requirements = group_requirements(group)
    stamp = VENV / f".dev-{group}"
    wanted = hashlib.sha256("\n".join(requirements).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    say(f"installing into .venv: {' '.join(requirements)}")
    run_logged(
        f"pip install ({group})",
        [PYTHON, "-m", "pip", "install", "--no-input", "--disable-pip-version-check",
         *requirements],
    )  # fmt: skip
    stamp.write_text(wanted)


def group_requirements(group: str) -> list[str]:
    """The pinned packages of a dependency group of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requirements: list[str] = project["dependency-groups"][group]
    return requirements


def _runs() -> bool:
    """Whether .venv's Python starts and has pip: one made by another Python may be gone."""
    probe = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([PYTHON, "-c", probe], capture_output=True, check=False).returncode == 0


def site_packages() -> Path:
    """Where .venv keeps its packages."""
    found = sorted((VENV / "lib").glob("python3.*/site-packages"))
    if not found:
        raise DevError(f"{VENV} has no site-packages; remove it and run ./dev setup")
    return found[-1]
