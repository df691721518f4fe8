"""Small programs for torch.compile, each a module that takes one batch, and how they are compared.

``PROGRAMS`` maps a name to a function that makes the module; every module maps float32 [4, 8] (or
what ``INPUTS`` says) to tensors. Made and run from fixed seeds, on the CPU without a compiler and
on the device with one.
"""

import contextlib
import warnings

import rgpu
import torch
import torch.nn.functional as F
from device_parity import DEVICE
from torch import nn
from torch.utils.checkpoint import checkpoint


class Function(nn.Module):
    """A module of one function of itself and the batch, with a layer to learn."""

    def __init__(self, function):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def of(function):
    return lambda: Function(function)


class Attention(nn.Module):
    def __init__(self, masked):
        super().__init__()
        self.qkv, self.norm, self.masked = nn.Linear(8, 24), nn.LayerNorm(8), masked

    def forward(self, x):
        parts = self.qkv(self.norm(x)).split(8, dim=1)
        q, k, v = (t.view(1, -1, 2, 4).transpose(1, 2) for t in parts)
        mask = torch.ones(x.shape[0], x.shape[0], device=x.device).tril() == 1
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask if self.masked else None, is_causal=not self.masked
        )
        return out.transpose(1, 2).reshape(-1, 8).tanh()


