"""The README's programs run word for word."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
PROGRAMS = [
    block
    for block in re.findall(r"^```\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    if block.startswith("import ")
]


def run_with_stats(program: str, folder: Path) -> tuple[list[str], str]:
    """Lines of output, and the line of rgpu.stats()."""
    path = folder / "prog.py"
    path.write_text(program)
    rgpu_run = Path(sys.executable).with_name("rgpu-run")
    result = subprocess.run(
        [rgpu_run, "--local", "--device", "cpu", "--stats", sys.executable, path],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines(), result.stderr.splitlines()[-1]


def test_the_first_program_prints_its_sum(tmp_path):
    lines, stats = run_with_stats(PROGRAMS[0], tmp_path)
    assert lines == ["8.0"]
    assert "waits 1," in stats


def test_the_second_program_trains_and_waits_eleven_times(tmp_path):
    lines, stats = run_with_stats(PROGRAMS[1], tmp_path)
    assert [line.split()[0] for line in lines] == [*map(str, range(0, 100, 10)), "Final"]
    first, last = float(lines[0].split()[1]), float(lines[-1].split()[2])
    assert 0 < last < first
    assert "waits 11," in stats
