"""The page about flush policies that ./dev bench --report writes: one HTML file, no network.

What it shows comes from flush_policies_bench's JSON alone: for each stream, a panel per round trip
and bandwidth with every policy's median and quartiles, tables of the same, and a list of the cells
in which `adaptive` is behind.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

OURS = "adaptive"
BEHIND = 1.05  # From here on, unless it is within the best policy's quartiles.
COUNTERS = {
    "frames": "frames",
    "waits": "waits",
    "kB_out": "kB out",
    "kB_in": "kB in",
    "server_idle_pct": "server idle, %",
    "calling_cpu_us": "calling thread's CPU, µs",
    "calls_us": "time in calls, µs",
    "wakeups": "wake-ups",
}


@dataclass(frozen=True, order=True)
class Cell:
    """One stream over one line."""

    stream: str
    rtt_ms: float
    mbit: float  # 0: no cap.

    @property
    def line(self) -> str:
        """The line in words."""
        cap = f"{self.mbit:g} Mbit/s" if self.mbit else "no cap"
        return f"{self.rtt_ms:g} ms, {cap}"


@dataclass(frozen=True)
class Spread:
    """What the runs of one policy in one cell took, in milliseconds."""

    median: float
    low: float  # Quartiles.
    high: float
    runs: int

    @classmethod
    def of(cls, times_ms: list[float]) -> "Spread":
        """Of one run or more."""
        if len(times_ms) == 1:
            return cls(times_ms[0], times_ms[0], times_ms[0], 1)
        low, median, high = statistics.quantiles(times_ms, n=4, method="inclusive")
        return cls(median, low, high, len(times_ms))


@dataclass(frozen=True)
class Compared:
    """A cell's policies, and how ours did."""

    cell: Cell
    spreads: dict[str, Spread]
    counters: dict[str, dict[str, float]]  # Policy → counter → median.

    @property
    def best(self) -> str:
        """The policy of the lowest median."""
        return min(self.spreads, key=lambda policy: self.spreads[policy].median)

    @property
    def ratio(self) -> float | None:
        """Our median over the best one's."""
        ours = self.spreads.get(OURS)
        return ours.median / self.spreads[self.best].median if ours else None

    @property
    def behind(self) -> bool:
        """More than 5 % slower than the best, and outside the best one's quartiles."""
        best = self.spreads[self.best]
        return (self.ratio or 0) > BEHIND and self.spreads[OURS].median > best.high