class Convolutions(nn.Module):
    def __init__(self, layout=torch.contiguous_format):
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.last, self.layout = nn.Linear(16, 3), layout

    def forward(self, x):
        image = x.view(x.shape[0], 1, 2, 4).repeat(1, 1, 2, 1).to(memory_format=self.layout)
        return self.last(F.max_pool2d(F.relu(self.norm(self.first(image))), 2).flatten(1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(8, 8)

    def forward(self, x):
        return self.cell(x.unsqueeze(1))[0]


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.table.weight  # Tied.

    def forward(self, x):
        ids = (x.abs() * 10).long() % 16
        return F.cross_entropy(self.head(self.table(ids)).flatten(0, 1), ids.flatten())


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(8))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        y = self.layer(x)
        with torch.no_grad():
            self.seen.mul_(0.9).add_(y.mean(0), alpha=0.1)
            self.calls += 1
        return y * (1 + self.seen), self.calls.float()


class Shared(nn.Module):
    """Two compiled functions over one layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x).relu() + self.layer(x * 2).tanh()


def graph_break(self, x):
    y = self.layer(x)
    torch._dynamo.graph_break()
    return y.relu() * 2


def data_dependent(self, x):
    y = self.layer(x)
    return y * 2 if y.sum() > 0 else y * 3


def write_to_input_copy(self, x):
    y = self.layer(x).clone()
    y[:, 0] = 1
    y[1].mul_(2)
    y.view(-1)[3:7] += 1
    return y


def half(self, x):
    y = F.linear(x.bfloat16(), self.layer.weight.bfloat16(), self.layer.bias.bfloat16())
    return F.gelu(y).float()


def with_autocast(self, x):
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        y = self.layer(x)
    return y.float()


def without_grad(self, x):
    with torch.no_grad():
        scale = self.layer(x).std()
    return self.layer(x) / (1 + scale)


def scattered(self, x):
    ids = torch.tensor([0, 2, 1, 0, 3, 3, 1, 2], device=x.device)
    y = torch.zeros(4, 8, device=x.device).scatter_add(1, ids.expand(4, 8), self.layer(x))
    y = y.index_put((ids[:2],), torch.ones(8, device=x.device), accumulate=True)
    return y.gather(1, ids.expand(4, 8)) + y[:, ids]


def structured(self, x):
    y = self.layer(x)
    return {"sum": y.sum(), "parts": [y[:2], None, (y.t(),)], "scalar": y.new_ones(())}


PROGRAMS = {
    "linear_layers": lambda: nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2)),
    "batch_norm": lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()),
    "batch_norm_eval": lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8).eval()),
    "layer_norm": lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.SiLU()),
    "group_norm": lambda: nn.Sequential(nn.Linear(8, 8), nn.GroupNorm(2, 8)),
    "rms_norm": lambda: nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8)),
    "causal_attention": lambda: Attention(masked=False),
    "masked_attention": lambda: Attention(masked=True),
    "encoder_layer": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
    "convolutions": Convolutions,
    "channels_last": lambda: Convolutions(torch.channels_last),
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "tied_embedding": Embedded,
    "buffers": Buffers,
    "shared_layer": Shared,
    "graph_break": of(graph_break),
    "data_dependent_branch": of(data_dependent),
    "no_grad_inside": of(without_grad),
    "autocast_inside": of(with_autocast),
    "half": of(half),
    "in_place_on_views": of(write_to_input_copy),
    "scatter_and_index": of(scattered),
    "structured_outputs": of(structured),
    "view_as_output": of(lambda m, x: (m.layer(x).t(), m.layer(x)[1:, ::2])),
    "views_of_one_result": of(lambda m, x: (lambda y: (y, y[0], y.t(), y.view(-1)))(m.layer(x))),
    "input_as_output": of(lambda m, x: (x, m.layer(x), x.t())),
    "same_output_twice": of(lambda m, x: (lambda y: (y, y, y + 1))(m.layer(x).relu())),
    "captured_constant": of(lambda m, x: m.layer(x) * torch.arange(8.0).to(x.device) + 1),
    "constant_tensor": of(lambda m, x: m.layer(x) + torch.tensor([1.0, 2.0] * 4, device=x.device)),
    "host_scalar": of(lambda m, x: m.layer(x) * torch.tensor(3.0) - torch.tensor(2)),
    "checkpointed": of(
        lambda m, x: checkpoint(lambda t: m.layer(t).tanh() * t.sin(), x, use_reentrant=False)
    ),
    "cat_and_split": of(lambda m, x: torch.cat([t.cos() for t in m.layer(x).chunk(3, 1)], 1)),
    "stack_and_unbind": of(lambda m, x: torch.stack([t * 2 for t in m.layer(x).unbind(0)], 1)),
    "einsum": of(lambda m, x: torch.einsum("ij,kj->ik", m.layer(x), x)),
    "sort_and_topk": of(lambda m, x: m.layer(x).sort(1)[0] * m.layer(x).topk(8, 1)[0]),
    "cumulative": of(lambda m, x: m.layer(x).cumsum(0) + m.layer(x).logcumsumexp(1)),
    "masks": of(lambda m, x: torch.where(x > 0, m.layer(x), -1.0).masked_fill(x < -1, 2.0)),
    "complex": of(lambda m, x: torch.fft.rfft(m.layer(x)).abs() + torch.view_as_complex(
        m.layer(x).view(4, 4, 2)).real.sum()),
    "foreach": of(lambda m, x: torch.stack(torch._foreach_mul([m.layer(x), x, x.cos()], 2.0))),
    "losses": of(lambda m, x: F.mse_loss(m.layer(x), x) + F.smooth_l1_loss(m.layer(x), x)
                 + F.kl_div(m.layer(x).log_softmax(1), x.softmax(1), reduction="batchmean")),
    "reductions": of(lambda m, x: (m.layer(x).amax(1), m.layer(x).var(0), m.layer(x).norm(),
                                   m.layer(x).argmax(1))),
    "linear_algebra": of(lambda m, x: torch.linalg.solve(
        m.layer(x) @ m.layer(x).t() + 8 * torch.eye(4, device=x.device), x)),
    "interpolate": of(lambda m, x: F.interpolate(
        m.layer(x)[None], scale_factor=1.5, mode="linear")),
    "pad_and_unfold": of(lambda m, x: F.pad(m.layer(x), (1, 2)).unfold(1, 3, 2).sum(-1)),
    "non_contiguous": of(lambda m, x: m.layer(x.t().contiguous().t()).t()[::2] * 2),
}  # fmt: skip


def batches(count, rows=None):
    """float32 [4, 8] each, or as many rows as ``rows`` says."""
    generator = torch.Generator().manual_seed(3)
    sizes = rows or [4] * count
    return [torch.randn(n, 8, generator=generator) for n in sizes]


def leaves(value):
    """The floating tensors in it, in order."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in leaves(item)] if isinstance(value, (list, tuple)) else []


def flat(value):
    """All tensors and other leaves in it."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in flat(item)]
    return [value.detach().cpu() if isinstance(value, torch.Tensor) else value]


def train(make, device, compile_with, data, optimizer="sgd"):
    """Outputs, gradients and state of three steps; what they are made of comes from one seed."""
    torch.manual_seed(0)
    module = make().to(device)
    if optimizer == "adamw":
        step = torch.optim.AdamW(module.parameters(), lr=0.01, fused=True)
    else:
        step = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    run = compile_with(module)
    results = []
    for x in data:
        step.zero_grad()
        out = run(x.to(device))
        sum(t.float().abs().sum() for t in leaves(out) if t.requires_grad).backward()
        results.append(flat(out))
        results.append([p.grad.cpu().clone() for p in module.parameters()])
        step.step()
    results.append([t.detach().cpu() for t in module.state_dict().values()])
    return results


def compiled(**options):
    """How ``train`` compiles for the device."""
    dynamic = options.pop("dynamic", False)
    fullgraph = options.pop("fullgraph", False)
    options = {"compiler": "eager", "fallback": "error", **options}

    def compile_with(module):
        torch._dynamo.reset()
        return torch.compile(
            module, backend=rgpu.compile_backend(**options), dynamic=dynamic, fullgraph=fullgraph
        )

    return compile_with


def assert_same(ours, reference, rtol=1e-4, atol=1e-5):
    assert len(ours) == len(reference)
    for mine, theirs in zip(ours, reference, strict=True):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs, strict=True):
            if isinstance(b, torch.Tensor):
                torch.testing.assert_close(a, b, rtol=rtol, atol=atol)
            else:
                assert a == b


def graph_calls():
    """Calls of all live graphs by their roles."""
    calls = {}
    for graph in rgpu.graphs():
        role = graph.name.rpartition(".")[2]
        calls[role] = calls.get(role, 0) + graph.calls
    return calls


@contextlib.contextmanager
def no_warnings():
    """A graph that was not sent says so in a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="rgpu: ")
        yield


__all__ = [
    "DEVICE",
    "PROGRAMS",
    "assert_same",
    "batches",
    "compiled",
    "graph_calls",
    "no_warnings",
    "train",
]
