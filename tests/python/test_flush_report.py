"""The page about flush policies, made from figures like the bench's."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The path is taken back at once: the sources in python/ would hide the installed rgpu.
sys.path.insert(0, str(ROOT / "python"))
from devtool import flush_report  # noqa: E402 - the path comes first

sys.path.remove(str(ROOT / "python"))


def rows(stream: str, times_ms: dict[str, list[float]]) -> list[dict[str, object]]:
    cell = f"{stream}/rtt_ms:20/mbit:100"
    return [
        {
            "name": f"{cell}/policy:{policy}/run:{run}/iterations:1/manual_time",
            "real_time": time_ms,
            "frames": 3.0,
        }
        for policy, times in times_ms.items()
        for run, time_ms in enumerate(times)
    ]


NEAR = rows("near", {"sync": [10, 11, 12], "adaptive": [10.2, 11.2, 12.2]})
WITHIN = rows("within", {"sync": [10, 11, 14], "adaptive": [12, 12.2, 12.4]})
BEHIND = rows("behind", {"sync": [10, 11, 12], "adaptive": [20, 21, 22]})


def test_behind_is_slower_by_five_percent_and_outside_the_quartiles():
    compared = flush_report.compare(NEAR + WITHIN + BEHIND)
    assert {c.cell.stream: c.behind for c in compared} == {
        "near": False,
        "within": False,
        "behind": True,
    }
    assert flush_report.summary(compared) == [
        "adaptive is behind the best policy in 1 of 3 cells",
        "behind, 20 ms, 100 Mbit/s: 21.00 ms, sync 11.00 (10.50 to 11.50): 1.91",
    ]


def test_what_failed_is_left_out():
    failed = [{**row, "error_occurred": True} for row in NEAR]
    assert flush_report.compare(failed) == []


def test_the_page_stands_alone_and_marks_what_is_behind():
    compared = flush_report.compare(NEAR + BEHIND)
    page = flush_report.page(compared, {"date": "2026-01-02T03:04:05", "num_cpus": 2}, "abc123")
    assert "http" not in page
    assert "<script" not in page
    assert page.count('<figure class="behind">') == 1
    assert "Commit abc123, 2026-01-02, 2 CPUs; 3 runs" in page


def test_a_single_run_and_no_adaptive_are_enough():
    compared = flush_report.compare(rows("one", {"sync": [10], "records=2": [9]}))
    assert compared[0].best == "records=2"
    assert compared[0].ratio is None
    assert not compared[0].behind
    assert "records=2" in flush_report.page(compared, {}, "abc123")
