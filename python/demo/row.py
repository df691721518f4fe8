"""One row of the table: both loops on one device, in a process of its own.

Prints JSON lines: {"loop", "step"} as it goes, {"loop", "figures"} when a loop is done. Figures
leave out the first step, in which op templates are sent and memory is allocated.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch
from loops import LOOPS, READ_EVERY, Loop


def _say(**message: object) -> None:
    print(json.dumps(message), flush=True)


def _stats(device: str) -> Mapping[str, int]:
    if device == "cpu":
        return {}
    import rgpu

    stats: Mapping[str, int] = rgpu.stats()
    return dict(stats)


def _synchronize(device: str) -> None:
    if device != "cpu":
        torch.get_device_module(device).synchronize()


def _accuracy(loop: Loop, device: str) -> float | None:
    if loop.held_out is None:
        return None
    images, labels = (part.to(device) for part in loop.held_out)
    loop.model.eval()
    with torch.no_grad():
        right = (loop.model(images).argmax(1) == labels).float().mean()
    return float(right.item())


def train(name: str, steps: int, device: str) -> dict[str, Any]:
    """Train the loop called `name`; its figures."""
    loop = LOOPS[name](steps)
    loop.model.to(device)
    optimizer = loop.make_optimizer(loop.model)
    began, cpu_began = time.perf_counter(), time.process_time()
    before = _stats(device)
    for step, (x, y) in enumerate(loop.batches):
        optimizer.zero_grad()
        loss = loop.loss_of(loop.model, x.to(device), y.to(device))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step == 0 or (step + 1) % READ_EVERY == 0:
            loop.losses.append(loss.item())
            _say(loop=name, step=step + 1)
        if step == 0:
            before = _stats(device)
            began, cpu_began = time.perf_counter(), time.process_time()
    _synchronize(device)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    after = _stats(device)
    return {
        "steps": steps - 1,
        "seconds_a_step": seconds / (steps - 1),
        "client_cpu_seconds_a_step": cpu_seconds / (steps - 1),
        "counts": {key: after[key] - before.get(key, 0) for key in after},
        "losses": loop.losses,
        "accuracy": _accuracy(loop, device),
    }


def main() -> None:
    """Train every loop that is named as NAME=STEPS."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("loops", nargs="+", metavar="NAME=STEPS")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for loop in options.loops:
        name, _, steps = loop.partition("=")
        _say(loop=name, figures=train(name, int(steps), options.device))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
