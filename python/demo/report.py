"""What the demo ends in: a table, a check that all losses agree, and a chart of the same."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loops import TITLES
from rich.console import Console
from rich.table import Table

CPU_ROW = "local CPU"


@dataclass(frozen=True)
class Setting:
    """Under what the figures were taken."""

    rtt_ms: float
    server: str  # What the server runs on: "cpu", "cuda".
    threads: int

    @property
    def tolerance(self) -> float:
        """How far losses may be apart, relative: other kernels on a GPU add up otherwise."""
        return 1e-5 if self.server == "cpu" else 2e-2

    def __str__(self) -> str:
        """One line for headings."""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''} a side"
        return f"server on {self.server}, {self.rtt_ms:g} ms round trip, {threads}"


Figures = dict[str, dict[str, Any]]  # Row → the figures of one loop in it (row.py).


def _a_step(figures: dict[str, Any], key: str, scale: float = 1) -> float | None:
    counts = figures["counts"]
    return counts[key] / figures["steps"] / scale if key in counts else None


def _idle(figures: dict[str, Any]) -> tuple[float, float] | None:
    """Seconds the server sat idle, and their share of the time it was watched."""
    counts = figures["counts"]
    if "server_idle_ns" not in counts:
        return None
    idle, busy = counts["server_idle_ns"], counts["server_busy_ns"]
    return idle / 1e9, idle / max(idle + busy, 1)


def print_table(console: Console, loop: str, rows: Figures, setting: Setting) -> None:
    """Print one table for `loop`, a line a row."""
    steps = next(iter(rows.values()))["steps"]
    title = f"{TITLES[loop]}: {steps} steps, loss read every 10th"
    table = Table(title=title, caption=str(setting), title_justify="left")
    table.add_column("device, flush policy")
    headings = ("s/step", "waits", "records", "frames", "kB out", "kB in", "server idle", "loss")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row, figures in rows.items():
        counts = figures["counts"]
        idle = _idle(figures)
        table.add_row(
            row,
            f"{figures['seconds_a_step']:.4f}",
            str(counts.get("waits", "–")),
            _number(_a_step(figures, "records")),
            _number(_a_step(figures, "frames")),
            _number(_a_step(figures, "bytes_out", 1e3)),
            _number(_a_step(figures, "bytes_in", 1e3)),
            f"{idle[0]:.2f} s ({idle[1]:.0%})" if idle else "–",
            f"{figures['losses'][-1]:.6f}",
        )
    console.print(table)
    console.print(
        "records, frames and kB are per step; waits and idle time are totals; first step left out"
    )
    accuracies = {figures["accuracy"] for figures in rows.values() if figures["accuracy"]}
    if accuracies:
        console.print(f"digits held out and read right: {min(accuracies):.1%}")
    console.print()


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def losses_agree(console: Console, loop: str, rows: Figures, setting: Setting) -> bool:
    """Compare every loss read with the local CPU's; say what came out."""
    reference = rows[CPU_ROW]["losses"]
    worst_row, worst = CPU_ROW, 0.0
    for row, figures in rows.items():
        for ours, theirs in zip(figures["losses"], reference, strict=True):
            apart = abs(ours - theirs) / abs(theirs)
            if not apart <= worst:  # A NaN is the worst.
                worst_row, worst = row, apart
    agree = worst <= setting.tolerance
    verdict = "agree" if agree else f"DIFFER ({worst_row})"
    console.print(
        f"{loop}: losses of all rows {verdict}: at most {worst:.1e} apart, "
        f"relative to the local CPU's (allowed: {setting.tolerance:.0e})"
    )
    return agree


def draw_chart(results: dict[str, Figures], setting: Setting, path: Path) -> None:
    """Draw the tables as bars: one line of panels a loop."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    panels: tuple[tuple[str, Callable[[dict[str, Any]], float | None], str], ...] = (
        ("seconds a step", lambda f: f["seconds_a_step"], "{:.3f}"),
        ("waits in all", lambda f: f["counts"].get("waits"), "{:.0f}"),
        ("records a step", lambda f: _a_step(f, "records"), "{:.0f}"),
        ("frames a step", lambda f: _a_step(f, "frames"), "{:.1f}"),
        ("kB out a step", lambda f: _a_step(f, "bytes_out", 1e3), "{:.1f}"),
        ("kB in a step", lambda f: _a_step(f, "bytes_in", 1e3), "{:.2f}"),
        ("server idle, % of time", lambda f: (100 * i[1]) if (i := _idle(f)) else None, "{:.0f}"),
    )
    figure, axes = pyplot.subplots(
        len(results),
        len(panels),
        figsize=(2.5 * len(panels), 1.4 + 2.6 * len(results)),
        squeeze=False,
        sharey="row",
        layout="constrained",
    )
    for line, (loop, rows) in zip(axes, results.items(), strict=True):
        names = list(rows)
        for axis, (title, value_of, shape) in zip(line, panels, strict=True):
            values = [value_of(figures) for figures in rows.values()]
            colours = ["#8a8f98" if name == CPU_ROW else "#2f6db3" for name in names]
            bars = axis.barh(names, [value or 0 for value in values], color=colours)
            labels = ["–" if value is None else shape.format(value) for value in values]
            axis.bar_label(bars, labels, padding=3, fontsize=8)
            axis.set_title(title, fontsize=9)
            axis.set_xlim(0, max([value or 0 for value in values] + [1e-9]) * 1.35)
            axis.set_xticks([])
            axis.tick_params(axis="y", labelsize=9, length=0)
            axis.spines[["top", "right", "bottom"]].set_visible(False)
        line[0].invert_yaxis()
        line[0].set_ylabel(f"{loop} ({next(iter(rows.values()))['steps']} steps)", fontsize=10)
    titles = "; ".join(f"{loop}: {TITLES[loop]}" for loop in results)
    figure.suptitle(f"Training on device=rgpu: {setting}\n{titles}", fontsize=10)
    figure.savefig(path, dpi=130)