def compare(benchmarks: Iterable[dict[str, Any]]) -> list[Compared]:
    """Google Benchmark's rows, cell by cell; what failed is left out."""
    times: dict[Cell, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    counts: dict[Cell, dict[str, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in benchmarks:
        stream, *parts = row["name"].split("/")
        named = dict(part.split(":", 1) for part in parts if ":" in part)
        if row.get("error_occurred") or "policy" not in named:
            continue
        cell = Cell(stream, float(named["rtt_ms"]), float(named["mbit"]))
        times[cell][named["policy"]].append(row["real_time"])
        for counter in COUNTERS:
            counts[cell][named["policy"]][counter].append(row.get(counter, 0))
    return [
        Compared(
            cell,
            {policy: Spread.of(found) for policy, found in policies.items()},
            {
                policy: {name: statistics.median(values) for name, values in found.items()}
                for policy, found in counts[cell].items()
            },
        )
        for cell, policies in times.items()
    ]


def summary(compared: list[Compared]) -> list[str]:
    """One line on the whole, and one for each cell in which ours is behind."""
    lines = [f"{OURS} is behind the best policy in {sum(c.behind for c in compared)} of "
             f"{len(compared)} cells"]  # fmt: skip
    for c in compared:
        if c.behind:
            ours, best = c.spreads[OURS], c.spreads[c.best]
            lines.append(
                f"{c.cell.stream}, {c.cell.line}: {ours.median:.2f} ms, {c.best} {best.median:.2f} "
                f"({best.low:.2f} to {best.high:.2f}): {c.ratio:.2f}"
            )
    return lines


_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #6b7480; --line: #d9dde3; --page: #fff;
  --other: #8fa3b8; --ours: #1f6fb5; --best: #2c8a4b; --bad: #c0392b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #98a2ae; --line: #363d47;
  --page: #14181d; --other: #6d8196; --ours: #62aef0; --best: #5dc381; --bad: #f07567; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p, li, summary { max-width: 46rem; } .soft { color: var(--soft); }
.panels { display: grid; gap: .8rem; overflow-x: auto;
  grid-template-columns: repeat(var(--columns), minmax(250px, 1fr)); }
figure { margin: 0; border: 1px solid var(--line); border-radius: 6px; padding: .5rem .6rem; }
figure.behind { border-color: var(--bad); }
figcaption { font-size: .8rem; color: var(--soft); display: flex; justify-content: space-between; }
figure.behind figcaption b { color: var(--bad); }
svg { display: block; width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif;
  fill: var(--ink); } svg .soft { fill: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .82rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; } td.best { color: var(--best);
  font-weight: 600; } td.bad { color: var(--bad); font-weight: 600; }
"""

_WIDTH, _NAMES, _VALUES, _ROW = 330, 92, 52, 20


def page(compared: list[Compared], context: dict[str, Any], commit: str) -> str:
    """Make the whole page."""
    said = summary(compared)
    runs = {spread.runs for c in compared for spread in c.spreads.values()}
    counted = f"{min(runs)} to {max(runs)}" if len(runs) > 1 else str(next(iter(runs), 0))
    streams = list(dict.fromkeys(c.cell.stream for c in compared))
    about = (
        f"Commit {commit}, {context.get('date', '')[:10]}, {context.get('num_cpus', '?')} CPUs; "
        f"{counted} runs of each policy in each cell, by turns."
    )
    behind = "".join(f"<li>{escape(line)}</li>" for line in said[1:])
    body = [
        "<h1>Flush policies on recorded streams</h1>",
        f'<p class="soft">{escape(about)}</p>',
        f"<p>{escape(said[0])}: its median over {BEHIND:g} times the best one's, and outside that "
        "one's quartiles. Time is from a stream's first event to the reply to its last wait, at "
        "the recorded program's own pace; bars span the quartiles, the dot is the median.</p>",
        f"<ul>{behind}</ul>",
    ]
    for stream in streams:
        body += _section(stream, [c for c in compared if c.cell.stream == stream])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Flush policies</title><style>{_STYLE}</style></head><body>"
        + "\n".join(body)
        + "</body></html>\n"
    )


def _section(stream: str, cells: list[Compared]) -> list[str]:
    columns = len({c.cell.rtt_ms for c in cells})
    rank = {mbit: place for place, mbit in enumerate(dict.fromkeys(c.cell.mbit for c in cells))}
    ordered = sorted(cells, key=lambda c: (rank[c.cell.mbit], c.cell.rtt_ms))
    return [
        f"<h2>{escape(stream)}</h2>",
        f'<div class="panels" style="--columns: {columns}">',
        *(_panel(c) for c in ordered),
        "</div>",
        "<details><summary>Times in ms: median (quartiles)</summary>",
        _times_table(cells),
        "</details><details><summary>Counters: medians</summary>",
        _counters_table(cells),
        "</details>",
    ]


def _panel(c: Compared) -> str:
    top = max(spread.high for spread in c.spreads.values()) or 1
    span = _WIDTH - _NAMES - _VALUES
    rows = []
    for row, (policy, spread) in enumerate(c.spreads.items()):
        y = row * _ROW + 13
        low, middle, high = (
            _NAMES + span * value / top for value in (spread.low, spread.median, spread.high)
        )
        colour = "ours" if policy == OURS else "best" if policy == c.best else "other"
        tip = f"{policy}: {spread.median:.3f} ms ({spread.low:.3f} to {spread.high:.3f})"
        rows.append(
            f"<g><title>{escape(tip)}</title>"
            f'<text x="{_NAMES - 8}" y="{y + 4}" text-anchor="end">{escape(policy)}</text>'
            f'<line x1="{_NAMES}" x2="{_NAMES + span}" y1="{y}" y2="{y}" stroke="var(--line)"/>'
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="var(--{colour})" '
            'stroke-width="7" stroke-linecap="round" opacity=".45"/>'
            f'<circle cx="{middle:.1f}" cy="{y}" r="4" fill="var(--{colour})"/>'
            f'<text x="{_WIDTH - _VALUES + 10}" y="{y + 4}">{spread.median:.4g}</text></g>'
        )
    ratio = f"{OURS} / best: <b>{c.ratio:.2f}</b>" if c.ratio else ""
    mark = ' class="behind"' if c.behind else ""
    height = len(rows) * _ROW + 8
    return (
        f"<figure{mark}><figcaption><span>{escape(c.cell.line)}</span><span>{ratio}</span>"
        f'</figcaption><svg viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(c.cell.line)}: milliseconds by policy">{"".join(rows)}</svg></figure>'
    )


def _table(heads: Iterable[str], rows: Iterable[str]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _times_table(cells: list[Compared]) -> str:
    policies = list(cells[0].spreads)
    rows = []
    for c in cells:
        entries = [f"<td>{escape(c.cell.line)}</td>"]
        for policy in policies:
            spread = c.spreads.get(policy)
            text = f"{spread.median:.3f} ({spread.low:.3f}–{spread.high:.3f})" if spread else "–"
            mark = ' class="best"' if policy == c.best else ""
            entries.append(f"<td{mark}>{text}</td>")
        bad = ' class="bad"' if c.behind else ""
        entries.append(f"<td{bad}>{c.ratio:.2f}</td>" if c.ratio else "<td>–</td>")
        rows.append(f"<tr>{''.join(entries)}</tr>")
    return _table(["line", *policies, f"{OURS} / best"], rows)


def _counters_table(cells: list[Compared]) -> str:
    rows = []
    for c in cells:
        for policy, counters in c.counters.items():
            values = "".join(f"<td>{counters[name]:.4g}</td>" for name in COUNTERS)
            rows.append(f"<tr><td>{escape(c.cell.line)}</td><td>{escape(policy)}</td>{values}</tr>")
    return _table(["line", "policy", *COUNTERS.values()], rows)
