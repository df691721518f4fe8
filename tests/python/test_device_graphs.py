"""Ops whose backward runs a graph kept on the server: attention and recurrent networks.

Only the server knows what their forward saved, so that this device must itself see to what
autograd promises about saved tensors, partial gradients and second derivatives.
"""

import pytest
import torch
import torch.nn.functional as F
from device_parity import DEVICE, assert_parity, randn
from torch import nn


def attend(x):
    return F.scaled_dot_product_attention(x, x, x)


def change(device, what):
    """A forward, a change in place of something it saved, and the backward."""
    leaf = randn(device, 1, 2, 4, 8, grad=True)
    x, model = leaf * 1, nn.LSTM(8, 8).to(device)
    match what:
        case "attention_input":
            out = attend(x)
            x.add_(1)
        case "attention_output":
            out = attend(x)
            out.mul_(2)
        case "recurrent_input":
            out = model(x[0])[0]
            x.add_(1)
        case "recurrent_weight":
            out = model(x[0])[0]
            with torch.no_grad():
                model.weight_ih_l0.add_(1)
    out.sum().backward()


@pytest.mark.parametrize("device", ["cpu", DEVICE])
@pytest.mark.parametrize(
    "what", ["attention_input", "attention_output", "recurrent_input", "recurrent_weight"]
)
def test_change_in_place_of_a_saved_tensor_is_refused_in_backward(what, device):
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        change(device, what)


def test_backward_from_one_of_several_results():
    def case(device):
        model, x = nn.LSTM(4, 3, 2).to(device), randn(device, 5, 2, 4, grad=True)
        results = []
        for pick in (lambda o, h, c: c, lambda o, h, c: h[1], lambda o, h, c: o[:2] * h[0]):
            out, (hidden, cell) = model(x)
            results.append(torch.autograd.grad(pick(out, hidden, cell).sum(), x)[0])
        return results

    assert_parity(case, atol=1e-5, rtol=1e-4)


def test_frozen_inputs_and_weights_get_no_gradient():
    def case(device):
        model = nn.GRU(4, 3).to(device)
        model.weight_hh_l0.requires_grad_(False)
        model(randn(device, 5, 2, 4))[0].sum().backward()
        query, fixed = randn(device, 1, 2, 4, 8, grad=True), randn(device, 1, 2, 4, 8)
        F.scaled_dot_product_attention(query, fixed, fixed).sum().backward()
        F.scaled_dot_product_attention(fixed, query, fixed).sum().backward()
        gradients = [p.grad for p in model.parameters() if p.requires_grad]
        return [gradients, query.grad, model.weight_hh_l0.grad is None, fixed.grad is None]

    assert_parity(case, atol=1e-5, rtol=1e-4)


def test_no_graph_is_kept_without_gradients():
    x = randn(DEVICE, 1, 2, 4, 8, grad=True)
    with torch.no_grad():
        assert attend(x).grad_fn is None
    assert attend(x.detach()).grad_fn is None
    with torch.inference_mode():
        assert attend(x).shape == (1, 2, 4, 8)


def test_graphs_of_several_forwards_are_kept_apart():
    def case(device):
        model, x = nn.RNN(4, 4).to(device), randn(device, 3, 2, 4, grad=True)
        first, second = model(x)[0], model(x * 2)[0]
        second.sum().backward()
        first.square().sum().backward()
        return [x.grad, [p.grad for p in model.parameters()]]

    assert_parity(case, atol=1e-5, rtol=1e-4)


def test_recurrence_through_time_chains_graphs():
    def case(device):
        model, state = nn.GRU(4, 4).to(device), None
        total = 0
        for chunk in randn(device, 6, 2, 4).split(2):
            out, state = model(chunk, state)
            total = total + out.square().sum()
        total.backward()
        return [total, [p.grad for p in model.parameters()]]

    assert_parity(case, atol=1e-4, rtol=1e-4)


def test_sum_of_many_heads_in_half_precision_is_near_the_cpus():
    def case(device):
        x = randn(device, 2, 4, 16, 8, dtype=torch.bfloat16, grad=True)
        out = attend(x)
        out.float().sum().backward()
        return [out, x.grad]

    assert_parity(case, atol=5e-2, rtol=5e-2)
