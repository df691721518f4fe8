"""Three small models with what it takes to train them: the same weights and batches every time."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """One transformer block: causal attention, then a multilayer perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.ln1(x)).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    """A character GPT; `tied` gives the head the token embedding's weight."""

    def __init__(self, *, layers: int, width: int, heads: int, block: int, tied: bool = False):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(128, width), nn.Embedding(block, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        places = torch.arange(index.shape[1], device=index.device)
        return self.head(self.norm(self.blocks(self.tokens(index) + self.positions(places))))


def gpt(layers: int = 2, width: int = 16, heads: int = 2, block: int = 12, tied: bool = False):
    return GPT(layers=layers, width=width, heads=heads, block=block, tied=tied)


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def token_batches(count: int, batch: int = 4, block: int = 12) -> Iterator[Any]:
    for _ in range(count):
        text = torch.randint(128, (batch, block + 1))
        yield text[:, :-1].contiguous(), text[:, 1:].contiguous()


def image_batches(count: int) -> Iterator[Any]:
    for _ in range(count):
        yield torch.rand(16, 1, 8, 8), torch.randint(10, (16,))


def number_batches(count: int) -> Iterator[Any]:
    for _ in range(count):
        x = torch.randn(64, 16)
        yield x, x.sin().sum(1, keepdim=True)


def token_loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x).view(-1, 128), y.reshape(-1))


def image_loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x), y)


def number_loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model(x), y)


# Per model: how to make it, its loss, its batches, its optimizer.
MODELS: dict[str, tuple[Callable, Callable, Callable, Callable]] = {
    "mlp": (mlp, number_loss, number_batches, lambda p: torch.optim.SGD(p, lr=0.05)),
    "cnn": (cnn, image_loss, image_batches, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
    "gpt": (gpt, token_loss, token_batches, lambda p: torch.optim.AdamW(p, lr=1e-3)),
}
