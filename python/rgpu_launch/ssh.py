"""Connection: one login by the system's ssh, for a server on the host and the tunnel to it.

It is ssh's own control master, whose remote command only waits for the end of its input; what runs
on the host is further sessions of it, and the tunnel is added to it, so that a passphrase is asked
for once. It ends with its context, and when this process is killed.
"""

import argparse
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

from rgpu_launch.services import Service, ServiceError

STEP_TIMEOUT_S = 120.0  # Of what asks nobody anything.
_FORWARD_TRIES_MAX = 10
_TEMPORARY_PATH_MAX = 60  # A Unix socket's path has about 104 bytes, of which ssh needs 17.
_READY = "rgpu-connected"
_HINTS = {
    "Host key verification failed": " (`ssh{port} {host}` shows the key, for you to accept)",
    "Permission denied": " (name a key with -i, or load it into ssh-agent)",
}


def say(text: str) -> None:
    """One line about what is being done."""
    print(f"rgpu-run: {text}", file=sys.stderr, flush=True)


class Connection:
    """A connection of ssh to `host`, logged in, until its context ends.

    A terminal's user may be asked for a passphrase or about a host key; without a terminal nothing
    is asked. Host keys are checked as ssh's configuration says. Errors: ServiceError.
    """

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        """Log in. `folder` holds the control socket and may be removed when all is set up."""
        if shutil.which("ssh") is None:
            raise ServiceError(
                "there is no ssh here: --host needs the OpenSSH client (Debian: openssh-client)"
            )
        self.host: str = options.host
        self._control = folder / "ssh"
        self.lost = threading.Event()
        interactive = _can_ask()
        settings = [
            "ControlMaster=yes", f"ControlPath={self._control}", "ControlPersist=no",
            "RemoteCommand=none", "ClearAllForwardings=yes",
            *(options.ssh_option or []),
            "ServerAliveInterval=15", "ServerAliveCountMax=4", "ConnectTimeout=30",
            *([] if interactive else ["BatchMode=yes"]),
        ]  # fmt: skip
        command = ["ssh", "-T", "-a", "-x", *(f"-o{setting}" for setting in settings)]
        if options.ssh_port is not None:
            command += ["-p", str(options.ssh_port)]
        if options.identity:
            command += ["-i", options.identity]
        try:
            self.master = Service(
                f"the SSH connection to {self.host}",
                [*command, "--", self.host, f"echo {_READY}; exec cat >/dev/null"],
                timeout_s=None if interactive else STEP_TIMEOUT_S,
                verbose=bool(options.verbose),
                expects=re.compile(f"({_READY})"),
                own_group=False,
                hold_input=True,
                when_lost=self._say_lost,
            )
        except ServiceError as error:
            hints = (hint for text, hint in _HINTS.items() if text in str(error))
            port = "" if options.ssh_port is None else f" -p {options.ssh_port}"
            hint = next(hints, "").format(host=self.host, port=port)
            raise ServiceError(f"{error}{hint}") from None

    def _say_lost(self, master: Service) -> None:
        self.lost.set()
        say(f"the SSH tunnel to {self.host} was lost: {master.last_words()}")

    def session(self, script: str, *arguments: str) -> list[str]:
        """The command that runs a shell script on the host.

        One line without single quotes, backslashes and exclamation marks: so every login shell
        passes it on to /bin/sh as it is.
        """
        words = shlex.join(["/bin/sh", "-c", script, "sh", *arguments])
        # Without the master it fails, rather than connect by itself.
        alone = ["-F", "none", "-oProxyCommand=false", "-oBatchMode=yes", "-oLogLevel=ERROR"]
        return ["ssh", *alone, "-S", str(self._control), "-T", "--", self.host, f"exec {words}"]

    def run(
        self,
        script: str,
        *arguments: str,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
        show: bool = False,
    ) -> tuple[int, str]:
        """Run a script to its end; its exit status, and its output unless it is shown."""
        result = subprocess.run(
            self.session(script, *arguments),
            stdin=stdin,
            stdout=sys.stderr if show else subprocess.PIPE,
            stderr=None if show else subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        return result.returncode, result.stdout or ""

    def forward(self, remote_port: int) -> str:
        """Forward a free port of this machine's loopback to the host's; its address."""
        for _ in range(_FORWARD_TRIES_MAX):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            # Another process may have taken it by now; then ssh cannot bind it, and says so.
            try:
                forwarded = subprocess.run(
                    ["ssh", "-F", "none", "-S", str(self._control), "-O", "forward",
                     "-L", f"127.0.0.1:{port}:127.0.0.1:{remote_port}", "--", self.host],
                    stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                    timeout=STEP_TIMEOUT_S,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise ServiceError(f"{self.host} does not answer") from None
            if forwarded.returncode == 0:
                return f"127.0.0.1:{port}"
        reason = (forwarded.stderr.strip().splitlines() or ["ssh refused"])[-1]
        raise ServiceError(f"no port can be forwarded to {self.host}: {reason}")

    def __enter__(self) -> "Connection":
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Log out."""
        self.master.stop()


def _can_ask() -> bool:
    """Whether somebody can be asked for a passphrase."""
    if os.environ.get("SSH_ASKPASS_REQUIRE") in ("force", "prefer"):
        return True
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def control_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for a Connection's control socket, which nobody else can enter."""
    usual = tempfile.gettempdir()
    fits = len(usual) < _TEMPORARY_PATH_MAX and re.fullmatch(r"[\w/.-]+", usual, re.ASCII)
    return tempfile.TemporaryDirectory(
        prefix="rgpu-", dir=usual if fits else "/tmp", ignore_cleanup_errors=True
    )
