"""Random programs over small integer tensors give what they give on the CPU, wherever they read.

The client knows such tensors where it can (docs/decisions/008-known-integers.md): a value that it
believes and the server does not have, or the other way round, shows here. Each walk makes tensors
by ops and views of earlier ones, changes some in place, and reads at random; at its end every
tensor is read twice, as the client knows it and through an op that only the server can answer.
"""

import random

import pytest
import torch
from device_parity import DEVICE

MAKE = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "equal": lambda x, y: x == y,
    "less": lambda x, y: x < y,
    "both": lambda x, y: (x != 0) & (y != 0),
    "either": lambda x, y: (x != 0) | (y != 0),
    "where": lambda x, y: torch.where(x != 0, x, y),
    "maximum": torch.maximum,
    "cat": lambda x, y: torch.cat([x.flatten(), y.flatten()]),
    "stack": lambda x, y: torch.stack([x, x]),
    "minus_one": lambda x, y: x.long() - 1,
    "sum": lambda x, y: x.sum(),
    "sum_last": lambda x, y: x.sum(-1, keepdim=True),
    "any": lambda x, y: x.any(),
    "all": lambda x, y: x.all(-1),
    "cumsum": lambda x, y: x.cumsum(0),
    "flat_view": lambda x, y: x.view(-1),
    "transpose": lambda x, y: x.transpose(0, 1),
    "tail": lambda x, y: x[1:],
    "every_other": lambda x, y: x[::2],
    "first": lambda x, y: x[0],
    "unsqueeze": lambda x, y: x.unsqueeze(0),
    "expand": lambda x, y: x.expand(2, *x.shape),
    "clone": lambda x, y: x.clone(),
    "long": lambda x, y: x.long(),
    "bool": lambda x, y: x.bool(),
    "through_float": lambda x, y: (x.float() * 1.5).long(),
    "not": lambda x, y: x.logical_not(),
    "flip": lambda x, y: x.flip(0),
    "index": lambda x, y: x[torch.zeros(2, dtype=torch.int64, device=x.device)],
    "nonzero": lambda x, y: x.nonzero(),
    "detach": lambda x, y: x.detach(),
    "full_like": lambda x, y: torch.full_like(x, 1),
    "alias": lambda x, y: x.view(x.shape),
    "other_dtype": lambda x, y: x.view(torch.int32),
    "gather": lambda x, y: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
    "sort": lambda x, y: x.sort(0)[0],
    "masked": lambda x, y: x.masked_fill(x != 0, 1),
    "tril": lambda x, y: x.tril(),
    "repeat": lambda x, y: x.repeat(2, *[1] * (x.dim() - 1)),
    "isin": lambda x, y: torch.isin(x, torch.tensor([1, 2], device=x.device)),
    "floor_divide": lambda x, y: torch.div(x.long(), 2, rounding_mode="floor"),
    "shift": lambda x, y: x.long() << 1,
}
CHANGE = {
    "add_": lambda x, y: x.add_(1),
    "fill_": lambda x, y: x.fill_(1),
    "zero_": lambda x, y: x.zero_(),
    "copy_one": lambda x, y: x.copy_(y.flatten()[0]),
    "copy_": lambda x, y: x.copy_(y),
    "set_first": lambda x, y: x.__setitem__(0, 1),
    "set_masked": lambda x, y: x.__setitem__(x != 0, 1),
    "masked_fill_": lambda x, y: x.masked_fill_(x == 0, 1),
    "scatter_": lambda x, y: x.scatter_(0, torch.zeros_like(x, dtype=torch.int64), 1),
    "logical_or_": lambda x, y: x.logical_or_(x),
    "out": lambda x, y: torch.add(x, 1, out=x),
    "foreach": lambda x, y: torch._foreach_add_([x], 1),
    "upload": lambda x, y: x.copy_(torch.ones(x.shape, dtype=x.dtype)),
    "data": lambda x, y: x.data.add_(1),
    "cumsum_": lambda x, y: x.cumsum_(0),
    "clamp_": lambda x, y: x.clamp_(0, 3),
    "index_fill_": lambda x, y: x.index_fill_(0, torch.tensor([0], device=x.device), 1),
    "through_a_view": lambda x, y: x.view(-1)[:1].add_(1),
    "bernoulli_": lambda x, y: x.bernoulli_(1.0),
}
DTYPES = [torch.int64, torch.int32, torch.bool, torch.uint8]


class Walk:
    """One program, on both devices at once."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        torch.manual_seed(seed)
        self.said: list[tuple[object, ...]] = [("seed", seed)]
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        for _ in range(3):
            sizes = (self.choose.randrange(1, 5), self.choose.randrange(1, 4))
            host = torch.randint(0, 5, sizes).to(self.choose.choice(DTYPES))
            self.pairs.append((host, host.to(DEVICE)))
        self.pairs.append((torch.zeros(3, 4).long(), torch.zeros(3, 4, device=DEVICE).long()))
        self.pairs.append((torch.arange(6).view(2, 3), torch.arange(6, device=DEVICE).view(2, 3)))

    def step(self) -> None:
        x, y = self.choose.choice(self.pairs), self.choose.choice(self.pairs)
        what = self.choose.random()
        if what >= 0.8:
            self.said.append(("read", next(i for i, pair in enumerate(self.pairs) if pair is x)))
            assert x[0].tolist() == x[1].tolist(), self.said
            return
        name, function = self.choose.choice(list((MAKE if what < 0.5 else CHANGE).items()))
        try:
            made = function(x[0], y[0])
        except (RuntimeError, IndexError):
            return  # Nothing that the CPU does either.
        if isinstance(made, torch.Tensor) and made.numel() > 500:
            return
        self.said.append(
            (name, *(i for i, pair in enumerate(self.pairs) if pair is x or pair is y))
        )
        got = function(x[1], y[1])
        if what < 0.5:
            self.pairs.append((made, got))

    def end(self) -> None:
        for number, (want, got) in enumerate(self.pairs):
            assert want.tolist() == got.tolist(), (number, self.said)
            assert torch.equal(want.double(), got.double().cpu()), (number, self.said)


@pytest.mark.parametrize("first_seed", range(0, 60, 10))
def test_integers_are_what_they_are_on_the_cpu(first_seed):
    for seed in range(first_seed, first_seed + 10):
        walk = Walk(seed)
        for _ in range(60):
            walk.step()
        walk.end()
