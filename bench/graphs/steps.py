"""Does it pay to ship graphs? The demo's GPT, step by step, as ops, as graphs, and compiled.

Each mode trains in a process of its own, against a server of its own with an empty cache, over a
line with the given round trip. Three baselines stand in one run: without torch.compile, with
compiler="eager", and the default. Times of steps are the server's (events), so that reading them
disturbs nothing; records, bytes, waits and the client's CPU time are counted over steps without
events. docs/graphs.md shows what came out.

    .venv/bin/python bench/graphs/steps.py --out build/graphs.jsonl
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOOPS = ROOT / "python" / "demo" / "loops.py"  # By its path: python/ hides the installed package.
MODES = ("ops", "eager", "inductor")
COUNTED = 50  # Steps whose records are counted, after the others.
EXTRA_MAX = 3000  # Steps that are added while a compiler works.


def train(mode: str, steps: int) -> dict[str, object]:
    """Times of the steps in ms, and what a step costs."""
    import rgpu
    import torch

    loop = runpy.run_path(str(LOOPS), run_name="loops")["character_gpt"](30)
    model = loop.model.to("rgpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loss_of = loop.loss_of
    if mode != "ops":
        backend = rgpu.compile_backend(compiler=mode, fallback="error")
        loss_of = torch.compile(loss_of, backend=backend, dynamic=False)
    batches = [(x, y) for x, y in loop.batches]

    def step(number: int) -> torch.Tensor:
        x, y = batches[number % len(batches)]
        optimizer.zero_grad()
        loss = loss_of(model, x.to("rgpu"), y.to("rgpu"))
        loss.backward()
        optimizer.step()
        return loss

    def states() -> list[str]:
        return [graph.state for graph in rgpu.graphs()]

    began = time.perf_counter()
    step(0).item()
    first_s = time.perf_counter() - began
    marks = []
    changed = None  # The step after which everything was compiled.
    number = 1
    while number < steps or (changed is None and mode == "inductor" and number < EXTRA_MAX):
        mark = torch.Event("rgpu", enable_timing=True)
        mark.record()
        marks.append(mark)
        loss = step(number)
        number += 1
        if number % 10 == 0:
            loss.item()
            if changed is None and mode == "inductor" and number % 50 == 0:
                changed = number if set(states()) == {"compiled"} else None
                steps = number + 200 if changed and number + 200 > steps else steps
    for first in range(0, len(marks), 500):  # So many questions may be under way.
        for mark in marks[first : first + 500]:
            mark.query()
        rgpu.synchronize()
    times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:], strict=False)]
    before, cpu, began = rgpu.stats(), time.process_time_ns(), time.perf_counter()
    for i in range(COUNTED):
        step(i)
    cpu_ms = (time.process_time_ns() - cpu) / 1e6 / COUNTED
    after = rgpu.stats()
    rgpu.synchronize()
    names = ("records", "frees", "waits", "bytes_out", "payload_bytes_out")
    return {
        "mode": mode,
        "first_step_s": round(first_s, 3),
        "times_ms": [round(t, 2) for t in times],
        "compiled_after": changed,
        "wall_ms": round((time.perf_counter() - began) * 1e3 / COUNTED, 2),
        "client_cpu_ms": round(cpu_ms, 3),
        "per_step": {name: round((after[name] - before[name]) / COUNTED, 2) for name in names},
        "graphs": [vars(graph) for graph in rgpu.graphs()],
    }


def measure(mode: str, steps: int, rtt_ms: float) -> dict[str, object]:
    """One mode over one line, in new processes."""
    from rgpu_launch.services import start_opserver, start_relay

    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        with (
            start_opserver("cpu", threads=1) as server,
            start_relay(server.address, rtt_ms=rtt_ms) as relay,
        ):
            run = subprocess.run(
                [sys.executable, __file__, "--child", mode, "--steps", str(steps)],
                env={**os.environ, "RGPU_OPSERVER": relay.address, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
    return {"rtt_ms": rtt_ms, **json.loads(run.stdout.splitlines()[-1])}


def summary(row: dict[str, object]) -> str:
    """A line of the table."""
    times, changed = row["times_ms"], row["compiled_after"]
    # The first calls of a graph fault in the memory that later ones use again.
    settled = times[20 : changed - 50 if changed else None]
    parts = [f"{row['mode']:<9} {row['rtt_ms']:>6g}", f"{statistics.median(settled):>8.1f}"]
    parts.append(f"{max(settled) / statistics.median(settled):>9.2f}")
    parts.append(f"{statistics.median(times[changed:]):>9.1f}" if changed else f"{'':>9}")
    counts = row["per_step"]
    commands = counts["bytes_out"] - counts["payload_bytes_out"]
    parts.append(f"{row['wall_ms']:>8.1f} {row['client_cpu_ms']:>7.2f}")
    parts.append(f"{counts['records']:>8g} {commands:>8.0f} {counts['waits']:>6g}")
    return " ".join(parts)


def main() -> None:
    """All modes and lines, one after the other; a JSON line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rtts", default="0,100", help="milliseconds")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--out", type=Path, help="JSON lines, with the time of every step")
    parser.add_argument("--child", choices=MODES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(train(args.child, args.steps)))
        return
    print(
        "mode      RTT ms  step ms  worst/med  compiled  wall ms  cpu ms  records  command B  waits"
    )
    rows = []
    for rtt in map(float, args.rtts.split(",")):
        for mode in args.modes.split(","):
            rows.append(measure(mode, args.steps, rtt))
            print(summary(rows[-1]), flush=True)
    if args.out:
        args.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
