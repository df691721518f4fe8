"""Modules, attention, recurrent networks and optimizers of device rgpu agree with the CPU's.

What must reach the server as one record is counted: forward and backward are one each.
"""

import copy

import pytest
import rgpu
import torch
import torch.nn.functional as F
from device_parity import DEVICE, assert_parity, assert_same, randn, with_gradients
from torch import nn

MODULES = {
    "linear": (lambda: nn.Linear(6, 4), (3, 6)),
    "bilinear": (lambda: nn.Sequential(nn.Linear(6, 4), nn.Hardtanh()), (2, 3, 6)),
    "layer_norm": (lambda: nn.LayerNorm(6), (3, 4, 6)),
    "layer_norm_two_axes": (lambda: nn.LayerNorm((4, 6), bias=False), (3, 4, 6)),
    "rms_norm": (lambda: nn.RMSNorm(6), (3, 4, 6)),
    "group_norm": (lambda: nn.GroupNorm(2, 6), (3, 6, 5)),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 4)),
    "local_response_norm": (lambda: nn.LocalResponseNorm(2), (2, 3, 4, 4)),
    "batch_norm_1d": (lambda: nn.BatchNorm1d(6), (5, 6)),
    "batch_norm_2d": (lambda: nn.BatchNorm2d(3), (4, 3, 5, 5)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9)),
    "conv1d_dilated": (lambda: nn.Conv1d(4, 6, 3, dilation=2, stride=2), (2, 4, 11)),
    "conv2d": (lambda: nn.Conv2d(3, 8, 3, padding=1), (2, 3, 7, 7)),
    "conv2d_grouped": (lambda: nn.Conv2d(4, 8, 3, groups=2, bias=False), (2, 4, 7, 7)),
    "conv2d_depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, padding="same"), (2, 4, 7, 7)),
    "conv2d_reflect": (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (2, 3, 7, 7)),
    "conv2d_unbatched": (lambda: nn.Conv2d(3, 4, 3), (3, 7, 7)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), (2, 2, 4, 5, 5)),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 3, 3, stride=2), (2, 4, 6)),
    "conv_transpose2d": (
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2),
        (2, 4, 5, 5),
    ),
    "max_pool": (lambda: nn.MaxPool2d(2), (2, 3, 6, 6)),
    "max_pool_overlapping": (lambda: nn.MaxPool2d(3, stride=2, padding=1), (2, 3, 7, 7)),
    "max_pool1d": (lambda: nn.MaxPool1d(2), (2, 3, 8)),
    "max_pool3d": (lambda: nn.MaxPool3d(2), (1, 2, 4, 4, 4)),
    "avg_pool": (lambda: nn.AvgPool2d(2, padding=1, count_include_pad=False), (2, 3, 6, 6)),
    "avg_pool1d": (lambda: nn.AvgPool1d(2), (2, 3, 8)),
    "adaptive_avg_pool": (lambda: nn.AdaptiveAvgPool2d((3, 2)), (2, 3, 7, 7)),
    "adaptive_avg_pool_to_one": (lambda: nn.AdaptiveAvgPool2d(1), (2, 3, 7, 7)),
    "adaptive_max_pool": (lambda: nn.AdaptiveMaxPool2d(2), (2, 3, 7, 7)),
    "lp_pool": (lambda: nn.LPPool2d(2, 2), (2, 3, 6, 6)),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 4, 4)),
    "pixel_shuffle": (lambda: nn.PixelShuffle(2), (2, 8, 3, 3)),
    "prelu": (lambda: nn.PReLU(), (3, 6)),
    "multihead_attention": (lambda: Attention(), (3, 5, 8)),
    "encoder_layer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        (3, 5, 8),
    ),
    "encoder_layer_norm_first": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, norm_first=True),
        (5, 3, 8),
    ),
    "lstm": (lambda: nn.LSTM(4, 8, 2), (5, 3, 4)),
    "lstm_bidirectional": (lambda: nn.LSTM(4, 8, bidirectional=True, batch_first=True), (3, 5, 4)),
    "lstm_projected": (lambda: nn.LSTM(4, 8, proj_size=3), (5, 3, 4)),
    "gru": (lambda: nn.GRU(4, 8), (5, 3, 4)),
    "rnn_tanh": (lambda: nn.RNN(4, 8, bias=False), (5, 3, 4)),
    "rnn_relu": (lambda: nn.RNN(4, 8, 2, nonlinearity="relu"), (5, 4)),
    "lstm_cell": (lambda: nn.LSTMCell(4, 8), (3, 4)),
    "gru_cell": (lambda: nn.GRUCell(4, 8), (3, 4)),
}
# Without dropout they do the same in evaluation.
RECURRENT = [name for name in MODULES if name.split("_")[0] in ("lstm", "gru", "rnn")]


