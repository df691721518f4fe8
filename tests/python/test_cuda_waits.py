"""What CUDA programs wait for, by the shim's own count: the handshake, values, and their exit."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from cuda_toolkit import ROOT, compile_program, nvcc  # noqa: F401 - a fixture
from rgpu_launch.cuda_environment import library_folder, with_cuda

SOURCE = ROOT / "tests" / "cuda" / "counted" / "counts.cu"


@pytest.fixture(scope="module")
def program(nvcc: Path) -> Path:  # noqa: F811
    if library_folder() is None:
        pytest.skip("the CUDA shim is not installed here")
    return compile_program(SOURCE)


def _run(program: Path, case: str, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [program, case], env={**with_cuda(os.environ), **more}, capture_output=True, text=True,
        timeout=60, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "PASS"
    return done


@pytest.mark.parametrize(
    ("case", "waits"),
    [
        ("launches", 1),  # A thousand, and the synchronization.
        ("copies", 1),  # Ten thousand to the device, and the synchronization.
        ("sync-copies", 1),  # cudaMemcpy to the device waits for nothing: the one copy back does.
        ("events", 1),
        ("queries", 0),  # A loop that polls.
        ("symbols", 1),
        ("async", 1),  # A hundred copies to pinned memory.
    ],
)
def test_a_scenario_waits_as_often_as_it_asks_for_a_value(
    program: Path, case: str, waits: int
) -> None:
    counts = re.search(
        r"^waits (\d+) stalls (\d+) records (\d+)$", _run(program, case).stdout, re.M
    )
    assert counts is not None
    assert int(counts[1]) == waits


def test_a_polling_loop_sends_one_request(program: Path) -> None:
    counts = re.search(r"records (\d+)$", _run(program, "queries").stdout, re.M)
    assert counts is not None and int(counts[1]) == 1


def test_vector_add_waits_three_times_from_start_to_exit(program: Path) -> None:
    said = _run(program, "vector-add", RGPU_STATS="1").stderr
    counts = re.search(r" (\d+) waits,", said)
    assert counts is not None, said
    # The handshake and the result; the exit waits until all is sent.
    assert int(counts[1]) + 1 <= 3
