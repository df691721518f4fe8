"""Every program of tests/cuda/programs, linked with either CUDA Runtime, on the emulated device.

A program checks itself: its last line is PASS and its exit status 0. Lines at its top say more:
    // Arch: 80          compiled for this compute capability instead of 75
    // Options: …        of nvcc
    // Runtime: shared   with this CUDA Runtime alone
    // Devices: 2        on a server with so many
    // Fails: 1          it is to end with this exit status instead, whatever it printed
    // Says: …           and this is among what it printed
"""

import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cuda_toolkit import CUDARTS, ROOT, compile_program, nvcc  # noqa: F401 - a fixture
from rgpu_launch.cuda_environment import library_folder, with_cuda
from rgpu_launch.services import start_opserver

PROGRAMS = sorted((ROOT / "tests" / "cuda" / "programs").glob("*.cu"))
SAMPLES = sorted((ROOT / "docs" / "cuda" / "samples").glob("*.cu"))
_TIMEOUT_S = 100


def _notes(source: Path) -> dict[str, str]:
    lines = source.read_text().splitlines()[:20]
    return dict(match.groups() for line in lines if (match := re.match(r"// (\w+): (.*)", line)))


def _runs() -> Iterator[tuple[Path, str]]:
    for source in [*PROGRAMS, *SAMPLES]:
        only = _notes(source).get("Runtime")
        for cudart in [only] if only else CUDARTS:
            yield source, cudart


def _compile(source: Path, cudart: str) -> Path:
    notes = _notes(source)
    options = notes.get("Options", "").split()
    return compile_program(
        source, cudart=cudart, arch=int(notes.get("Arch", "75")), options=options
    )


@pytest.fixture(scope="session")
def compiled(nvcc: Path) -> None:  # noqa: F811
    """Compile everything first, as many at a time as there are cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # What does not compile is reported by its own test.
        for future in [pool.submit(_compile, *each) for each in _runs()]:
            future.exception()


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[int, str]]:
    """Addresses by the number of emulated devices."""
    if library_folder() is None:
        pytest.skip("the CUDA shim is not installed here")
    with (
        start_opserver("cpu", compiler="", cuda="emulated") as one,
        start_opserver("cpu", compiler="", cuda="emulated", cuda_devices=2) as two,
    ):
        yield {1: one.address, 2: two.address}


# The first one compiles all of them, which takes minutes on two cores.
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("source", "cudart"), [pytest.param(s, c, id=f"{s.stem}-{c}") for s, c in _runs()]
)
def test_program(source: Path, cudart: str, compiled: None, servers: dict[int, str]) -> None:
    notes = _notes(source)
    program = _compile(source, cudart)
    environment = with_cuda(os.environ)
    environment["RGPU_OPSERVER"] = servers[int(notes.get("Devices", "1"))]
    done = subprocess.run(
        [program], env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    said = done.stdout + done.stderr
    if "Fails" in notes:
        assert done.returncode == int(notes["Fails"]), said
    else:
        assert done.returncode == 0, said
        assert done.stdout.splitlines()[-1:] == ["PASS"], said
    for text in [notes["Says"]] if "Says" in notes else []:
        assert text in said
