"""The console script `rgpu-run`: a program with an rgpu server for as long as it runs.

rgpu-run --local python train.py             a private server on this machine
rgpu-run --local --rtt-ms 80 --mbit 100 …    the same, behind an emulated WAN link
rgpu-run --server gpu-host:9720 …            a server that is already there
rgpu-run --host user@gpu-host …              a private server there, through an SSH tunnel
rgpu-run --server gpu-host:9720 --devices    lists the CUDA devices of the server
"""

import argparse
import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

from rgpu_launch import ssh_server
from rgpu_launch.cuda_environment import with_cuda
from rgpu_launch.services import (
    SERVER_OPTIONS,
    Service,
    ServiceError,
    start_opserver,
    start_relay,
)

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# The options that do not go with every way to a server.
_GOES_WITH = {
    **dict.fromkeys(("rtt_ms", "mbit"), ("local",)),
    **dict.fromkeys((*SERVER_OPTIONS, "verbose"), ("local", "host")),
    **dict.fromkeys(ssh_server.OPTIONS, ("host",)),
}
_LIST = object()  # --devices without a number.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # As a shell has it.


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="rgpu-run",
        usage="rgpu-run (--local | --server HOST:PORT | --host [USER@]HOST) [options] "
        "(PROGRAM [ARGUMENT …] | --devices)",
        description='Runs PROGRAM with device="rgpu" and CUDA on a server of its own, or on the '
        "one named.",
        allow_abbrev=False,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--local", action="store_true", help="start a private server on loopback")
    where.add_argument("--server", metavar="HOST:PORT", help="use the server at this address")
    where.add_argument("--host", metavar="[USER@]HOST", help="start a private server there, by ssh")
    link = parser.add_argument_group("the emulated link (with --local)")
    link.add_argument("--rtt-ms", type=float, metavar="MS", help="round-trip time to emulate")
    link.add_argument("--mbit", type=float, metavar="N", help="rate to emulate, each direction")
    _add_server_arguments(parser)
    ssh_server.add_arguments(parser)
    parser.add_argument("--stats", action="store_true", help="print rgpu.stats() when it ends")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.program[:1] == ["--"]:
        options.program = options.program[1:]
    options.list_devices = options.devices is _LIST
    if options.list_devices:
        if options.program:
            parser.error("--devices before a program needs a number")
        options.devices = None
        if not options.local and options.server is None and options.host is None:
            # In a program of another rgpu-run, such as a shell.
            options.server = os.environ.get("RGPU_OPSERVER")
    if not options.local and options.server is None and options.host is None:
        parser.error("one of the arguments --local --server --host is required")
    if not options.program and not options.list_devices:
        parser.error("no program given")
    if wrong := _wrong_combination(options) or _wrong_value(options):
        parser.error(wrong)
    return options


def _add_server_arguments(parser: argparse.ArgumentParser) -> None:
    server = parser.add_argument_group("the private server (with --local or --host)")
    server.add_argument("--device", choices=["auto", "cuda", "cpu"], help="default: auto")
    server.add_argument(
        "--devices",
        type=int,
        nargs="?",
        const=_LIST,
        metavar="N",
        help="with the CPU: how many devices it has. Without N, and with no PROGRAM: list the "
        "CUDA devices of the server, whichever way leads to it",
    )
    server.add_argument("--threads", type=int, metavar="N", help="its threads a kernel")
    server.add_argument("--memory-limit", metavar="SIZE", help="of tensors on each device: 512M")
    server.add_argument(
        "--cuda",
        choices=["auto", "driver", "emulated", "null", "none"],
        help="what runs CUDA programs. auto: the driver if there is a GPU, else emulated ones; "
        "null: nothing, and says that all is well; none: they are refused",
    )
    server.add_argument("--cuda-arch", metavar="N.N", help="that the emulated devices report: 8.9")
    server.add_argument("--cuda-devices", type=int, metavar="N", help="how many are emulated")
    server.add_argument("--cuda-memory", metavar="SIZE", help="of each emulated device: 4G")
    server.add_argument(
        "--cuda-launch-delay", type=int, metavar="US", help="before each emulated kernel"
    )
    server.add_argument(
        "--verbose", action="store_true", default=None, help="show its log on stderr"
    )


