"""RGPU_RECORD: a program's stream in a file, which the flush policies' bench replays."""

import subprocess
from pathlib import Path

import pytest
from rgpu_launch.programs import find_program

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "build" / "dev" / "bench" / "flush_policies" / "flush_policies_bench"

TRAINS = """
import torch
from torch import nn

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 1)).to("rgpu")
optimizer = torch.optim.AdamW(model.parameters())
x = torch.full((4, 8), 1234.5).to("rgpu")
for step in range(3):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    if step == 0:
        torch.rgpu.synchronize()
print(loss.item())
"""

DEPENDS_ON_DATA = """
import torch

x = torch.tensor([0.0, 1.0, 0.0, 2.0]).to("rgpu")
print((x[x > 0] + 1).sum().item())
"""


@pytest.fixture
def record(run_snippet, tmp_path):
    def run(program: str, **environment: str) -> Path:
        path = tmp_path / "program.rgpurec"
        result = run_snippet(program, env={"RGPU_RECORD": str(path), **environment})
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        return path

    return run


def replay(recording: Path) -> str:
    assert BENCH.exists(), "./dev build makes it"
    result = subprocess.run(
        [BENCH, f"--recording={recording}", f"--server={find_program('rgpu-opserver')}",
         "--rtt-ms=0", "--mbit=0", "--policies=sync,adaptive", "--runs=1"],
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    return result.stdout + result.stderr


def test_a_recorded_program_is_replayed(record):
    said = replay(record(TRAINS))
    assert "ERROR" not in said
    lines = [line for line in said.splitlines() if line.startswith("program/")]
    assert len(lines) == 2
    assert all("waits=1 " in line for line in lines)  # The preparation's are not counted.


def test_the_data_are_kept_when_asked_for_only(record):
    import numpy

    data = numpy.full(8, 1234.5, dtype=numpy.float32).tobytes()
    assert data not in record(TRAINS).read_bytes()
    assert data in record(TRAINS, RGPU_RECORD_BYTES="1").read_bytes()


def test_shapes_that_depend_on_data_need_the_data(record):
    assert "ERROR" not in replay(record(DEPENDS_ON_DATA, RGPU_RECORD_BYTES="1"))
    said = replay(record(DEPENDS_ON_DATA))
    assert "ERROR OCCURRED" in said
    assert "needs RGPU_RECORD_BYTES=1" in said


def test_a_file_that_cannot_be_written_is_one_line(run_snippet):
    result = run_snippet("import torch; print(torch.ones(2, device='rgpu').sum().item())",
                         env={"RGPU_RECORD": "/nonexistent/file"})  # fmt: skip
    assert result.stdout == "2.0\n"
    assert result.stderr == "rgpu: /nonexistent/file is not recorded: No such file or directory\n"
