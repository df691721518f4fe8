"""./dev: what it says where it cannot install anything, and how it counts tests."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The path is taken back at once: the sources in python/ would hide the installed rgpu.
sys.path.insert(0, str(ROOT / "python"))
from devtool.checks import Total  # noqa: E402 - the path comes first

sys.path.remove(str(ROOT / "python"))


def dev(*arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "dev", *arguments],
        env={"PATH": str(path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_without_apt_it_names_exactly_what_is_missing(tmp_path):
    result = dev("setup", path=tmp_path)
    assert result.returncode == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0] == "dev: no apt here, and these are missing:"
    assert "  g++ (Debian: g++)" in lines
    assert "  flatc (Debian: flatbuffers-compiler)" in lines
    assert "  <boost/asio.hpp> (Debian: libboost1.81-dev)" in lines


def test_an_unknown_argument_is_one_line(tmp_path):
    result = dev("build", "--fast", path=tmp_path)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == "./dev: error: unknown argument --fast"


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ('<testsuite tests="3" failures="1" skipped="0"/>', "2 passed, 1 failed"),
        ('<testsuite tests="3" failures="0" disabled="1"/>', "2 passed, 0 failed, 1 skipped"),
        (
            '<testsuites><testsuite tests="4" errors="1" failures="1" skipped="1"/></testsuites>',
            "1 passed, 2 failed, 1 skipped",
        ),
    ],
)
def test_the_total_counts_every_runner(tmp_path, report, line):
    path = tmp_path / "report.xml"
    path.write_text(report)
    total = Total()
    total.add_junit(path)
    assert str(total) == line


def test_a_runner_without_a_report_has_failed(tmp_path):
    total = Total()
    total.add_junit(tmp_path / "nothing.xml")
    assert str(total) == "0 passed, 1 failed"