class Attention(nn.Module):
    """Self-attention with a causal mask."""

    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.inner(x, x, x, attn_mask=mask, need_weights=True)


def run_module(model, sizes, device, channels_last=False):
    x = randn(device, *sizes)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    x = x.detach().requires_grad_()
    results = with_gradients(model(x), [x, *model.parameters()])
    return [results, list(model.buffers())]


@pytest.mark.parametrize("name", MODULES)
def test_module_in_training(name):
    make, sizes = MODULES[name]
    assert_parity(lambda device: run_module(make().to(device), sizes, device), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in MODULES if name not in RECURRENT])
def test_module_in_evaluation(name):
    make, sizes = MODULES[name]

    def case(device):
        model = make().to(device)
        for _ in range(2):  # Running statistics move away from where they start.
            model(randn(device, *sizes))
        model.eval()
        with torch.no_grad():
            plain = model(randn(device, *sizes))
        return [plain, run_module(model, sizes, device)]

    assert_parity(case, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [n for n in MODULES if len(MODULES[n][1]) == 4])
def test_module_in_channels_last(name):
    make, sizes = MODULES[name]

    def case(device):
        return run_module(make().to(device), sizes, device, channels_last=True)

    assert_parity(case, atol=1e-4, rtol=1e-4)


def test_running_statistics_of_batch_norm_move():
    model = nn.BatchNorm1d(3, momentum=None).to(DEVICE)
    model(torch.full((4, 3), 2.0, device=DEVICE))
    model(torch.full((4, 3), 4.0, device=DEVICE))
    assert model.running_mean.tolist() == [3.0] * 3 and model.num_batches_tracked.item() == 2


@pytest.mark.parametrize(
    "options", [{}, {"padding_idx": 1}, {"max_norm": 0.5}, {"scale_grad_by_freq": True}]
)
def test_embedding_and_its_gradient(options):
    def case(device):
        model = nn.Embedding(6, 4, **options).to(device)
        index = torch.tensor([[1, 2], [2, 5]]).to(device)
        return [with_gradients(model(index), model.parameters()), model.weight]

    assert_parity(case)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag_and_its_gradient(mode):
    def case(device):
        model = nn.EmbeddingBag(6, 4, mode=mode).to(device)
        index, offsets = torch.tensor([1, 2, 2, 5]).to(device), torch.tensor([0, 3]).to(device)
        return with_gradients(model(index, offsets), model.parameters())

    assert_parity(case)


def attention(device, **options):
    heads = options.pop("heads", 4)
    mask = options.pop("mask", None)
    query = randn(device, 2, 4, 6, 8, grad=True)
    key, value = (randn(device, 2, heads, 6, 8, grad=True) for _ in range(2))
    leaves = [query, key, value]
    if mask == "bool":
        options["attn_mask"] = torch.ones(6, 6, dtype=torch.bool).tril().to(device)
    elif mask == "float":
        options["attn_mask"] = randn(device, 2, 1, 6, 6)
    elif mask == "grad":
        options["attn_mask"] = randn(device, 6, 6, grad=True)
        leaves.append(options["attn_mask"])
    return with_gradients(F.scaled_dot_product_attention(query, key, value, **options), leaves)


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"mask": "bool"}, {"mask": "float"}, {"mask": "grad"}, {"scale": 0.3},
     {"heads": 2, "enable_gqa": True}],
    ids=str,
)  # fmt: skip
def test_attention_and_its_gradients(options):
    assert_parity(lambda device: attention(device, **options), atol=1e-5, rtol=1e-4)


