"""./dev demo-cuda: the sample programs of docs/cuda/samples on an emulated device."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chart import draw_chart
from rgpu_launch.cuda_environment import library_folder, with_cuda
from rgpu_launch.services import Service, ServiceError, start_opserver, start_relay
from rich.console import Console
from rich.table import Table

_ROOT = Path(__file__).resolve().parents[2]
_SAMPLES = _ROOT / "docs" / "cuda" / "samples"
_REPORT = _ROOT / "demo-report"
_TIMEOUT_S = 300
# What nvcc's own code calls around a launch, and nobody writes.
_HIDDEN = "__cuda"
_LAUNCH = "__cudaLaunchKernel"


class DemoError(Exception):
    """A sample that does not compile or run; the text says which and why."""


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev demo-cuda", description=__doc__)
    parser.add_argument("--nvcc", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--cuda", default="emulated", help="the server's: emulated, driver or auto")
    parser.add_argument("--rtt-ms", type=float, default=0, help="of an emulated link; 0: none")
    parser.add_argument("--report", type=Path, default=_REPORT, help="folder of what is written")
    parser.add_argument("samples", nargs="*", help="their names, such as saxpy; default: all")
    return parser.parse_args()


def _sources(names: list[str]) -> list[Path]:
    found = {path.stem: path for path in sorted(_SAMPLES.glob("*.cu"))}
    for name in names:
        if name not in found:
            raise DemoError(f"no sample {name}: there are {', '.join(found)}")
    return [found[name] for name in names] or list(found.values())


def _compile(nvcc: Path, source: Path, program: Path) -> None:
    """As a user would, but for PTX alone: no real architecture is asked for."""
    image = "arch=compute_75,code=compute_75"
    command: list[str | Path] = [nvcc, "-std=c++17", "-gencode", image, "-o", program, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DemoError(f"{source.name} does not compile:\n{(done.stdout + done.stderr).strip()}")


def _run(program: Path, address: str, folder: Path) -> dict[str, Any]:
    """Run it; the figures of its session."""
    statistics = folder / f"{program.name}.json"
    environment = with_cuda({**os.environ, "RGPU_OPSERVER": address})
    environment["RGPU_CUDA_STATS_FILE"] = str(statistics)
    began = time.monotonic()
    try:
        done = subprocess.run(
            [program], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise DemoError(f"{program.name}: still running after {_TIMEOUT_S} s") from None
    seconds = time.monotonic() - began
    lines = done.stdout.splitlines()
    if done.returncode != 0 or lines[-1:] != ["PASS"] or not statistics.exists():
        said = (done.stdout + done.stderr).strip()
        raise DemoError(f"{program.name}: failed (exit status {done.returncode})\n{said}")
    figures: dict[str, Any] = json.loads(statistics.read_text())
    figures |= {"seconds": seconds, "said": lines[:-1], "calls": _calls(figures)}
    return figures


def _calls(figures: Mapping[str, Any]) -> int:
    """Calls of the program's own: a launch counts once."""
    return sum(
        each["calls"]
        for each in figures["functions"]
        if not each["name"].startswith(_HIDDEN) or each["name"] == _LAUNCH
    )


def _print_table(console: Console, results: Mapping[str, dict[str, Any]], setting: str) -> None:
    table = Table(title="CUDA programs", caption=setting, title_justify="left")
    table.add_column("program")
    for heading in ("s", "calls", "waits", "records", "frames", "kB out", "kB in", "waited in"):
        table.add_column(heading, justify="left" if heading == "waited in" else "right")
    for name, figures in results.items():
        waited = [f"{f['name']} {f['waits']}" for f in figures["functions"] if f["waits"]]
        table.add_row(
            name,
            f"{figures['seconds']:.2f}",
            *(f"{figures[key]:,}" for key in ("calls", "waits", "records", "frames")),
            f"{figures['bytes_out'] / 1e3:,.1f}",
            f"{figures['bytes_in'] / 1e3:,.1f}",
            ", ".join(waited),
        )
    console.print(table)
    console.print(
        "waits are for an answer, the handshake's among them; seconds are of the whole process"
    )


def _run_all(
    console: Console, options: argparse.Namespace, sources: list[Path]
) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="rgpu-demo-") as scratch:
        folder = Path(scratch)
        for source in sources:
            _compile(options.nvcc, source, folder / source.stem)
        with start_opserver("cpu", compiler="", cuda=options.cuda) as server:
            link: Service | None = None
            if options.rtt_ms:
                link = start_relay(server.address, rtt_ms=options.rtt_ms)
            try:
                for source in sources:
                    address = (link or server).address
                    results[source.stem] = _run(folder / source.stem, address, folder)
                    for line in results[source.stem]["said"]:
                        console.print(line, highlight=False, soft_wrap=True)
            finally:
                if link is not None:
                    link.stop()
    return results


def main() -> int:
    """Run the demo; 1 if a sample fails."""
    options = _parse()
    console = Console()
    if not console.is_terminal:
        console = Console(width=130)
    setting = f"--cuda {options.cuda}, " + (
        f"{options.rtt_ms:g} ms round trip" if options.rtt_ms else "no delay"
    )
    try:
        if library_folder() is None:
            raise DemoError("this rgpu has no CUDA libraries")
        results = _run_all(console, options, _sources(options.samples))
    except (DemoError, ServiceError, OSError) as error:
        print(f"demo-cuda: {error}", file=sys.stderr)
        return 1
    _print_table(console, results, setting)
    options.report.mkdir(parents=True, exist_ok=True)
    figures, chart = options.report / "cuda-figures.json", options.report / "cuda-chart.png"
    figures.write_text(json.dumps({"setting": setting, "programs": results}, indent=1) + "\n")
    draw_chart(results, setting, chart)
    console.print(f"chart: {chart}\nfigures: {figures}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
