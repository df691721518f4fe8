"""The records of whole training steps, by name and in order: a decomposition that creeps in shows.

An op that reaches CUDA as one kernel reaches the server as one record; what PyTorch itself takes
apart before any device sees it (cross_entropy into log_softmax and nll_loss) is taken apart here
too. When a change of PyTorch or of the device changes a list on purpose, change the list.
"""

import pytest
import rgpu
import torch
import torch.nn.functional as F
from device_parity import DEVICE, randn
from torch import nn


def records(action) -> list[str]:
    """The names of what the action issues once everything about it is known, in order."""
    action()
    with rgpu.profile(path=None, print_summary=False) as profile:
        action()
    names = [call.name for call in profile._calls if not call.is_wait]
    return [name.removeprefix("aten::") for name in names]


def folded(names: list[str]) -> list[str]:
    """Runs of one name as `name × n`."""
    lines: list[list] = []
    for name in names:
        if lines and lines[-1][0] == name:
            lines[-1][1] += 1
        else:
            lines.append([name, 1])
    return [name if count == 1 else f"{name} × {count}" for name, count in lines]


class Block(nn.Module):
    """A Transformer block as programs write it today."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.heads = heads

    def forward(self, x):
        b, t, c = x.shape
        parts = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.block, self.norm = nn.Embedding(20, 16), Block(16, 2), nn.LayerNorm(16)
        self.head = nn.Linear(16, 20)

    def forward(self, tokens):
        return self.head(self.norm(self.block(self.embed(tokens))))


def transformer_step():
    torch.manual_seed(0)
    model = Transformer().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(20, (2, 7)).to(DEVICE)

    def step():
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 20), tokens[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.conv2 = (
            nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2)
        )
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(x + self.norm2(self.conv2(y)), inplace=True)


def resnet_step():
    torch.manual_seed(0)
    stem = [nn.Conv2d(3, 4, 3, stride=2, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)]
    model = nn.Sequential(*stem, Residual(4), *head).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = randn(DEVICE, 2, 3, 16, 16), torch.randint(5, (2,)).to(DEVICE)

    def step():
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()  # The first one makes the momentum buffers.
    return step


TRANSFORMER = [
    "embedding", "native_layer_norm", "addmm", "scaled_dot_product_attention", "addmm", "add",
    "native_layer_norm", "addmm", "gelu", "addmm", "add", "native_layer_norm", "addmm", "clone",
    "_log_softmax", "nll_loss_forward", "nll_loss_backward",
    "_log_softmax_backward_data", "mm × 2", "sum", "native_layer_norm_backward", "mm × 2", "sum",
    "gelu_backward", "mm × 2", "sum", "native_layer_norm_backward", "add_", "mm × 2", "sum",
    "rgpu::graph_backward", "stack", "clone", "mm × 2", "sum", "native_layer_norm_backward",
    "add_", "embedding_dense_backward", "_foreach_norm", "stack", "linalg_vector_norm", "add",
    "reciprocal", "mul", "clamp", "_foreach_mul_", "_foreach_add_", "_fused_adamw_",
]  # fmt: skip
RESNET = [
    "convolution", "add_", "native_batch_norm", "relu", "max_pool2d_with_indices", "convolution",
    "add_", "native_batch_norm", "relu_", "convolution", "add_", "native_batch_norm", "add",
    "relu_", "mean", "addmm", "_log_softmax", "nll_loss_forward", "nll_loss_backward",
    "_log_softmax_backward_data", "mm × 2", "sum", "div", "threshold_backward",
    "native_batch_norm_backward", "convolution_backward", "threshold_backward",
    "native_batch_norm_backward", "convolution_backward", "add_",
    "max_pool2d_with_indices_backward", "threshold_backward", "native_batch_norm_backward",
    "convolution_backward", "_foreach_mul_", "_foreach_add_ × 2",
]  # fmt: skip


def test_records_of_a_transformer_training_step():
    assert folded(records(transformer_step())) == TRANSFORMER


def test_records_of_a_resnet_training_step():
    assert folded(records(resnet_step())) == RESNET


# ---- One op at a time ---------------------------------------------------------------------------


def forward_and_backward(function, *leaves):
    """The records of the function and those of its backward."""
    out = function()
    weights = torch.ones_like(out)

    def backward():
        torch.autograd.grad(out, leaves, weights, retain_graph=True)

    return records(function), records(backward)


CONVOLUTIONS = {
    "conv1d": (nn.Conv1d(4, 6, 3), (2, 4, 9)),
    "conv2d": (nn.Conv2d(4, 6, 3), (2, 4, 9, 9)),
    "conv3d": (nn.Conv3d(4, 6, 3), (2, 4, 5, 5, 5)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), (2, 4, 9, 9)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), (2, 4, 9, 9)),
    "dilated": (nn.Conv2d(4, 6, 3, dilation=2), (2, 4, 9, 9)),
    "transposed1d": (nn.ConvTranspose1d(4, 6, 3), (2, 4, 9)),
    "transposed2d": (nn.ConvTranspose2d(4, 6, 3, groups=2), (2, 4, 9, 9)),
    "transposed3d": (nn.ConvTranspose3d(4, 6, 3), (2, 4, 5, 5, 5)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_is_one_record_each_way(name):
    module, sizes = CONVOLUTIONS[name]
    module = module.to(DEVICE)
    x = randn(DEVICE, *sizes, grad=True)
    got = forward_and_backward(lambda: module(x), x, *module.parameters())
    assert got == (["convolution"], ["convolution_backward"])


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"dropout_p": 0.5}, {"attn_mask": (5, 5)}, {"scale": 0.3},
     {"enable_gqa": True, "heads": 2}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_is_one_record_each_way(options, dtype):
    given = dict(options)
    heads = given.pop("heads", 4)
    q = randn(DEVICE, 2, 4, 5, 8, dtype=dtype, grad=True)
    k, v = (randn(DEVICE, 2, heads, 5, 8, dtype=dtype, grad=True) for _ in range(2))
    if "attn_mask" in given:
        given["attn_mask"] = torch.ones(given["attn_mask"], device=DEVICE).tril().bool()
    got = forward_and_backward(lambda: F.scaled_dot_product_attention(q, k, v, **given), q, k, v)
    assert got == (["scaled_dot_product_attention"], ["rgpu::graph_backward"])


def test_normalizations_are_one_record_each_way():
    x = randn(DEVICE, 3, 6, 4, 4, grad=True)
    layer, group = nn.LayerNorm((4, 4)).to(DEVICE), nn.GroupNorm(2, 6).to(DEVICE)
    batch = nn.BatchNorm2d(6).to(DEVICE)
    assert forward_and_backward(lambda: layer(x), x, *layer.parameters()) == (
        ["native_layer_norm"], ["native_layer_norm_backward"],
    )  # fmt: skip
    assert forward_and_backward(lambda: group(x), x, *group.parameters()) == (
        ["native_group_norm"], ["native_group_norm_backward"],
    )  # fmt: skip
    forward, backward = forward_and_backward(lambda: batch(x), x, *batch.parameters())
    assert forward == ["add_", "native_batch_norm"]  # num_batches_tracked counts.
    assert backward == ["native_batch_norm_backward"]


def test_embedding_and_cross_entropy():
    weight = randn(DEVICE, 10, 4, grad=True)
    tokens = torch.tensor([[1, 2], [3, 1]]).to(DEVICE)
    assert forward_and_backward(lambda: F.embedding(tokens, weight), weight) == (
        ["embedding"], ["embedding_dense_backward"],
    )  # fmt: skip
    target = torch.tensor([1, 2, 3, 0, 1, 2, 3, 0, 1, 2]).to(DEVICE)
    assert forward_and_backward(lambda: F.cross_entropy(weight, target), weight) == (
        ["_log_softmax", "nll_loss_forward"],
        ["nll_loss_backward", "_log_softmax_backward_data"],
    )


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_network_is_one_record_each_way(kind):
    module = kind(4, 6, 2, bidirectional=True, dropout=0.5).to(DEVICE)
    x, state = randn(DEVICE, 5, 3, 4, grad=True), randn(DEVICE, 4, 3, 6)
    given = (state, state) if kind is nn.LSTM else state
    forward, backward = forward_and_backward(lambda: module(x, given)[0], x, *module.parameters())
    assert len(forward) == 1 and forward[0].endswith(("lstm", "gru", "rnn_tanh"))
    assert backward == ["rgpu::graph_backward"]


def test_fast_path_of_attention_and_encoder_layers_is_whole():
    attention = nn.MultiheadAttention(8, 2, batch_first=True).to(DEVICE).eval()
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to(DEVICE).eval()
    x = randn(DEVICE, 2, 5, 8)
    with torch.no_grad():
        assert records(lambda: attention(x, x, x, need_weights=False)) == FAST_ATTENTION
        assert records(lambda: layer(x)) == FAST_LAYER


# PyTorch takes its fast path on the CPU, CUDA, XPU and device types that it names "privateuse1".
FAST_ATTENTION = ["_native_multi_head_attention"]
FAST_LAYER = ["_transformer_encoder_layer_fwd"]


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), 3),
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True), 1),
        (lambda p: torch.optim.AdamW(p, fused=True), 2),
        (lambda p: torch.optim.Adam(p, fused=True), 2),
        (lambda p: torch.optim.Adagrad(p, fused=True), 2),
        (lambda p: torch.optim.AdamW(p), 16),
        (lambda p: torch.optim.RMSprop(p), 8),
    ],
)
def test_optimizer_takes_all_parameters_at_once(make, most):
    parameters = [nn.Parameter(randn(DEVICE, 3, 4)) for _ in range(20)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = make(parameters)
    optimizer.step()
    names = records(optimizer.step)
    assert len(names) <= most, names
    assert all(name.startswith(("_foreach", "_fused")) for name in names), names


def test_gradient_clipping_takes_all_gradients_at_once():
    parameters = [nn.Parameter(randn(DEVICE, 3, 4)) for _ in range(20)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    names = records(lambda: nn.utils.clip_grad_norm_(parameters, 1.0))
    assert sum(name.startswith("_foreach") for name in names) == 2
    assert len(names) <= 8, names
