"""./dev test: CTest, the sanitized builds of what does not need torch, and pytest; one total."""

import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from devtool import build, cuda, machine
from devtool.console import ROOT, STATE, DevError, run, say
from devtool.venv import PYTHON, VENV, ensure_group


@dataclass
class Total:
    """How many tests did what."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add_junit(self, report: Path) -> None:
        """Add the counts of a JUnit file; a runner that left none counts as one failure."""
        if not report.exists():
            self.failed += 1
            return
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            tests = int(suite.get("tests", "0"))
            failed = int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
            skipped = int(suite.get("skipped", "0")) + int(suite.get("disabled", "0"))
            self.failed += failed
            self.skipped += skipped
            self.passed += tests - failed - skipped

    def __str__(self) -> str:
        """The line that CI reads."""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def test(everything: bool, only: str | None) -> int:
    """Run the tests whose names hold `only`; an exit status.

    With `everything` the slow ones too, and those without torch under ThreadSanitizer.
    """
    began = time.monotonic()
    STATE.mkdir(exist_ok=True)
    total = Total()
    broken: list[str] = []
    folder = build.build_and_install()
    ensure_group("test")
    ensure_group("libraries")
    ensure_group("demo")
    machine.ensure_test_packages()
    cuda.ensure_toolkit()
    _ctest("dev", folder, everything, only, total)
    for preset in ("asan", "tsan") if everything else ("asan",):
        try:
            _ctest(preset, build.build_preset(preset), everything, only, total)
        except DevError as error:
            broken.append(f"{preset}: {error}")
    _pytest(everything, only, total)
    for line in broken:
        say(line)
    say(f"all of it took {time.monotonic() - began:.0f} s")
    total.failed += len(broken)
    if total.passed + total.failed == 0:
        say("no test has that name")
        total.failed = 1
    print(total, flush=True)
    return 1 if total.failed else 0


def _ctest(preset: str, folder: Path, everything: bool, only: str | None, total: Total) -> None:
    report = STATE / f"ctest-{preset}.xml"
    report.unlink(missing_ok=True)
    # The preset holds the sanitizers' options. A label filter given here replaces the preset's.
    command: list[str | Path] = ["ctest", "--preset", preset, "--output-junit", report]
    command += ["-j", str(machine.jobs()), "--no-tests=ignore"]
    if everything:
        command += ["-LE", "no-such-label"]
    if only:
        command += ["-R", only]
    say(f"ctest in {folder.relative_to(ROOT)}")
    status = run(command, env=_test_environment(), check=False)
    before = total.failed
    if report.exists() or not only:
        total.add_junit(report)
    if status != 0 and total.failed == before:
        total.failed += 1


def _pytest(everything: bool, only: str | None, total: Total) -> None:
    report = STATE / "pytest.xml"
    report.unlink(missing_ok=True)
    command: list[str | Path] = [PYTHON, "-m", "pytest", "-q", "--junitxml", report]
    if not everything:
        command += ["-m", "not slow"]
    if only:
        command += ["-k", only]
    say("pytest tests/python")
    status = run(command, env=_test_environment(), check=False)
    before = total.failed
    total.add_junit(report)
    no_test_selected = 5
    if status not in (0, no_test_selected) and total.failed == before:
        total.failed += 1


def _test_environment() -> dict[str, str]:
    return {
        **machine.tool_environment(),
        "VIRTUAL_ENV": str(VENV),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONFAULTHANDLER": "1",
    }
