"""What the machine must have: a compiler, build tools, and the C++ libraries of Debian."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from devtool.console import DevError, run_logged, say

# Program, the Debian package that brings it.
_PROGRAMS = {
    "g++": "g++",
    "cmake": "cmake",
    "ninja": "ninja-build",
    "ccache": "ccache",
    "flatc": "flatbuffers-compiler",
    "pkg-config": "pkg-config",
}
# Header, the Debian package that brings it.
_HEADERS = {
    "flatbuffers/flatbuffers.h": "libflatbuffers-dev",
    "boost/asio.hpp": "libboost1.81-dev",
    "liburing.h": "liburing-dev",
    "openssl/sha.h": "libssl-dev",
    "spdlog/spdlog.h": "libspdlog-dev",
    "CLI/CLI.hpp": "libcli11-dev",
    "xxhash.h": "libxxhash-dev",
    "lz4.h": "liblz4-dev",
    "zstd.h": "libzstd-dev",
    "gtest/gtest.h": "libgtest-dev",
    "gmock/gmock.h": "libgmock-dev",
    "benchmark/benchmark.h": "libbenchmark-dev",
}
# What the tests of rgpu-run --host need: a real sshd, which they run as a process of their own.
_SSH_PACKAGES = ["openssh-client", "openssh-server"]
_OPTIONAL = {"ccache", "pkg-config"}  # Where there is no apt.
_CMAKE_MIN = (3, 25)
_LOCK = ("-o", "DPkg::Lock::Timeout=300")  # Seconds to wait for another apt.


def ensure_packages() -> None:
    """Install what is missing of the compiler, tools and libraries; DevError if that cannot be."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-query") is None:
        _check_by_hand()
        return
    if missing := _missing_packages():
        _apt_install(missing)
        if still := _missing_packages():
            raise DevError(f"apt-get succeeded, yet these are not installed: {' '.join(still)}")


def ensure_test_packages() -> None:
    """Install ssh and sshd, where that starts no service; without them their tests are skipped."""
    path = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin"
    if shutil.which("ssh", path=path) and shutil.which("sshd", path=path):
        return
    # Where systemd runs, Debian's package would have this machine listen on port 22 from now on.
    serves = Path("/run/systemd/system").exists()
    if serves or shutil.which("apt-get") is None or _as_root() is None:
        say("no sshd, so the tests of rgpu-run --host are skipped (Debian: openssh-server)")
        return
    _apt_install(_SSH_PACKAGES)


def _apt_install(missing: list[str]) -> None:
    command = _as_root()
    if command is None:
        raise DevError(
            f"{len(missing)} Debian packages are missing, and installing them needs root or sudo:\n"
            f"  apt-get install --no-install-recommends {' '.join(missing)}"
        )
    say(f"installing {len(missing)} Debian packages: {' '.join(missing)}")
    ask = sys.stdin is not None and sys.stdin.isatty()
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        run_logged(
            "apt-get update", [*command, "apt-get", "update", "-q", *_LOCK], env=env, ask=ask
        )
    except DevError as error:
        say(f"{error}; going on with the package lists there are")
    run_logged(
        "apt-get install",
        # sudo drops the environment, so the setting goes through env(1) as well.
        [*command, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-q",
         *_LOCK, "--no-install-recommends", *missing],
        env=env,
        ask=ask,
    )  # fmt: skip


def tool_environment() -> dict[str, str]:
    """Variables for CMake and the compiler: one CMake in every step, a cache that clones share."""
    cmake = Path("/usr/bin/cmake")
    path = os.environ.get("PATH", "")
    if cmake.exists():
        path = f"{cmake.parent}{os.pathsep}{path}"
    root = str(Path(__file__).resolve().parents[2])
    return {"PATH": path, "CCACHE_BASEDIR": root, "CCACHE_NOHASHDIR": "true"}


def jobs() -> int:
    """Compilers at a time: one per core, and 2 GB of memory for each."""
    if "RGPU_DEV_JOBS" in os.environ:
        return int(os.environ["RGPU_DEV_JOBS"])
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return max(1, min(len(os.sched_getaffinity(0)), memory_gb // 2))


def _missing_packages() -> list[str]:
    wanted = [*_PROGRAMS.values(), *_HEADERS.values()]
    if importlib.util.find_spec("ensurepip") is None:
        wanted.append("python3-venv")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        wanted.append("python3-dev")
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    installed = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in installed]


def _as_root() -> list[str] | None:
    """What to put before a command that needs root; None if there is no way."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    if sys.stdin is not None and sys.stdin.isatty():
        return ["sudo"]
    passwordless = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
    return ["sudo", "-n"] if passwordless.returncode == 0 else None


def _check_by_hand() -> None:
    """Without apt: DevError that names every program and header that is not there."""
    missing = [
        f"{program} (Debian: {package})"
        for program, package in _PROGRAMS.items()
        if program not in _OPTIONAL and shutil.which(program) is None
    ]
    if shutil.which("g++") is None:
        missing += [f"<{header}> (Debian: {package})" for header, package in _HEADERS.items()]
    else:
        missing += [
            f"<{header}> (Debian: {package})"
            for header, package in _HEADERS.items()
            if not _compiles(header)
        ]
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        missing.append("<Python.h> (Debian: python3-dev)")
    if importlib.util.find_spec("ensurepip") is None:
        missing.append("Python's ensurepip (Debian: python3-venv)")
    if missing:
        raise DevError("no apt here, and these are missing:\n  " + "\n  ".join(missing))
    version = subprocess.run(["cmake", "--version"], capture_output=True, text=True, check=False)
    numbers = version.stdout.split()[2].split(".")[:2]
    if tuple(map(int, numbers)) < _CMAKE_MIN:
        raise DevError(f"cmake is {'.'.join(numbers)}; 3.25 or newer is needed")


def _compiles(header: str) -> bool:
    return (
        subprocess.run(
            ["g++", "-E", "-x", "c++", "-", "-o", os.devnull],
            input=f"#include <{header}>\n",
            capture_output=True,
            text=True,
            check=False,
        ).returncode
        == 0
    )
