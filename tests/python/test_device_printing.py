"""Tensors print as PyTorch prints them, with device='rgpu:0', for one wait each."""

import pytest
import rgpu
import torch
from device_parity import DEVICE
from torch import nn


@pytest.fixture(autouse=True)
def quiet_session():
    torch.ones(1, device=DEVICE)
    rgpu.synchronize()
    yield
    rgpu.synchronize()


def plain(text):
    """Without the device and what its length does to the breaking of lines."""
    return (
        " ".join(text.replace("device='rgpu:0'", "").replace(" ,", "").split())
        .replace(", ,", ",")
        .replace(", )", ")")
    )


TENSORS = {
    "vector": lambda: torch.arange(5.0),
    "matrix": lambda: torch.linspace(-2, 2, 12).view(3, 4),
    "scalar": lambda: torch.tensor(2.5),
    "integer_scalar": lambda: torch.tensor(7),
    "empty": lambda: torch.empty(0),
    "empty_matrix": lambda: torch.empty(3, 0, 2),
    "bool": lambda: torch.tensor([[True, False], [False, True]]),
    "int8": lambda: torch.tensor([1, -2, 3], dtype=torch.int8),
    "half": lambda: torch.tensor([1.5, 2.5]).half(),
    "bfloat16": lambda: torch.tensor([1.5, 2.5]).bfloat16(),
    "double": lambda: torch.tensor([1.5, 2.5]).double(),
    "float8": lambda: torch.tensor([1.5, -2.0]).to(torch.float8_e4m3fn),
    "complex": lambda: torch.tensor([1 + 2j, -3.5j]),
    "conj": lambda: torch.tensor([1 + 2j, -3.5j]).conj(),
    "imaginary_of_conj": lambda: torch.tensor([1 + 2j, -3.5j]).conj().imag,
    "nan_and_infinity": lambda: torch.tensor([float("nan"), float("inf"), -1e20, 1e-8]),
    "huge": lambda: torch.arange(200 * 300.0).view(200, 300),
    "transposed": lambda: torch.arange(6.0).view(2, 3).t(),
    "strided": lambda: torch.arange(12.0)[1::3],
    "expanded": lambda: torch.ones(1).expand(4),
    "requires_grad": lambda: torch.ones(2, requires_grad=True),
}


def on_device(tensor):
    """The same tensor there: its lazy bits and whether it wants a gradient."""
    moved = tensor.detach().to(DEVICE)
    return moved.requires_grad_() if tensor.requires_grad else moved


@pytest.mark.parametrize("name", TENSORS)
def test_text_is_pytorchs_own_for_one_wait(name):
    host = TENSORS[name]()
    there = on_device(host)
    before = rgpu.stats()
    text = repr(there)
    after = rgpu.stats()
    # Integers that the program uploaded are known here.
    is_known = not (host.is_floating_point() or host.is_complex())
    assert after["waits"] - before["waits"] == (1 if host.numel() and not is_known else 0)
    assert "device='rgpu:0'" in text
    assert plain(text) == plain(repr(host))
    assert str(there) == text == f"{there}" or host.dim() == 0


def test_lazy_views_print_their_values():
    x = torch.tensor([1 + 2j, -3.5j]).to(DEVICE)
    host = torch.tensor([1 + 2j, -3.5j])
    assert plain(repr(x.conj())) == plain(repr(host.conj()))
    assert plain(repr(x.conj().imag)) == plain(repr(host.conj().imag))


def test_gradients_parameters_and_modules():
    x = torch.ones(2, requires_grad=True)
    y = on_device(x)
    assert plain(repr(y * 2)) == plain(repr(x * 2))
    assert "grad_fn=<MulBackward0>" in repr(y * 2)
    weight = nn.Parameter(torch.ones(2))
    assert plain(repr(nn.Parameter(weight.detach().to(DEVICE)))) == plain(repr(weight))
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.fill_(1)
    assert "rgpu" not in repr(layer.to(DEVICE))
    assert "Parameter containing:" in repr(dict(layer.named_parameters())["weight"])


def test_containers_and_formats():
    x = torch.ones(2, device=DEVICE)
    assert repr([x, {"a": x}]) == f"[{x!r}, {{'a': {x!r}}}]"
    value = torch.tensor(3.14159, device=DEVICE)
    assert f"{value:.2f}|{value}|{value.item():5.1f}" == "3.14|3.141590118408203|  3.1"
    assert f"{torch.tensor(7, device=DEVICE):03d}" == "007"
    assert f"{torch.tensor(True, device=DEVICE):>8}" == "       1"
    with pytest.raises(TypeError):
        f"{x:.2f}"


def test_print_options_hold(capsys):
    try:
        torch.set_printoptions(precision=2, sci_mode=True, threshold=4, edgeitems=1, linewidth=40)
        for make in (lambda: torch.arange(20.0) / 3, lambda: torch.eye(5)):
            host = make()
            assert plain(repr(host.to(DEVICE))) == plain(repr(host))
    finally:
        torch.set_printoptions(profile="default")
    print(torch.ones(2, device=DEVICE))
    assert capsys.readouterr().out == "tensor([1., 1.], device='rgpu:0')\n"


def test_printing_a_failed_result_raises_its_error():
    bad = torch.ones(3, device=DEVICE)[torch.tensor([9], device=DEVICE)]
    with pytest.raises(IndexError, match="test_device_printing.py:"):
        repr(bad)
