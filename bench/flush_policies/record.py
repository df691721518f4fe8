"""Records the streams that flush_policies_bench replays: `record.py [--folder DIR] [STREAM …]`.

Each stream is a small program in a process of its own, with its private rgpu-opserver and
RGPU_RECORD set. What comes before the first synchronize() is preparation: the model, and a first
step that defines the op templates; what comes after it is what the bench measures.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "python" / "demo"
TAKES = 5  # The one in the middle is kept: a machine has bad moments.


def _mlp_step() -> Iterator[None]:
    """Three steps of a 16-32-1 regression, the loss read after the last."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)).to("rgpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = torch.randn(64, 16).to("rgpu"), torch.randn(64, 1).to("rgpu")

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step().item()
    yield
    for _ in range(3):
        loss = step()
    loss.item()


def _gpt_step() -> Iterator[None]:
    """One step of the demo's character GPT, of which no value is read."""
    sys.path.insert(0, str(DEMO))
    from loops import character_gpt

    loop = character_gpt(steps=4)
    model = loop.model.to("rgpu")
    optimizer = loop.make_optimizer(model)
    for number, (tokens, following) in enumerate(loop.batches):
        if number == len(loop.batches) - 1:
            yield
        optimizer.zero_grad()
        loop.loss_of(model, tokens.to("rgpu"), following.to("rgpu")).backward()
        optimizer.step()


def _thousand_ops() -> Iterator[None]:
    """A thousand small ops in a row, and one value read."""
    import torch

    x = torch.ones(64, device="rgpu")

    def burst(count: int) -> None:
        y = x
        for _ in range(count // 2):
            y = torch.relu(y + 1)
        y.sum().item()

    burst(1000)
    yield
    burst(1000)


def _upload_heavy() -> Iterator[None]:
    """Sixteen uploads of 256 KiB, an op on each, and one value read."""
    import torch

    hosts = [torch.randn(256, 256) for _ in range(16)]

    def feed() -> None:
        total = torch.zeros((), device="rgpu")
        for host in hosts:
            total += (host.to("rgpu") * 2).sum()
        total.item()

    feed()
    yield
    feed()


STREAMS: dict[str, Callable[[], Iterator[None]]] = {
    "mlp_step": _mlp_step,
    "gpt_step": _gpt_step,
    "thousand_ops": _thousand_ops,
    "upload_heavy": _upload_heavy,
}


def _play(stream: str) -> None:
    """Be the program: prepare, synchronize, run the main part. Prints its own time, in seconds."""
    import rgpu
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    parts = STREAMS[stream]()
    next(parts)
    torch.rgpu.synchronize()
    waited, began = rgpu.stats()["wait_ns"], time.perf_counter()
    next(parts, None)
    elapsed = time.perf_counter() - began
    print(elapsed - (rgpu.stats()["wait_ns"] - waited) / 1e9)


def _record(stream: str, folder: Path) -> None:
    from rgpu_launch.services import start_opserver

    target = folder / f"{stream}.rgpurec"
    with start_opserver("cpu", threads=1) as server, tempfile.TemporaryDirectory() as takes:
        found: list[tuple[float, bytes]] = []
        for take in range(TAKES):
            path = Path(takes) / f"{take}.rgpurec"
            environment = {"RGPU_OPSERVER": server.address, "RGPU_RECORD": str(path)}
            played = subprocess.run(
                [sys.executable, __file__, "--play", stream],
                env={**os.environ, **environment, "RGPU_RECORD_BYTES": "", "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found.append((float(played.stdout), path.read_bytes()))
        own_s, recording = sorted(found)[len(found) // 2]
        target.write_bytes(recording)
    print(f"{target}: {len(recording)} bytes, {own_s * 1e3:.2f} ms of the program's own")


def main() -> None:
    """Record what the command line names; all by default."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("streams", nargs="*", default=list(STREAMS), help=", ".join(STREAMS))
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "recordings")
    parser.add_argument("--play", choices=STREAMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        _play(options.play)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for stream in options.streams:
        _record(stream, options.folder)


if __name__ == "__main__":
    main()
