"""Compiles CUDA programs with nvcc, as a user would, and keeps what it made by content hash.

A program is compiled to an object once and linked with either CUDA Runtime: the static one, which
is nvcc's default, or libcudart.so.13. The images are PTX only, so no ptxas runs: about 0.6 s a
program.
What is kept lies in build/cuda-programs/ and is made again when the source, a header beside it,
nvcc or an option is another.
"""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "cuda-programs"
CUDARTS = ("static", "shared")
_MAJOR = "release 13."
_LINK = {
    "static": ["-lcudart_static", "-ldl", "-lrt", "-lpthread"],
    "shared": ["-l:libcudart.so.13", "-lpthread"],
}
_locks: dict[Path, threading.Lock] = {}
_locks_lock = threading.Lock()


class CompileError(AssertionError):
    """nvcc or the linker refused a program; the text is what it said."""


@functools.cache
def find_nvcc() -> Path | None:
    """RGPU_NVCC, the one of ./dev, or an installed one; None if none of them is of CUDA 13."""
    candidates = [
        os.environ.get("RGPU_NVCC"),
        ROOT / ".dev" / "cuda" / "nvidia" / "cu13" / "bin" / "nvcc",
        shutil.which("nvcc"),
        "/usr/local/cuda/bin/nvcc",
    ]
    for candidate in filter(None, candidates):
        found = Path(candidate).resolve()
        if _MAJOR in _version(found) and _libraries_of(found.parent.parent) is not None:
            return found
    return None


def _libraries_of(toolkit: Path) -> Path | None:
    folders = (toolkit / name for name in ("lib64", "lib"))
    return next((f for f in folders if (f / "libcudart_static.a").exists()), None)


@functools.cache
def _version(nvcc: Path) -> str:
    try:
        command = [str(nvcc), "--version"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


@pytest.fixture(scope="session")
def nvcc() -> Path:
    """The path of nvcc 13; a test that asks for it is skipped where there is none."""
    found = find_nvcc()
    if found is None:
        pytest.skip("no nvcc 13 here (./dev test installs it from PyPI into .dev/cuda)")
    return found


def toolkit() -> Path:
    """The toolkit nvcc belongs to: it has include/, lib/ or lib64/."""
    found = find_nvcc()
    assert found is not None
    return found.parent.parent


def library_folder() -> Path:
    """Where the toolkit keeps libcudart.so.13 and libcudart_static.a."""
    found = _libraries_of(toolkit())
    assert found is not None
    return found


def compile_program(
    source: Path,
    out: Path | None = None,
    *,
    cudart: str = "static",
    arch: int = 75,
    options: Sequence[str] = (),
) -> Path:
    """Compile and link `source`, for compute_`arch` as PTX; the path of the program.

    With `out` the program is copied there as well. `options` are nvcc's.
    """
    found = find_nvcc()
    assert found is not None, "ask for the fixture nvcc first"
    source = source.resolve()
    folder = CACHE / f"{source.stem}-{_content(source, found, arch, options)}"
    with _lock_of(folder):
        program = folder / f"{source.stem}_{cudart}"
        if not program.exists():
            folder.mkdir(parents=True, exist_ok=True)
            object_file = folder / "program.o"
            if not object_file.exists():
                image = f"arch=compute_{arch},code=compute_{arch}"
                compiler = [str(found), "-ccbin", "g++", "-std=c++17", "-gencode", image]
                _make(object_file, [*compiler, *options, "-c", str(source)])
            # What nvcc runs at last; its step before, nvlink, has nothing to do without -rdc.
            command = ["g++", str(object_file), f"-L{library_folder()}", *_LINK[cudart]]
            _make(program, command)
    if out is not None:
        shutil.copy2(program, out)
        return out
    return program


def _content(source: Path, nvcc: Path, arch: int, options: Sequence[str]) -> str:
    """A hash of everything that ends in the program."""
    digest = hashlib.sha256(repr((arch, list(options), _version(nvcc), _LINK)).encode())
    headers = (path for end in ("*.h", "*.cuh") for path in source.parent.glob(end))
    included = re.findall(r'^#include "(\w+\.cu)"', source.read_text(), re.MULTILINE)
    others = (source.parent / name for name in included)
    for path in [source, *others, *sorted(headers)]:
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:20]


def _lock_of(folder: Path) -> threading.Lock:
    with _locks_lock:
        return _locks.setdefault(folder, threading.Lock())


def _make(target: Path, command: list[str]) -> None:
    """Run `command -o target`; `target` appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        done = subprocess.run(
            [*command, "-o", str(made)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            raise CompileError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        made.rename(target)
