"""safetensors, unmodified: device tensors to a file and back to any device."""

import pytest
import torch
from device_parity import DEVICE

safetensors = pytest.importorskip("safetensors")
from safetensors.torch import load, load_file, load_model, save, save_file, save_model  # noqa: E402


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    base = torch.randn(6, 4)
    return {
        "weight": base.to(DEVICE),
        "half": torch.randn(5).half().to(DEVICE),
        "brain": torch.randn(5).bfloat16().to(DEVICE),
        "index": torch.arange(7, device=DEVICE),
        "mask": torch.tensor([True, False]).to(DEVICE),
        "scalar": torch.tensor(2.5, device=DEVICE),
        "empty": torch.empty(0, 3, device=DEVICE),
        "turned": base.to(DEVICE).t().contiguous(),
    }


def assert_equal(got, want, device):
    assert got.keys() == want.keys()
    for name, tensor in want.items():
        assert got[name].device.type == device, name
        assert (got[name].dtype, got[name].shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(got[name].cpu(), tensor.cpu()), name


def test_a_file_comes_back_on_the_cpu(tensors, tmp_path):
    save_file(tensors, tmp_path / "x.safetensors")
    assert_equal(load_file(tmp_path / "x.safetensors"), tensors, "cpu")


@pytest.mark.parametrize("device", [DEVICE, "rgpu:0", torch.device(DEVICE), 0])
def test_a_file_comes_back_on_the_device(tensors, tmp_path, device):
    save_file(tensors, tmp_path / "x.safetensors")
    assert_equal(load_file(tmp_path / "x.safetensors", device=device), tensors, DEVICE)


def test_one_tensor_of_a_file_is_opened_on_the_device(tensors, tmp_path):
    save_file(tensors, tmp_path / "x.safetensors", metadata={"made": "here"})
    with safetensors.safe_open(tmp_path / "x.safetensors", "pt", device=DEVICE) as file:
        assert file.metadata() == {"made": "here"}
        assert file.get_tensor("weight").device.type == DEVICE
        part = file.get_slice("weight")[1:3]
    assert torch.equal(part.cpu(), tensors["weight"][1:3].cpu())


def test_bytes_in_memory(tensors):
    assert_equal(load(save(tensors)), tensors, "cpu")


def test_a_model_with_tied_weights(tmp_path):
    def make():
        model = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5, bias=False))
        model[1].weight = model[0].weight
        return model.to(DEVICE)

    first, second = make(), make()
    save_model(first, str(tmp_path / "m.safetensors"))
    load_model(second, str(tmp_path / "m.safetensors"))
    assert second[1].weight is second[0].weight
    assert torch.equal(first[0].weight.cpu(), second[0].weight.cpu())
    load_model(second, str(tmp_path / "m.safetensors"), device=DEVICE)
    assert torch.equal(first[0].weight.cpu(), second[0].weight.cpu())


def test_the_file_is_whatever_the_device_hands_over(tensors, tmp_path):
    save_file(tensors, tmp_path / "rgpu.safetensors")
    save_file({k: v.cpu() for k, v in tensors.items()}, tmp_path / "cpu.safetensors")
    mine, theirs = (tmp_path / f"{name}.safetensors" for name in (DEVICE, "cpu"))
    assert mine.read_bytes() == theirs.read_bytes()


def test_an_unknown_device_is_refused_by_safetensors_itself(tensors, tmp_path):
    save_file(tensors, tmp_path / "x.safetensors")
    with pytest.raises(safetensors.SafetensorError, match="nonsense"):
        load_file(tmp_path / "x.safetensors", device="nonsense")
