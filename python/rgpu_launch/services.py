"""Services: a private rgpu-opserver, rgpu-relay or ssh, as a child process with an address.

A service says in a line of output where it listens (a free port of the loopback interface), or
that it is ready. A terminal's Ctrl-C goes to the program alone. A service is told to end by
stop(), and by the kernel should this process be killed.
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

from rgpu_launch.cuda_environment import without_cuda
from rgpu_launch.programs import find_program, this_compiler

# Options of rgpu-opserver that rgpu-run has as well, by the names that argparse gives them.
SERVER_OPTIONS = (
    "device", "devices", "threads", "memory_limit", "cuda", "cuda_arch", "cuda_devices",
    "cuda_memory", "cuda_launch_delay",
)  # fmt: skip
_PR_SET_PDEATHSIG = 1
_LOG_BYTES_MAX = 1 << 20
_LOG_PREFIX = re.compile(r"^\S+ \S+ \w \[\d+\] ")  # Date, time, level, process.
_LISTENING = re.compile(r"\blistening on (\S+:\d+)")


class ServiceError(RuntimeError):
    """A service that did not start; one line says why."""


def _before_exec(*, own_group: bool) -> Callable[[], None]:
    """What a child runs before its program: it gets SIGTERM when this process dies.

    In our process group (it may ask the terminal's user then) it ignores the terminal's signals.
    """
    linux = sys.platform.startswith("linux")
    prctl = ctypes.CDLL(None, use_errno=True).prctl if linux else None
    parent = os.getpid()

    def ask() -> None:
        if not own_group:
            for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # It died before we asked.
            os._exit(1)

    return ask


class Service:
    """One child process that listens on `address` ("127.0.0.1:PORT") until stop()."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        timeout_s: float | None = 60,
        verbose: bool = False,
        expects: re.Pattern[str] = _LISTENING,
        own_group: bool = True,
        hold_input: bool = False,
        when_lost: Callable[["Service"], None] | None = None,
    ) -> None:
        """Start it and wait for its address; ServiceError if there is none after `timeout_s`.

        The address is the first group of `expects` in a line of output. Its log goes to this
        process's stderr if `verbose`, otherwise to a file without a name that ends with it; log()
        reads that. With `hold_input` its standard input stays open until stop(), which then lets
        it end by itself. `when_lost` is called, in another thread, if it ends before stop().
        """
        self.name = name
        self._expects, self._when_lost, self._own_group = expects, when_lost, own_group
        self._stopping = False
        self._log: IO[str] | None = None if verbose else tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.banner = ""  # Its first line: what it is, and where.
        self.last_line = ""
        self._address: str | None = None
        self._spoke = threading.Event()
        self.process = subprocess.Popen(
            command,
            env=without_cuda(os.environ),
            stdin=subprocess.PIPE if hold_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            errors="replace",
            start_new_session=own_group,
            preexec_fn=_before_exec(own_group=own_group),  # noqa: PLW1509 - ctypes is loaded
        )
        self._reader = threading.Thread(target=self._read_output, daemon=True)
        self._reader.start()
        try:
            spoke = self._spoke.wait(timeout_s)
        except BaseException:  # Ctrl-C, or a signal that means the way out.
            self.process.terminate()
            self.stop()
            raise
        if not spoke:
            self.process.terminate()
        if self._address is None:
            self.stop()
            raise ServiceError(f"{name} did not start: {self.last_words()}")
        self.address: str = self._address

    def _read_output(self) -> None:
        """Read its output to the end, so that it never blocks on a full pipe."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.last_line = line.strip()
            if self._address is None and (found := self._expects.search(line)):
                self._address, self.banner = found[1], line.strip()
                self._spoke.set()
        self._spoke.set()
        if self._address is not None and self._when_lost and not self._stopping:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(2)  # ssh closes its output before it writes why it ends.
            self._when_lost(self)

    def log(self) -> str:
        """What it wrote to stderr so far, of which the last MB; empty when verbose."""
        if self._log is None:
            return ""
        begin = max(0, os.fstat(self._log.fileno()).st_size - _LOG_BYTES_MAX)
        return os.pread(self._log.fileno(), _LOG_BYTES_MAX, begin).decode(errors="replace")

    def last_words(self) -> str:
        """The last line of its log, as the reason of its end."""
        if self._log is None:
            return "what it wrote is above"
        lines = self.log().strip().splitlines() or ["it said nothing"]
        return _LOG_PREFIX.sub("", lines[-1]).strip()

    def stop(self, timeout_s: float = 5) -> int:
        """End it and everything in its group; its exit status. May be called again."""
        self._stopping = True
        if self.process.stdin is not None:
            self.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)
        # A worker outlives a server that was killed outright: the group goes in any case.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._own_group:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
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


def opserver_options(**given: str | int | None) -> list[str]:
    """What rgpu-opserver is told: some of SERVER_OPTIONS; None leaves a thing to it."""
    return [
        word
        for name, value in {**given, "device": given.get("device") or "auto"}.items()
        if value is not None
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def start_opserver(
    device: str = "auto",
    threads: int | None = None,
    *,
    compiler: str | None = None,
    verbose: bool = False,
    **given: str | int | None,
) -> Service:
    """Start a server on a free port; `given` as in opserver_options().

    ``compiler``: the Python that compiles graphs; None: this one; "": none, they are interpreted.
    """
    options = opserver_options(device=device, threads=threads, **given)
    chosen = this_compiler() if compiler is None else ["--compiler", compiler]
    return _start("rgpu-opserver", ["--port", "0", *options, *chosen], verbose=verbose)


def start_relay(to: str, *, rtt_ms: float = 0, mbit: float = 0, verbose: bool = False) -> Service:
    """Start the emulated link to the address `to`: a round-trip delay, and a cap per direction.

    Zero is no delay, and no cap.
    """
    arguments = ["--to", to, "--rtt-ms", f"{rtt_ms:g}", "--mbit", f"{mbit:g}"]
    return _start("rgpu-relay", arguments, verbose=verbose)


def _start(name: str, arguments: Sequence[str], *, verbose: bool) -> Service:
    return Service(name, [str(find_program(name)), *arguments], verbose=verbose)
