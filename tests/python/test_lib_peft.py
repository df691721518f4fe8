"""peft, unmodified: LoRA adapters trained, saved, loaded and merged on the device."""

import library_models as models
import pytest
import rgpu
import torch
from device_parity import DEVICE
from test_device_waits import Counted

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore")


def adapted(device):
    model = models.make("llama").to(device)
    torch.manual_seed(0)
    return peft.get_peft_model(
        model,
        peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0),
    )


def train(model, device, steps=3):
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    losses = []
    for step in range(steps):
        loss = model(**models.to_device(models.batch("llama", step), device)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


def adapters(model):
    return {name: p.detach().cpu() for name, p in model.named_parameters() if "lora" in name}


def test_lora_trains_as_on_the_cpu_without_a_wait():
    mine, theirs = adapted(DEVICE), adapted("cpu")
    assert {p.device.type for p in mine.parameters()} == {DEVICE}
    with Counted() as counted:
        losses = train(mine, DEVICE)
    assert counted.waits == 0, rgpu.waits()
    torch.testing.assert_close(losses.cpu(), train(theirs, "cpu"), atol=1e-4, rtol=1e-4)
    got, want = adapters(mine), adapters(theirs)
    assert got.keys() == want.keys() and len(got) == 8
    for name in got:
        torch.testing.assert_close(got[name], want[name], atol=1e-4, rtol=1e-4, msg=name)


def test_an_adapter_is_saved_loaded_and_merged(tmp_path):
    model = adapted(DEVICE)
    train(model, DEVICE)
    batch = models.to_device(models.batch("llama"), DEVICE)
    with torch.no_grad():
        want = model(**batch).logits.cpu()
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(models.make("llama").to(DEVICE), tmp_path)
    assert {p.device.type for p in loaded.parameters()} == {DEVICE}
    merged = model.merge_and_unload()
    with torch.no_grad():
        torch.testing.assert_close(loaded(**batch).logits.cpu(), want, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(merged(**batch).logits.cpu(), want, atol=1e-4, rtol=1e-4)
