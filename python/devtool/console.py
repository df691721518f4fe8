"""What ./dev says, and how it runs other programs."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".dev"  # Logs and test reports.


class DevError(Exception):
    """A command that cannot go on; its text is all the user needs."""


def say(text: str) -> None:
    """One line about what is being done."""
    print(f"dev: {text}", flush=True)


def run(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, check: bool = True
) -> int:
    """Run `command` from the root with its output shown; DevError if it fails and `check`."""
    status = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        check=False,
    ).returncode
    if check and status != 0:
        raise DevError(f"{Path(command[0]).name} failed (exit status {status})")
    return status


def run_logged(
    name: str,
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    ask: bool = False,
) -> None:
    """Run `command` with its output in .dev/NAME.log, whose end is shown if it fails.

    Every half minute a line says that it still runs. `ask` leaves it the terminal, for a password.
    """
    STATE.mkdir(exist_ok=True)
    log = STATE / f"{re.sub(r'[^a-z0-9]+', '-', name).strip('-')}.log"
    began = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=None if ask else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        while True:
            try:
                status = process.wait(30)
                break
            except subprocess.TimeoutExpired:
                say(f"… {name} still at work ({time.monotonic() - began:.0f} s)")
    if status != 0:
        sys.stdout.write("".join(log.read_text(errors="replace").splitlines(True)[-25:]))
        raise DevError(f"{name} failed; all of its output: {log.relative_to(ROOT)}")
