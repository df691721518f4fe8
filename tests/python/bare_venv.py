"""A virtual environment that has PyTorch and pip, as links to .venv's, but not rgpu."""

import subprocess
import sys
import sysconfig
from pathlib import Path


def make_bare_venv(folder: Path) -> Path:
    """Make it; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith("rgpu") and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def run_installed(python: Path, program: str, folder: Path) -> str:
    """The output of `program` on a private server, both of the environment `python` is in."""
    path = folder / "program.py"
    path.write_text(program)
    result = subprocess.run(
        [python.with_name("rgpu-run"), "--local", "--device", "cpu", python, path],
        env={"PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
