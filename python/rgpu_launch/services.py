"""Services: a private rgpu-opserver or rgpu-relay, as a child process with an address.

A service is started on a free port of the loopback interface and says which one in its first
line of output. It is in a process group of its own, so that a terminal's Ctrl-C goes to the
program alone; it is told to end by stop(), and by the kernel should this process be killed.
"""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, Self

from rgpu_launch.programs import find_program

_PR_SET_PDEATHSIG = 1
_LOG_PREFIX = re.compile(r"^\S+ \S+ \w \[\d+\] ")  # Date, time, level, process.
_LISTENING = re.compile(r"\blistening on (\S+:\d+)")


class ServiceError(RuntimeError):
    """A service that did not start; one line says why."""


def _die_with_parent() -> Callable[[], None] | None:
    """What a child runs before its program, so that it gets SIGTERM when this process dies."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # It died before we asked.
            os._exit(1)

    return ask


class Service:
    """One child process that listens on `address` ("127.0.0.1:PORT") until stop()."""

    def __init__(
        self, name: str, arguments: Sequence[str], *, timeout_s: float = 60, verbose: bool = False
    ) -> None:
        """Start it and wait for its address; ServiceError if there is none after `timeout_s`.

        Its log goes to this process's stderr if `verbose`, otherwise to a file without a name that
        ends with it; log() reads that.
        """
        self.name = name
        self._log: IO[str] | None = None if verbose else tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.banner = ""  # Its first line: what it is, and where.
        self.last_line = ""
        self._address: str | None = None
        self._spoke = threading.Event()
        self.process = subprocess.Popen(
            [str(find_program(name)), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509 - ctypes was loaded before the fork
        )
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        if not self._spoke.wait(timeout_s) or self._address is None:
            self.stop()
            reason = (self.log().strip().splitlines() or ["it gave no address"])[-1]
            raise ServiceError(f"{name} did not start: {_LOG_PREFIX.sub('', reason)}")
        self.address: str = self._address

    def _read_output(self) -> None:
        """Read its output to the end, so that it never blocks on a full pipe."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.last_line = line.strip()
            if self._address is None and (found := _LISTENING.search(line)):
                self._address, self.banner = found[1], line.strip()
                self._spoke.set()
        self._spoke.set()

    def log(self) -> str:
        """What it wrote to stderr so far; empty when verbose."""
        if self._log is None:
            return ""
        return os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")

    def stop(self, timeout_s: float = 5) -> int:
        """End it and everything in its group; its exit status. May be called again."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)
        # A worker outlives a server that was killed outright: the group goes in any case.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        self._reader.join(timeout_s)
        return status

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """stop()."""
        self.stop()


def start_opserver(
    device: str = "auto", threads: int | None = None, *, verbose: bool = False
) -> Service:
    """Start a server on a free port; `threads` None leaves their number to it."""
    arguments = ["--port", "0", "--device", device]
    if threads is not None:
        arguments += ["--threads", str(threads)]
    return Service("rgpu-opserver", arguments, verbose=verbose)


def start_relay(to: str, *, rtt_ms: float = 0, mbit: float = 0, verbose: bool = False) -> Service:
    """Start the emulated link to the address `to`: a round-trip delay, and a cap per direction.

    Zero is no delay, and no cap.
    """
    arguments = ["--to", to, "--rtt-ms", f"{rtt_ms:g}", "--mbit", f"{mbit:g}"]
    return Service("rgpu-relay", arguments, verbose=verbose)
