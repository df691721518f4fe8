"""./dev demo-cuda: what it shows of a sample, and what it says of one that is not there.

Whether the samples give the right results test_cuda_programs.py says.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_toolkit import ROOT, nvcc  # noqa: F401 - a fixture
from rgpu_launch.cuda_environment import library_folder


def _demo(nvcc: Path, report: Path, *arguments: str) -> subprocess.CompletedProcess[str]:  # noqa: F811
    if library_folder() is None:
        pytest.skip("the CUDA shim is not installed here")
    return subprocess.run(
        [sys.executable, ROOT / "python" / "demo_cuda", "--nvcc", nvcc, "--report", report,
         *arguments],
        env=os.environ, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip


def test_a_sample_is_run_counted_and_drawn(nvcc: Path, tmp_path: Path) -> None:  # noqa: F811
    done = _demo(nvcc, tmp_path, "saxpy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of them wrong" in done.stdout
    written = json.loads((tmp_path / "cuda-figures.json").read_text())
    figures = written["programs"]["saxpy"]
    by_name = {each["name"]: each for each in figures["functions"]}
    assert by_name["cudaMalloc"]["calls"] == 2
    assert by_name["cudaMalloc"]["waits"] == 0
    # Two copies go up without a wait; the third, down, is what the program waits for.
    copies = by_name["cudaMemcpy"]
    assert (copies["calls"], copies["deferred"], copies["waits"]) == (3, 2, 1)
    assert copies["bytes_out"] == 2 * 4 << 20 and copies["bytes_in"] == 4 << 20
    assert figures["bytes_out"] > copies["bytes_out"]
    assert figures["calls"] == 9  # Of those that the source has, besides the text of an error.
    assert (tmp_path / "cuda-chart.png").read_bytes().startswith(b"\x89PNG")


def test_a_sample_that_is_not_there_is_one_line(nvcc: Path, tmp_path: Path) -> None:  # noqa: F811
    done = _demo(nvcc, tmp_path, "no-such-sample")
    assert done.returncode == 1
    assert done.stderr.startswith("demo-cuda: no sample no-such-sample: there are ")
    assert not list(tmp_path.iterdir())
