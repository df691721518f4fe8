"""./dev bench: every Google Benchmark program of the build, and a table of what they said."""

import json
import subprocess
from pathlib import Path
from typing import Any

from devtool import build, flush_report
from devtool.console import ROOT, DevError, run, say
from devtool.venv import PYTHON

_REPORT = ROOT / "build" / "bench-report"
_FLUSH_POLICIES = "flush_policies_bench"  # Has a page of its own.


def bench(report: bool, only: str | None) -> int:
    """Run the benchmarks whose names hold `only`; with `report` also write a table of them."""
    folder = build.build_and_install()
    programs = sorted(p for p in (folder / "bench").rglob("*_bench") if p.is_file())
    if not programs:
        raise DevError(f"no benchmark in {folder / 'bench'}")
    _record_streams()
    results: dict[str, Any] = {}
    for program in programs:
        say(str(program.relative_to(ROOT)))
        out = _REPORT / f"{program.name}.json"
        command: list[str | Path] = [program]
        if only:
            command.append(f"--benchmark_filter={only}")
        if report:
            _REPORT.mkdir(parents=True, exist_ok=True)
            out.unlink(missing_ok=True)
            command += [f"--benchmark_out={out}", "--benchmark_out_format=json"]
            if program.name == _FLUSH_POLICIES:
                command.append("--full")
        run(command, env={"OMP_NUM_THREADS": "1"})
        if out.exists() and out.stat().st_size:
            results[program.name] = json.loads(out.read_text())
    if report:
        _write_page(results.pop(_FLUSH_POLICIES, None))
        _write_table(results)
    return 0


def _record_streams() -> None:
    """Make the recordings that flush_policies_bench replays, where they are missing."""
    folder = ROOT / "bench" / "flush_policies"
    missing = [
        stream
        for stream in ("mlp_step", "gpt_step", "thousand_ops", "upload_heavy")
        if not (folder / "recordings" / f"{stream}.rgpurec").exists()
    ]
    if missing:
        say(f"recording {', '.join(missing)}")
        run([PYTHON, folder / "record.py", *missing])


def _write_page(result: dict[str, Any] | None) -> None:
    compared = flush_report.compare(result["benchmarks"]) if result else []
    if result is None or not compared:
        return
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    path = _REPORT / "flush_policies.html"
    path.write_text(flush_report.page(compared, result["context"], commit or "unknown"))
    for line in flush_report.summary(compared):
        say(line)
    say(f"the charts: {path.relative_to(ROOT)}")


def _write_table(results: dict[str, Any]) -> None:
    lines = ["| program | benchmark | time | CPU | counters |", "|---|---|---|---|---|"]
    known = {"real_time", "cpu_time", "iterations", "repetitions", "repetition_index", "threads",
             "family_index", "per_family_instance_index"}  # fmt: skip
    for program, result in results.items():
        for row in result["benchmarks"]:
            unit = row.get("time_unit", "ns")
            counters = ", ".join(
                f"{name} {value:.6g}"
                for name, value in row.items()
                if isinstance(value, int | float) and name not in known
            )
            lines.append(
                f"| {program} | {row['name']} | {row.get('real_time', 0):.4g} {unit} "
                f"| {row.get('cpu_time', 0):.4g} {unit} | {counters} |"
            )
    table = _REPORT / "README.md"
    table.write_text("\n".join(lines) + "\n")
    say(f"the table: {table.relative_to(ROOT)}")
