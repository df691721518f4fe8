"""rgpu-run --host … --install: puts this rgpu on the host, in a virtual environment of its own.

The wheel is copied over the connection and installed with pip, which brings the PyTorch that the
wheel asks for. A stamp in the environment, written last, says which wheel is there: the same one
is not installed twice, and what was interrupted is done again.
"""

import argparse
import hashlib
import json
import re
import shlex
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rgpu_launch.programs import build_info
from rgpu_launch.services import ServiceError
from rgpu_launch.ssh import Connection, say

INSTALL_FOLDER = "$HOME/.local/share/rgpu"  # On the host; a shell there expands it.
# Shell scripts for Connection.run().
_STAMP = f'cat "{INSTALL_FOLDER}/venv/installed" 2>/dev/null'
# Arguments: the wheel's name, its size in bytes.
_COPY = (
    f'mkdir -p "{INSTALL_FOLDER}/wheels" && cd "{INSTALL_FOLDER}/wheels" || exit; '
    'cat > "$1.part" || exit; if [ "$(wc -c < "$1.part")" -eq "$2" ]; then mv "$1.part" "$1"; '
    'else echo "the copy of $1 is incomplete" >&2; exit 1; fi'
)
# Arguments: the wheel's name, its Python's version, what to call it, the stamp, pip's arguments.
# The lock keeps two installations from running into each other, where there is flock.
_INSTALL = (
    f'cd "{INSTALL_FOLDER}" || exit; wheel=$1 version=$2 python=$3 stamp=$4; shift 4; '
    "exec 9>lock; if command -v flock >/dev/null; then flock 9; fi; "
    'fits() { "$1" -c "import sys; sys.exit(sys.version.startswith(sys.argv[1]) is False)" '
    '"$version." 2>/dev/null; }; '
    'if [ -z "$python" ]; then for python in "python$version" python3 python; do '
    'if fits "$python"; then break; fi; done; fi; '
    'if fits "$python"; then :; else echo "there is no Python $version, which the wheel is for: '
    'name one with --remote-python" >&2; exit 3; fi; '
    "if fits venv/bin/python && venv/bin/python -m pip --version >/dev/null 2>&1; then :; "
    'else "$python" -m venv --clear venv || exit; fi; '
    'rm -f venv/installed; pip="venv/bin/python -m pip --disable-pip-version-check"; '
    "$pip uninstall --yes --quiet rgpu 2>/dev/null; "
    '$pip install --no-input "$@" "wheels/$wheel" || exit; '
    "venv/bin/rgpu-opserver --help >/dev/null || exit; "
    'rm -f "wheels/$wheel"; echo "$stamp" > venv/installed'
)
_NAME = re.compile(
    r"rgpu-(?P<version>[\w.+]+)(-\d\w*)?-cp(?P<major>\d)(?P<minor>\d+)-[\w.]+-[\w.]+\.whl"
)
_OUTPUT_LINES_MAX = 20


@dataclass(frozen=True)
class _Wheel:
    path: Path
    python: str  # The Python it is for: "3.11".

    def stamp(self, pip_args: list[str]) -> str:
        digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        return " ".join([digest, self.path.name, *pip_args])


def install(connection: Connection, options: argparse.Namespace) -> None:
    """Install the wheel on the host, unless it is there; ServiceError if that fails."""
    wheel = _find_wheel(options.wheel)
    pip_args = shlex.split(options.pip_args or "")
    stamp = wheel.stamp(pip_args)
    host, name, size_bytes = connection.host, wheel.path.name, wheel.path.stat().st_size
    if connection.run(_STAMP)[1].strip() == stamp:
        say(f"{host} has {name} installed")
        return
    say(f"copying {name} ({size_bytes / 1e6:.1f} MB) to {host}")
    with wheel.path.open("rb") as content:
        _check(*connection.run(_COPY, name, str(size_bytes), stdin=content), host)
    say(
        f"installing it with PyTorch in ~/.local/share/rgpu/venv on {host}"
        + ("" if options.verbose else " (minutes, if PyTorch is to be fetched)")
    )
    python = options.remote_python or ""
    step = connection.run(
        _INSTALL, name, wheel.python, python, stamp, *pip_args, show=bool(options.verbose)
    )
    _check(*step, host)
    say(f"installed on {host}")


def _check(status: int, output: str, host: str) -> None:
    if status == 0:
        return
    lines = output.strip().splitlines()[-_OUTPUT_LINES_MAX:]
    for line in lines[:-1]:
        say(f"| {line}")
    reason = lines[-1] if lines else f"exit status {status}"
    raise ServiceError(f"installing on {host} failed: {reason}")


def _find_wheel(named: str | None) -> _Wheel:
    """The wheel to install: the one named, the newest in dist/, or what is installed here."""
    path = Path(named) if named else _newest_wheel() or _wheel_of_this_installation()
    if path is None:
        raise ServiceError("no wheel in dist/: run ./dev wheel, or name one with --wheel")
    if not path.is_file():
        raise ServiceError(f"{path}: there is no such wheel")
    parts = _NAME.fullmatch(path.name)
    if parts is None:
        raise ServiceError(f"{path.name} is no wheel of rgpu's")
    if parts["version"] != (ours := build_info().version):
        raise ServiceError(
            f"{path.name} is not of this rgpu, {ours}: run ./dev wheel, or name one with --wheel"
        )
    return _Wheel(path, f"{parts['major']}.{parts['minor']}")


def _newest_wheel() -> Path | None:
    return max(Path("dist").glob("rgpu-*.whl"), key=lambda p: p.stat().st_mtime, default=None)


def _wheel_of_this_installation() -> Path | None:
    """The file that pip installed rgpu from, if it still is there."""
    try:
        origin = metadata.distribution("rgpu").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    url = urlsplit(json.loads(origin)["url"]) if origin else None
    if url is None or url.scheme != "file" or not url.path.endswith(".whl"):
        return None
    path = Path(unquote(url.path))
    return path if path.is_file() else None
