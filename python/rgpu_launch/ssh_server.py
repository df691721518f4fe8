"""rgpu-run --host: a private rgpu-opserver on another machine, reached through an SSH tunnel.

The server ends when its standard input does (rgpu-opserver --exit-with-stdin), which is the SSH
channel: so it ends with this process, with ssh, with the connection and with the host's sshd,
however any of them comes to its end. The control socket is gone before the program starts.
"""

import argparse
import contextlib
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from rgpu_launch.programs import BuildInfo, build_info, major_minor
from rgpu_launch.services import SERVER_OPTIONS, Service, ServiceError, opserver_options
from rgpu_launch.ssh import STEP_TIMEOUT_S, Connection, control_folder, say
from rgpu_launch.ssh_install import INSTALL_FOLDER, install

OPTIONS = (
    "ssh_port", "identity", "ssh_option", "remote_port", "install", "wheel", "pip_args",
    "remote_python",
)  # fmt: skip
_PROBE_TIMEOUT_S = 20.0
_GOODBYE = 6  # docs/protocol.md: the frame's kind, at offset 4 of its header of 32 bytes.
_BANNER = re.compile(r"PyTorch ([\w.+]+)(?:, rgpu ([\w.+]+), protocol (\d+))?\)")
# A shell script for Connection.session(); its arguments are the server's.
_START = (
    f'for p in "{INSTALL_FOLDER}/venv/bin/rgpu-opserver" "$(command -v rgpu-opserver)" '
    '"$HOME/.local/bin/rgpu-opserver"; do if [ -x "$p" ]; then exec "$p" "$@"; fi; done; '
    'echo "it is not installed there: run again with --install" >&2; exit 127'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of --host."""
    ssh = parser.add_argument_group("the SSH connection (with --host)")
    ssh.add_argument("--ssh-port", type=int, metavar="N", help="of the host's sshd")
    ssh.add_argument("-i", dest="identity", metavar="FILE", help="private key, as of ssh -i")
    ssh.add_argument(
        "-o", dest="ssh_option", action="append", metavar="NAME=VALUE", help="as of ssh -o"
    )
    ssh.add_argument(
        "--remote-port", type=int, metavar="N", help="use the server that listens there on N"
    )
    install = parser.add_argument_group("installing on the host (with --host)")
    install.add_argument(
        "--install",
        action="store_true",
        default=None,
        help="install this rgpu on the host first, with PyTorch",
    )
    install.add_argument(
        "--wheel", metavar="FILE", help="default: the newest in dist/, or this installation's"
    )
    install.add_argument("--pip-args", metavar="'ARG …'", help="for pip install on the host")
    install.add_argument("--remote-python", metavar="PROGRAM", help="the Python to install for")


def check_arguments(options: argparse.Namespace) -> str | None:
    """What is wrong with the options of --host, if anything."""
    if options.host.startswith("-") or not options.host.strip():
        return f"--host {options.host}: not [USER@]HOST"
    for name in ("ssh_port", "remote_port"):
        if getattr(options, name) is not None and not 0 < getattr(options, name) < 1 << 16:
            return f"--{name.replace('_', '-')} is not a port"
    if options.identity and not os.access(options.identity, os.R_OK):
        return f"-i {options.identity}: there is no such file, or it cannot be read"
    if options.remote_port is not None:
        for name in (*SERVER_OPTIONS, "install"):
            if getattr(options, name) is not None:
                word = f"--{name.replace('_', '-')}"
                return f"{word} does not go with --remote-port: that server is already there"
    if not options.install:
        for name in ("wheel", "pip_args", "remote_python"):
            if getattr(options, name) is not None:
                return f"--{name.replace('_', '-')} goes with --install"
    return None


def _start_server(connection: Connection, options: argparse.Namespace) -> Service:
    given = opserver_options(**{name: getattr(options, name) for name in SERVER_OPTIONS})
    arguments = ["--port", "0", "--exit-with-stdin", *given]

    def say_ended(server: Service) -> None:
        # When the connection is what ended, that is said; it takes ssh a moment to tell.
        if not connection.lost.wait(3):
            say(
                f"rgpu-opserver on {connection.host} has ended (exit status "
                f"{server.process.returncode}); its log ends: {server.last_words()}"
            )

    server = Service(
        f"rgpu-opserver on {connection.host}",
        connection.session(_START, *arguments),
        timeout_s=STEP_TIMEOUT_S,
        verbose=bool(options.verbose),
        hold_input=True,
        when_lost=say_ended,
    )
    try:
        _check_version(server.banner, build_info(), connection.host)
    except BaseException:
        server.stop()
        raise
    return server


def _check_version(banner: str, ours: BuildInfo, host: str) -> None:
    """ServiceError unless the server's first line says that it was built as we were."""
    found = _BANNER.search(banner)
    theirs = None
    if found and found[2]:
        theirs = BuildInfo(found[2], int(found[3]), major_minor(found[1]))
    if theirs != ours:
        raise ServiceError(
            f"{host} has {theirs or 'an older rgpu'}, this machine {ours}: "
            "run again with --install, or install the same on both"
        )


def _probe(address: str, connection: Connection, port: int) -> None:
    """ServiceError unless an rgpu-opserver answers through the tunnel.

    A first byte that begins no preamble is answered with a Goodbye.
    """
    local_host, _, local_port = address.rpartition(":")
    header = b""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((local_host, int(local_port)), _PROBE_TIMEOUT_S) as probe,
    ):
        probe.sendall(b"?")
        while len(header) < 32 and (received := probe.recv(32 - len(header))):
            header += received
    if len(header) < 32 or int.from_bytes(header[4:6], "little") != _GOODBYE:
        reason = connection.master.log().strip().splitlines()
        raise ServiceError(
            f"no rgpu-opserver answers on port {port} of {connection.host}"
            + (f": {reason[-1]}" if reason else "")
        )


@contextlib.contextmanager
def remote_server(options: argparse.Namespace) -> Iterator[str]:
    """The address of a server on the host; tunnel and server live as long as the context."""
    with contextlib.ExitStack() as services:
        with control_folder() as folder:
            connection = services.enter_context(Connection(options, Path(folder)))
            if options.install:
                install(connection, options)
            port = options.remote_port
            if port is None:
                server = services.enter_context(_start_server(connection, options))
                port = int(server.address.rpartition(":")[2])
            address = connection.forward(port)
            _probe(address, connection, port)
        yield address
