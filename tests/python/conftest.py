"""One real rgpu-opserver for the whole run, and helpers that start others and run programs.

RGPU_OPSERVER is set before any test imports torch, so `import torch` alone makes the device. The
server runs its kernels on the CPU in one thread unless RGPU_TEST_DEVICE says otherwise.
"""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator

import pytest
from known_failures import KNOWN
from rgpu_launch.services import Service, start_opserver, start_relay

DEVICE = os.environ.get("RGPU_TEST_DEVICE", "cpu")
CUDA = os.environ.get("RGPU_TEST_CUDA", "emulated")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Libraries make their models from configurations and ask no network.
for _name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
    os.environ[_name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Graphs that the servers keep; the user's own are nobody's business here.
_cache = tempfile.TemporaryDirectory(prefix="rgpu-tests-")
os.environ["XDG_CACHE_HOME"] = _cache.name
_shared: list[Service] = []


def pytest_configure(config: pytest.Config) -> None:
    """Start the server of the run; a run that only lists tests needs none."""
    # A shell that starts a run in the background has it ignore SIGINT, and every program that the
    # tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.option.collectonly:
        _shared.append(start_opserver(DEVICE, threads=1, compiler="", cuda=CUDA))
        os.environ["RGPU_OPSERVER"] = _shared[0].address


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server of the run."""
    while _shared:
        _shared.pop().stop()


# Of the tests that PyTorch's databases make, one in so many runs each time.
_PARTS = {
    "test_device_generic_ops.py": 40,
    "test_device_generic_modules.py": 8,
    "test_device_op_habits.py": 16,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the rest of them slow, and what is known to fail as such."""
    seen: dict[str, int] = {}
    for item in items:
        part = _PARTS.get(item.path.name)
        written_out = item.path.name == "test_device_op_habits.py" and "[" not in item.name
        if part is not None and not written_out:
            seen[item.path.name] = seen.get(item.path.name, 0) + 1
            if seen[item.path.name] % part:
                item.add_marker(pytest.mark.slow)
        for name, reason in KNOWN.items():
            if item.nodeid.endswith(name):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(scope="session")
def opserver() -> Service:
    """The server of the run: `opserver.address`, `opserver.log()`."""
    return _shared[0]


@pytest.fixture
def fresh_opserver() -> Iterator[Service]:
    """A server for this test alone, which may do with it what it likes."""
    with start_opserver(DEVICE, threads=1) as service:
        yield service


@pytest.fixture
def relay_to() -> Iterator[Callable[..., Service]]:
    """`relay_to(address, rtt_ms=…, mbit=…)` puts an emulated link before an address."""
    relays: list[Service] = []

    def start(address: str, *, rtt_ms: float = 0, mbit: float = 0) -> Service:
        relays.append(start_relay(address, rtt_ms=rtt_ms, mbit=mbit))
        return relays[-1]

    yield start
    for relay in relays:
        relay.stop()


@pytest.fixture
def run_snippet() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_snippet(code, server=ADDRESS or None, env={…}, timeout=60)` in a new Python process.

    `server` sets RGPU_OPSERVER; None removes it; left out, it is the server of the run.
    """

    def run(
        code: str,
        *,
        server: str | None = "shared",
        env: dict[str, str] | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **(env or {})}
        if server is None:
            environment.pop("RGPU_OPSERVER", None)
        elif server != "shared":
            environment["RGPU_OPSERVER"] = server
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture(scope="session")
def two_cuda_devices() -> Iterator[Service]:
    """A server whose CUDA programs see two devices."""
    with start_opserver(DEVICE, threads=1, compiler="", cuda=CUDA, cuda_devices=2) as service:
        yield service
