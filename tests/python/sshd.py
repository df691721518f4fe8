"""A real sshd on loopback, with keys, configuration and a home of its own, ended by its pid."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

PROGRAM = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
USER = pwd.getpwuid(os.getuid()).pw_name


def make_key(path: Path, passphrase: str = "") -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", path],
        stdin=subprocess.DEVNULL,
        check=True,
    )
    return path


def children(pid: int) -> list[int]:
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [int(word) for word in words]


def descendants(pid: int) -> list[int]:
    below = children(pid)
    return [*below, *(further for child in below for further in descendants(child))]


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether it runs; a zombie that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_end(pids: list[int], within_s: float = 20) -> bool:
    deadline = time.monotonic() + within_s
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Sshd:
    """Listens on `port`; sessions have HOME `home`, and `bin` first on their PATH."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.home, self.bin, self._folder = folder / "home", folder / "bin", folder
        self.home.mkdir()
        self.bin.mkdir()
        self.host_key = make_key(folder / "host_key")
        self.key = make_key(folder / "key")
        self.authorized = folder / "authorized_keys"
        self.authorize(self.key)
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # It insists on it.
        for _ in range(5):  # The free port may be taken by the time sshd binds it.
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port: int = free.getsockname()[1]
            self._start(settings)
            if self._accepts():
                break
        else:
            raise RuntimeError((folder / "log").read_text())
        self.known_hosts = folder / "known_hosts"
        key = self.host_key.with_suffix(".pub").read_text()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {key}")

    def authorize(self, key: Path) -> None:
        with self.authorized.open("ab") as authorized:
            authorized.write(key.with_suffix(".pub").read_bytes())

    def _start(self, settings: tuple[str, ...]) -> None:
        config = self._folder / "sshd_config"
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.authorized}",
            "PidFile none",
            "UsePAM no",
            "StrictModes no",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            f"SetEnv HOME={self.home} PATH={self.bin}:/usr/bin:/bin",
            *settings,
        ]
        config.write_text("\n".join(lines) + "\n")
        with (self._folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "-D", "-e", "-f", config], stdin=subprocess.DEVNULL, stderr=log
            )

    def _accepts(self) -> bool:
        deadline = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
            except OSError:
                time.sleep(0.02)
            else:
                return True
        self.stop()
        return False

    def arguments(self, key: Path | None = None, known_hosts: Path | None = None) -> list[str]:
        """The options of rgpu-run for it; nothing of the user's own keys and known hosts."""
        settings = [
            f"UserKnownHostsFile={known_hosts or self.known_hosts}",
            "GlobalKnownHostsFile=/dev/null",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
        ]
        return ["--host", f"{USER}@127.0.0.1", "--ssh-port", str(self.port),
                "-i", str(key or self.key),
                *(word for setting in settings for word in ("-o", setting))]  # fmt: skip

    def servers(self) -> list[int]:
        """The processes of rgpu-opserver that its sessions run, workers included."""
        return [pid for pid in descendants(self.process.pid) if name(pid) == "rgpu-opserver"]

    def stop(self) -> None:
        """Kill it and its processes for connections, but not what these run."""
        own = [pid for pid in descendants(self.process.pid) if name(pid) == "sshd"]
        self.process.kill()
        for pid in own:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