def _wrong_combination(options: argparse.Namespace) -> str | None:
    chosen = "local" if options.local else "server" if options.server is not None else "host"
    for name, places in _GOES_WITH.items():
        if getattr(options, name) is not None and chosen not in places:
            word = "-i" if name == "identity" else "-o" if name == "ssh_option" else f"--{name}"
            with_these = " or ".join(f"--{place}" for place in places)
            return f"{word.replace('_', '-')} goes with {with_these}"
    return None


def _wrong_value(options: argparse.Namespace) -> str | None:
    if options.server is not None:
        host, _, port = options.server.rpartition(":")
        if not host or not port.isdigit():
            return f"--server {options.server}: not HOST:PORT"
    for name in ("rtt_ms", "mbit", "cuda_launch_delay"):
        if (getattr(options, name) or 0) < 0:
            return f"--{name.replace('_', '-')} is negative"
    for name in ("devices", "threads", "cuda_devices"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            return f"--{name.replace('_', '-')} is at least 1"
    if options.cuda_arch is not None and not re.fullmatch(r"\d{1,2}\.\d", options.cuda_arch):
        return f"--cuda-arch {options.cuda_arch}: not a compute capability such as 8.9"
    return ssh_server.check_arguments(options) if options.host is not None else None


@contextlib.contextmanager
def _server(options: argparse.Namespace) -> Iterator[str]:
    """The address for the program; a private server and link live as long as the context."""
    if options.server:
        yield options.server
        return
    if options.host:
        with ssh_server.remote_server(options) as address:
            yield address
        return
    with contextlib.ExitStack() as services:

        def keep(service: Service) -> str:
            return services.enter_context(service).address

        address = keep(
            start_opserver(
                verbose=bool(options.verbose),
                **{name: getattr(options, name) for name in SERVER_OPTIONS},
            )
        )
        if options.rtt_ms or options.mbit:
            address = keep(
                start_relay(
                    address,
                    rtt_ms=options.rtt_ms or 0,
                    mbit=options.mbit or 0,
                    verbose=bool(options.verbose),
                )
            )
        yield address


def _terminal_interrupts_us() -> bool:
    """Whether Ctrl-C of a terminal reaches this process, and so the program beside it as well."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _run_program(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The program's return code, negative for a signal, with our signals passed on to it."""
    program: subprocess.Popen[bytes] | None = None
    received: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        from_terminal = number in (signal.SIGINT, signal.SIGQUIT) and _terminal_interrupts_us()
        if program is None:
            received.append(number)
        elif not from_terminal:
            program.send_signal(number)

    for number in _FORWARDED:
        # What was ignored before (nohup) stays so, here and in the program.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    program = subprocess.Popen(command, env=environment)
    for early in received:
        program.send_signal(early)
    return program.wait()


def _end_as(status: int) -> int:
    """The exit code `status`; a negative one ends this process by that signal, as the program."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # One core file is enough.
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    return status


def _stop_on(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status is the program's."""
    options = _parse(arguments)
    command = options.program
    if options.list_devices:
        command = [sys.executable, "-P", "-m", "rgpu_launch.list_devices"]
    if shutil.which(command[0]) is None:
        missing = not os.path.exists(command[0])  # noqa: PTH110 - may be a bare name
        print(
            f"rgpu-run: {command[0]}: {'not found' if missing else 'not executable'}",
            file=sys.stderr,
        )
        return _NOT_FOUND if missing else _NOT_EXECUTABLE
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Until the program runs, the way out still stops what was started.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop_on)
    try:
        with _server(options) as address:
            environment = with_cuda({**os.environ, "RGPU_OPSERVER": address})
            if options.stats:
                environment["RGPU_STATS"] = "1"
            status = _run_program(command, environment)
    except (ServiceError, OSError) as error:
        print(f"rgpu-run: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return _end_as(status)


if __name__ == "__main__":
    sys.exit(main())
