"""The two training loops of the demo: a character GPT and a CNN, on real text and images.

Weights and batches are made on the CPU from fixed seeds and moved to the device, so that losses
can be compared between devices. Every tenth loss is read, and nothing else waits.
"""

import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

READ_EVERY = 10
_VOCABULARY = 128  # ASCII.


@dataclass
class Loop:
    """A model, its batches, and how its loss is computed and lowered."""

    model: nn.Module
    loss_of: Callable[[nn.Module, Tensor, Tensor], Tensor]
    batches: list[tuple[Tensor, Tensor]]
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    steps: int
    held_out: tuple[Tensor, Tensor] | None = None  # Images and labels not trained on.
    losses: list[float] = field(default_factory=list)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        result: Tensor = x + self.mlp(self.norm2(x))
        return result


class _CharacterGpt(nn.Module):
    def __init__(self, *, layers: int, heads: int, width: int, context: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(_VOCABULARY, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[_Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, _VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def _standard_library() -> Tensor:
    """The ASCII characters of the standard library's modules, one after the other: [length]."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = "".join(path.read_text(errors="ignore") for path in sorted(folder.glob("*.py")))
    return torch.frombuffer(bytearray(text.encode("ascii", "ignore")), dtype=torch.uint8).long()


def character_gpt(steps: int) -> Loop:
    """A GPT of 0.8 million parameters that predicts the next character of Python sources."""
    torch.manual_seed(1234)
    context, batch_size = 64, 16
    model = _CharacterGpt(layers=4, heads=4, width=128, context=context)
    text = _standard_library()

    def draw() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(text) - context - 1, (batch_size,)).tolist()
        return (
            torch.stack([text[start : start + context] for start in starts]),
            torch.stack([text[start + 1 : start + 1 + context] for start in starts]),
        )

    def loss_of(model: nn.Module, tokens: Tensor, following: Tensor) -> Tensor:
        return functional.cross_entropy(model(tokens).view(-1, _VOCABULARY), following.reshape(-1))

    return Loop(
        model,
        loss_of,
        [draw() for _ in range(steps)],
        lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3),
        steps,
    )


def digits_cnn(steps: int) -> Loop:
    """Two convolutions and a linear layer that read scikit-learn's handwritten digits."""
    from sklearn.datasets import load_digits

    torch.manual_seed(1234)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    shuffled = torch.randperm(len(images))
    trained, held_out = shuffled[:1500], shuffled[1500:]
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )

    def draw() -> tuple[Tensor, Tensor]:
        chosen = trained[torch.randint(len(trained), (64,))]
        return images[chosen], labels[chosen]

    return Loop(
        model,
        lambda model, x, y: functional.cross_entropy(model(x), y),
        [draw() for _ in range(steps)],
        lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        steps,
        held_out=(images[held_out], labels[held_out]),
    )


LOOPS: dict[str, Callable[[int], Loop]] = {"gpt": character_gpt, "cnn": digits_cnn}
TITLES = {
    "gpt": "Character GPT on the standard library's sources",
    "cnn": "CNN on scikit-learn's handwritten digits",
}
