"""./dev bench: every Google Benchmark program of the build, and a table of what they said."""

import json
from pathlib import Path
from typing import Any

from devtool import build
from devtool.console import ROOT, DevError, run, say

_REPORT = ROOT / "build" / "bench-report"


def bench(report: bool, only: str | None) -> int:
    """Run the benchmarks whose names hold `only`; with `report` also write a table of them."""
    folder = build.build_and_install()
    programs = sorted(p for p in (folder / "bench").rglob("*_bench") if p.is_file())
    if not programs:
        raise DevError(f"no benchmark in {folder / 'bench'}")
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
        run(command, env={"OMP_NUM_THREADS": "1"})
        if out.exists() and out.stat().st_size:
            results[program.name] = json.loads(out.read_text())
    if report:
        _write_table(results)
    return 0


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
