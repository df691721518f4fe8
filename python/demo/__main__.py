"""./dev demo: two models trained on the local CPU and on rgpu across an emulated WAN link."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from loops import TITLES
from report import CPU_ROW, Figures, Setting, draw_chart, losses_agree, print_table
from rgpu_launch.services import Service, ServiceError, start_opserver, start_relay
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_POLICIES = ("per_op", "sync", "bytes=16384", "deadline=200", "adaptive")
_REPORT = Path(__file__).resolve().parents[2] / "demo-report"
_ROW_TIMEOUT_S = 300


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument("--rtt-ms", type=float, default=50, help="of the emulated link")
    parser.add_argument("--device", default="auto", help="the server's: auto, cuda or cpu")
    parser.add_argument("--threads", type=int, default=1, help="torch threads on each side")
    parser.add_argument("--gpt-steps", type=int, default=100)
    parser.add_argument("--cnn-steps", type=int, default=100)
    parser.add_argument("--policies", default=" ".join(_POLICIES), help="flush policies, by space")
    return parser.parse_args()


class _Screen:
    """Progress bars on a terminal; elsewhere a line when a row is done."""

    def __init__(self) -> None:
        self.console = Console()
        if not self.console.is_terminal:
            self.console = Console(width=120)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def said(self, text: str) -> None:
        """Print a line above the bars."""
        self.progress.console.print(text, highlight=False)


def _run_row(
    screen: _Screen, row: str, device: str, steps: dict[str, int], threads: int, env: dict[str, str]
) -> dict[str, Any]:
    """Run row.py; the figures of each loop."""
    command = [sys.executable, str(Path(__file__).with_name("row.py"))]
    command += ["--device", device, "--threads", str(threads)]
    command += [f"{loop}={count}" for loop, count in steps.items()]
    # Both processes of a row share a small machine: OpenMP's threads must not spin.
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), **env}
    if device == "cpu":
        environment.pop("RGPU_OPSERVER", None)
    figures: dict[str, Any] = {}
    tasks = {
        loop: screen.progress.add_task(f"{loop}  {row:<20}", total=count, start=False)
        for loop, count in steps.items()
    }
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                message = json.loads(line)
                loop = message["loop"]
                screen.progress.start_task(tasks[loop])
                if "figures" in message:
                    figures[loop] = message["figures"]
                    screen.progress.stop_task(tasks[loop])
                else:
                    screen.progress.update(tasks[loop], completed=message["step"])
            status = process.wait(_ROW_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
        if status != 0 or set(figures) != set(steps):
            errors.seek(0)
            raise ServiceError(f"{row}: failed (exit status {status})\n{errors.read().strip()}")
    screen.said(f"{row}: {time.monotonic() - began:.0f} s")
    return figures


def _server_kind(server: Service) -> str:
    """What its banner says it runs ops on: "cpu", "cuda"."""
    found = re.search(r"device (\w+)", server.banner)
    return found[1] if found else "cpu"


def _run_rows(screen: _Screen, options: argparse.Namespace) -> tuple[dict[str, Figures], Setting]:
    """Run every row; the figures by loop and row, and what they were taken under."""
    steps = {"gpt": options.gpt_steps, "cnn": options.cnn_steps}
    results: dict[str, Figures] = {loop: {} for loop in steps}
    with (
        start_opserver(options.device, options.threads) as server,
        start_relay(server.address, rtt_ms=options.rtt_ms) as relay,
        screen.progress,
    ):
        setting = Setting(options.rtt_ms, _server_kind(server), options.threads)
        screen.said(f"{server.banner}; the link: {relay.banner}")
        rows: dict[str, tuple[str, dict[str, str]]] = {CPU_ROW: ("cpu", {})}
        for policy in options.policies.split():
            env = {"RGPU_OPSERVER": relay.address, "RGPU_FLUSH": policy}
            rows[f"rgpu, {policy}"] = ("rgpu", env)
        for row, (device, env) in rows.items():
            done = _run_row(screen, row, device, steps, options.threads, env)
            for loop, figures in done.items():
                results[loop][row] = figures
    return results, setting


def main() -> int:
    """Run the demo; 1 if losses differ or a row failed."""
    options = _parse()
    screen = _Screen()
    for loop, title in TITLES.items():
        screen.said(f"{loop}: {title}")
    try:
        results, setting = _run_rows(screen, options)
    except (ServiceError, OSError, subprocess.TimeoutExpired) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    screen.console.print()
    for loop, rows in results.items():
        print_table(screen.console, loop, rows, setting)
    agree = [losses_agree(screen.console, loop, rows, setting) for loop, rows in results.items()]
    _REPORT.mkdir(exist_ok=True)
    (_REPORT / "figures.json").write_text(json.dumps(results, indent=1) + "\n")
    chart = _REPORT / "chart.png"
    draw_chart(results, setting, chart)
    screen.console.print(f"chart: {chart}\nfigures: {_REPORT / 'figures.json'}", soft_wrap=True)
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
