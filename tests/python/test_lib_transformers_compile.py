"""Models of transformers under torch.compile: graphs are sent, and training is as on the CPU."""

import pytest
import rgpu
import torch
from device_compile import DEVICE, no_warnings
from library_models import batch, make, to_device
from test_device_waits import Counted

STEPS = 20


def losses(name, device, compile_with):
    torch._dynamo.reset()
    model = make(name).to(device)
    inputs = to_device(batch(name), device)
    run = compile_with(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step():
        optimizer.zero_grad()
        loss = run(**inputs).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    found = [step(), step()]  # Captures, and sends.
    with Counted() as counted:
        found += [step() for _ in range(STEPS - len(found))]
    assert counted.waits == 0, rgpu.waits()
    return torch.stack(found).cpu()


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "vit", "t5"])
def test_compiled_model_trains_as_on_the_cpu(name):
    def compile_with(model):
        backend = rgpu.compile_backend(compiler="eager", fallback="error")
        return torch.compile(model, backend=backend, dynamic=False)

    with no_warnings():
        ours = losses(name, DEVICE, compile_with)
        calls = {graph.name.rpartition(".")[2]: graph.calls for graph in rgpu.graphs()}
    torch.testing.assert_close(ours, losses(name, "cpu", lambda m: m), rtol=1e-3, atol=1e-3)
    # The first call may have a graph of its own, which is gone.
    assert calls["forward"] >= STEPS - 1 and calls["backward"] >= STEPS - 1
    torch._dynamo.reset()
