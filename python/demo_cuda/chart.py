"""The chart of ./dev demo-cuda: how often programs called CUDA and how often they waited."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SERIES = (
    ("calls", "#9db8d9"),
    ("records", "#2f6db3"),
    ("frames", "#8a8f98"),
    ("waits", "#c8442f"),
)


def draw_chart(results: Mapping[str, Mapping[str, Any]], setting: str, path: Path) -> None:
    """Draw bars for each program, counts on a logarithmic scale."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    names = list(results)
    height = 0.8 / len(_SERIES)
    figure, axis = pyplot.subplots(figsize=(8, 1.6 + 0.9 * len(names)), layout="constrained")
    for at, (key, colour) in enumerate(_SERIES):
        values = [results[name][key] for name in names]
        places = [i + (at - (len(_SERIES) - 1) / 2) * height for i in range(len(names))]
        bars = axis.barh(places, values, height * 0.92, color=colour, label=key)
        axis.bar_label(bars, [f"{value:,}" for value in values], padding=3, fontsize=8)
    axis.set_xscale("log")
    axis.set_xlim(0.8, 4 * max(results[name][key] for name in names for key, _ in _SERIES))
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(ncols=len(_SERIES), loc="upper center", bbox_to_anchor=(0.5, -0.08), frameon=False)
    axis.set_title(f"Calls of CUDA, and waits for it: {setting}", fontsize=10)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