def test_attention_with_dropout_runs_forward_and_backward():
    results, gradients = attention(DEVICE, dropout_p=0.5)
    assert results.isfinite().all().item() and all(g.isfinite().all().item() for g in gradients)
    plain = attention(DEVICE, dropout_p=0.0)[0]
    assert plain.shape == results.shape


def test_attention_of_transposed_and_unbatched_inputs():
    def case(device):
        fused = randn(device, 2, 6, 3 * 32, grad=True)
        query, key, value = (
            part.view(2, 6, 4, 8).transpose(1, 2) for part in fused.split(32, dim=2)
        )
        whole = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined = whole.transpose(1, 2).reshape(2, 6, 32)
        flat = F.scaled_dot_product_attention(query[0], key[0], value[0])
        return with_gradients([joined, flat], [fused])

    assert_parity(case)


def test_attention_gradient_twice_through_a_retained_graph():
    def case(device):
        query = randn(device, 1, 2, 4, 8, grad=True)
        out = F.scaled_dot_product_attention(query, query, query)
        out.sum().backward(retain_graph=True)
        out.square().sum().backward()
        return query.grad

    assert_parity(case)
    out = F.scaled_dot_product_attention(*[randn(DEVICE, 1, 2, 4, 8, grad=True)] * 3)
    out.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_network_of_packed_sequences_and_given_states(kind):
    def case(device):
        model = kind(4, 8).to(device)
        x = randn(device, 5, 3, 4, grad=True)
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]))
        state = randn(device, 1, 3, 8, grad=True)
        given = (state, state * 2) if kind is nn.LSTM else state
        out, last = model(packed, given)
        padded, lengths = nn.utils.rnn.pad_packed_sequence(out)
        gradients = with_gradients([padded, last], [x, state, *model.parameters()])
        return [gradients, lengths.tolist()]

    assert_parity(case, atol=1e-5, rtol=1e-4)


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "sgd_foreach": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "foreach": True}),
    "sgd_fused": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "fused": True}),
    "adam": (torch.optim.Adam, {"lr": 0.05, "weight_decay": 0.1}),
    "adam_amsgrad": (torch.optim.Adam, {"lr": 0.05, "amsgrad": True}),
    "adam_fused": (torch.optim.Adam, {"lr": 0.05, "fused": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.05}),
    "adamw_loop": (torch.optim.AdamW, {"lr": 0.05, "foreach": False}),
    "adamw_fused": (torch.optim.AdamW, {"lr": 0.05, "fused": True}),
    "adamw_tensor_rate": (torch.optim.AdamW, {"lr": torch.tensor(0.05), "foreach": False}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.05, "centered": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
    "adadelta": (torch.optim.Adadelta, {}),
    "nadam": (torch.optim.NAdam, {"lr": 0.05}),
    "radam": (torch.optim.RAdam, {"lr": 0.05}),
    "adamax": (torch.optim.Adamax, {"lr": 0.05}),
    "lbfgs": (torch.optim.LBFGS, {"lr": 0.1, "max_iter": 4}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_takes_the_cpus_steps(name):
    kind, options = OPTIMIZERS[name]

    def case(device):
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
        x, optimizer = randn(device, 8, 3), kind(model.parameters(), **copy.deepcopy(options))
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)

        def closure():
            optimizer.zero_grad()
            loss = (model(x) ** 2).sum()
            loss.backward()
            return loss

        losses = [optimizer.step(closure).detach() for _ in range(4) if schedule.step() is None]
        return [losses, list(model.parameters())]

    assert_parity(case, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("foreach", [None, True, False])
def test_gradient_clipping(foreach):
    def case(device):
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(device)
        (model(randn(device, 5, 3)) * 10).sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=foreach)
        nn.utils.clip_grad_value_(model.parameters(), 0.1, foreach=foreach)
        return [norm, [p.grad for p in model.parameters()]]

    assert_parity(case)


def test_foreach_ops_on_mixed_lists():
    def case(device):
        tensors = [randn(device, 3), randn(device, 2, 2), randn(device, 4, 4)[:, ::2].t()]
        torch._foreach_add_(tensors, 1.5)
        torch._foreach_mul_(tensors, [1.0, 2.0, 3.0])
        torch._foreach_lerp_(tensors, [t.neg() for t in tensors], 0.1)
        scaled = torch._foreach_div(tensors, torch.tensor(2.0).to(device))
        return [tensors, scaled, torch._foreach_norm(tensors), torch._foreach_sqrt(scaled)]

    assert_parity(case)


def test_moving_averages_of_a_model():
    def case(device):
        model = nn.Linear(3, 2).to(device)
        average = torch.optim.swa_utils.AveragedModel(model)
        for _ in range(3):
            with torch.no_grad():
                model.weight.add_(1)
            average.update_parameters(model)
        return list(average.parameters())

    assert_parity(case)


def records(action) -> int:
    """How many records the action takes once everything about it is known."""
    action()
    before = rgpu.stats()["records"]
    action()
    return rgpu.stats()["records"] - before


WHOLE = ["layer_norm", "group_norm", "conv2d", "conv2d_grouped", "conv_transpose2d", "max_pool",
         "avg_pool", "lstm", "gru", "rnn_tanh", "batch_norm_2d"]  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_forward_and_backward_are_one_record_each(name):
    make, sizes = MODULES[name]
    model, x = make().to(DEVICE), randn(DEVICE, *sizes, grad=True)
    counting = 1 if "batch_norm" in name else 0  # num_batches_tracked.add_(1)
    states = []  # Given, since making them takes records too.
    if name in ("lstm", "gru", "rnn_tanh"):
        state = torch.zeros(model.num_layers, sizes[1], 8, device=DEVICE)
        states = [(state, state)] if name == "lstm" else [state]

    def forward():
        out = model(x, *states)
        return out[0] if isinstance(out, tuple) else out

    out = forward()
    gradient, leaves = torch.ones_like(out), [x, *model.parameters()]

    def backward(keep=True):
        torch.autograd.grad(out, leaves, gradient, retain_graph=keep)

    assert records(forward) == 1 + counting
    assert records(backward) == 1


def test_padded_batch_of_an_encoder_needs_no_nested_tensor_and_no_wait():
    outputs, padding = [], torch.tensor([[False, False, True], [False, False, False]])
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 2).to(device).eval()
        x, mask = torch.randn(2, 3, 8).to(device), padding.to(device)
        rgpu.reset_stats()
        with torch.no_grad():
            outputs.append(model(x, src_key_padding_mask=mask))
        if device == DEVICE:
            assert rgpu.stats()["waits"] == 0
    want, got = outputs  # What stands at padded places is nobody's: the CPU has zeros there.
    torch.testing.assert_close(got.cpu()[~padding], want[~padding], rtol=1e-4, atol=1e-5)


def test_attention_is_one_record_and_its_backward_one():
    query, key, value = (randn(DEVICE, 2, 4, 6, 8, grad=True) for _ in range(3))

    def forward():
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    out = forward()
    gradient = torch.ones_like(out)

    def backward():
        torch.autograd.grad(out, [query, key, value], gradient, retain_graph=True)

    assert (records(forward), records(backward)) == (1, 1)


def test_transformer_training_step_holds_no_decomposition():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = randn(DEVICE, 4, 8, 32)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step()
    assert records(step) <= 64


def test_parameters_and_gradients_share_layout_after_a_step():
    host = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    model = copy.deepcopy(host).to(DEVICE)
    x = torch.randn(2, 3, 6, 6)
    host(x).sum().backward()
    model(x.to(DEVICE)).sum().backward()
    assert model.weight.stride() == host.weight.stride()
    assert_same(model.weight.grad, host.weight.grad, atol=1e-5, rtol=1e-5)
