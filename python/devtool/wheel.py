"""./dev wheel: one wheel in dist/ that pip installs next to torch, on machines with nothing else.

It is a Release build in a tree of its own, build/wheel. Only glibc, GCC's runtime libraries and
PyTorch's are linked from outside. GCC's stay shared: exceptions cross from PyTorch into rgpu, which
two copies of the unwinder or of type information would break.
"""

import re
import subprocess
import tempfile
import zipfile
from pathlib import Path

from devtool import build
from devtool.console import ROOT, DevError, run_logged, say
from devtool.venv import VENV, ensure_group

DIST = ROOT / "dist"
# auditwheel leaves these to torch's wheel, which rgpu's requires.
_TORCH_LIBRARIES = ("libtorch.so", "libtorch_*.so", "libc10.so")
_SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so\.\d+|ld-linux-[\w-]+\.so\.\d+")
_TORCH = re.compile(r"lib(torch(_cpu|_python)?|c10)\.so")
_NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")


def wheel() -> Path:
    """Make it; its path."""
    build.setup()
    ensure_group("wheel")
    say("building the wheel in build/wheel (a Release build)")
    made = build.make_wheel(ROOT / "build" / "wheel", ROOT / "build" / "wheel" / "raw", {})
    if foreign := foreign_libraries(made):
        raise DevError("the wheel needs what other machines may not have: " + ", ".join(foreign))
    for old in DIST.glob("rgpu-*.whl"):
        old.unlink()
    # What glibc and GCC it needs is read off its symbols, and said in its name.
    run_logged(
        "auditwheel",
        [VENV / "bin" / "python", "-m", "auditwheel", "repair", "--wheel-dir", DIST,
         *(f"--exclude={name}" for name in _TORCH_LIBRARIES), made],
        env={"PATH": f"{VENV / 'bin'}:/usr/bin:/bin"},
    )  # fmt: skip
    (path,) = DIST.glob("rgpu-*.whl")
    say(f"{path.relative_to(ROOT)} ({path.stat().st_size / 1e6:.1f} MB)")
    return path


def foreign_libraries(wheel: Path) -> list[str]:
    """Each "FILE needs LIBRARY" that neither system, torch nor the wheel itself is sure to have."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        files = elf_files(Path(folder))
        own = {path.name for path in files}
        return [
            f"{path.name} needs {library}"
            for path in files
            for library in needed_libraries(path)
            if library not in own
            if not _SYSTEM.fullmatch(library) and not _TORCH.fullmatch(library)
        ]


def elf_files(folder: Path) -> list[Path]:
    """Every library and executable below `folder`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]


def needed_libraries(path: Path) -> list[str]:
    """The names in the NEEDED entries of an ELF file."""
    dynamic = subprocess.run(
        ["readelf", "--wide", "--dynamic", path], capture_output=True, text=True, check=True
    ).stdout
    return _NEEDED.findall(dynamic)
