"""Programs that run beside a test and talk with it line by line, and signals to servers."""

import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time

from rgpu_launch.services import Service


class Program:
    """A program that runs beside the test; say() answers its input(), heard() is its next line."""

    def __init__(self, code: str, server: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", textwrap.dedent(code)],
            env={**os.environ, "RGPU_OPSERVER": server},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("(the program ended its output)")

    def heard(self, within_s: float = 60) -> str:
        return self._lines.get(timeout=within_s)

    def say(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Its exit status and what it wrote to stderr."""
        assert self.process.stdin is not None and self.process.stderr is not None
        self.process.stdin.close()
        return self.process.wait(60), self.process.stderr.read()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def signal_all(service: Service, number: int) -> None:
    """To the server and its workers."""
    os.killpg(service.process.pid, number)


def waiting_thread_state(pid: int) -> str:
    """The main thread's state as the kernel has it: S when it stands still."""
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - procfs
        return stat.read().rpartition(")")[2].split()[0]


def wait_until_still(pid: int) -> None:
    """Return once the program's main thread slept through a while without using the CPU."""
    used = -1
    while used != (now := cpu_ticks(pid)):
        used = now
        time.sleep(0.3)


def cpu_ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - procfs
        fields = stat.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def go_on_with_server_stopped(program: Program, server: Service, says: str) -> None:
    """The program is ready; its server is stopped; it goes on and says so."""
    assert program.heard() == "ready"
    signal_all(server, signal.SIGSTOP)
    program.say()
    assert program.heard() == says
