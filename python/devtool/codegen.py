"""./dev codegen: cuda_shim/generated/ from the model, and the model from CUDA's headers."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from devtool.console import ROOT, STATE, DevError, run, run_logged, say
from devtool.venv import PYTHON, ensure_group, ensure_venv

_FOLDER = ROOT / "cuda_shim" / "codegen"


def codegen(headers: bool, check: bool, coverage: str | None) -> int:
    """Rewrite what changed; with `headers` read CUDA's own first; an exit status."""
    if headers:
        _read_headers()
    options = ["--check"] if check else []
    if coverage:
        options = ["--coverage", coverage, "--library", str(_client_library())]
    # The generator needs nothing but Python, so that ./dev codegen works before ./dev setup.
    return run([sys.executable, _FOLDER / "generate.py", *options], check=False)


def _read_headers() -> None:
    ensure_venv()
    ensure_group("codegen")
    packages = STATE / "cuda_packages"
    wanted = " ".join(_pinned())
    stamp = packages / "installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        say("downloading CUDA's headers and libraries (800 MB, once)")
        run_logged(
            "pip install (CUDA packages)",
            [PYTHON, "-m", "pip", "install", "--no-input", "--disable-pip-version-check",
             "--no-deps", "--upgrade", "--target", packages, *_pinned()],
        )  # fmt: skip
        stamp.write_text(wanted)
    run([PYTHON, _FOLDER / "read_headers.py", "--packages", packages])


def _pinned() -> tuple[str, ...]:
    """PACKAGES of read_headers.py, which cannot be imported without libclang."""
    for statement in ast.parse((_FOLDER / "read_headers.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "PACKAGES":
            names: tuple[str, ...] = ast.literal_eval(statement.value)
            return names
    raise DevError("read_headers.py has no PACKAGES")


def _client_library() -> Path:
    found = sorted(
        (ROOT / "build").glob("*/cuda_shim/lib/librgpu_cuda.so"), key=lambda p: p.stat().st_mtime
    )
    if not found:
        raise DevError("no build holds librgpu_cuda.so; run ./dev build first")
    return found[-1]
