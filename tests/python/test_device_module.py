"""torch.rgpu, torch.accelerator and rgpu itself answer as PyTorch's conventions have it."""

import gc
import re

import pytest
import rgpu
import torch
from device_parity import DEVICE


def test_device_is_registered_under_its_name():
    assert torch.get_device_module(DEVICE) is torch.rgpu
    assert torch.accelerator.current_accelerator() == torch.device(DEVICE)
    assert torch.rgpu.is_available() and torch.accelerator.is_available()
    assert torch.rgpu.is_initialized()
    x = torch.ones(2, device=DEVICE)
    assert (x.type(), x.is_rgpu, x.cpu().is_rgpu) == ("torch.rgpu.FloatTensor", True, False)
    assert torch.ones(2).type("torch.rgpu.FloatTensor").device == x.device
    assert torch.nn.Linear(1, 1).rgpu().weight.is_rgpu and x.untyped_storage().is_rgpu


def test_server_says_who_it_is():
    info = rgpu.server()
    assert info["torch_version"].split(".")[:2] == torch.__version__.split(".")[:2]
    assert info["protocol_version"] >= 1 and info["device_type"] in ("cpu", "cuda")
    assert len(info["devices"]) == torch.rgpu.device_count() == torch.accelerator.device_count()
    properties = torch.rgpu.get_device_properties()
    assert (properties.name, properties.total_memory) == info["devices"][0]
    assert torch.rgpu.get_device_name("rgpu:0") == properties.name
    with pytest.raises(RuntimeError, match="invalid device ordinal: rgpu:7 does not exist"):
        torch.rgpu.get_device_properties(7)


def test_current_device_is_changed_and_restored():
    for device in (0, "rgpu", "rgpu:0", torch.device(DEVICE)):
        torch.rgpu.set_device(device)
        with torch.rgpu.device(device):
            assert torch.rgpu.current_device() == torch.accelerator.current_device_index() == 0
    with torch.rgpu.device(None), torch.accelerator.device_index(0):
        assert torch.rgpu.current_device() == 0
    with pytest.raises(ValueError, match="expected an rgpu device"):
        torch.rgpu.set_device("cpu")


def test_memory_is_counted_and_given_back():
    gc.collect()
    before = torch.rgpu.memory_allocated()
    x = torch.ones(1 << 20, device=DEVICE)
    view = x[1:]
    during = torch.rgpu.memory_allocated()
    assert during - before == 4 << 20
    del x
    assert torch.rgpu.memory_allocated() == during
    del view
    assert torch.rgpu.memory_allocated() == before
    assert torch.rgpu.max_memory_allocated() >= during
    assert torch.accelerator.memory_allocated() == before
    free, total = torch.rgpu.mem_get_info()
    assert 0 < free <= total
    torch.rgpu.empty_cache()
    torch.accelerator.empty_cache()


def test_thousands_of_dropped_results_hold_no_memory():
    gc.collect()
    x = torch.ones(1 << 16, device=DEVICE)
    before = torch.rgpu.memory_allocated()
    for _ in range(1000):
        x = x * 1.001
    del _
    assert torch.rgpu.memory_allocated() == before


def test_training_step_leaves_no_memory_behind():
    model = torch.nn.LSTM(8, 8).to(DEVICE)
    query = torch.ones(1, 2, 16, 8, device=DEVICE, requires_grad=True)

    def step():
        out = torch.nn.functional.scaled_dot_product_attention(query, query, query)
        (model(out[0])[0].sum() + out.sum()).backward()
        model.zero_grad()
        query.grad = None
        return torch.rgpu.memory_allocated()

    step()
    first = step()
    assert [step() for _ in range(5)] == [first] * 5


def test_graph_that_is_dropped_without_backward_leaves_no_memory_behind():
    query = torch.ones(1, 2, 64, 8, device=DEVICE, requires_grad=True)

    def forward():
        torch.nn.functional.scaled_dot_product_attention(query, query, query)
        return torch.rgpu.memory_allocated()

    forward()
    assert len({forward() for _ in range(5)}) == 1


def test_streams_and_events_keep_order():
    x = torch.ones(1000, device=DEVICE)
    side, event = torch.rgpu.Stream(), torch.Event(device=DEVICE)
    with side:
        assert torch.rgpu.current_stream() == side
        y = x * 2
        event.record()
    assert torch.rgpu.current_stream() == torch.rgpu.default_stream() != side
    torch.rgpu.current_stream().wait_stream(side)
    event.wait()
    x.record_stream(side)
    with torch.rgpu.stream(torch.rgpu.Stream()):
        assert (y + x).sum().item() == 3000
    event.synchronize()
    side.synchronize()
    assert event.query() and side.query()


def test_mixed_precision_types_are_named():
    assert torch.bfloat16 in torch.rgpu.get_amp_supported_dtype()
    assert torch.rgpu.is_bf16_supported()
    assert torch.amp.is_autocast_available(DEVICE)


def test_profiler_sees_the_ops():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        (torch.ones(2, device=DEVICE) + 1).sum().item()
    assert {"aten::add", "aten::sum"} <= {row.key for row in profile.key_averages()}


def test_custom_operator_runs_on_the_device():
    library = torch.library.Library("rgpu_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    assert torch.ops.rgpu_test.twice(torch.ones(2, device=DEVICE)).tolist() == [2.0, 2.0]


def test_operator_of_a_library_that_the_server_lacks_runs_here_with_a_warning(capfd):
    library = torch.library.Library("rgpu_host", "DEF")
    library.define("halves(Tensor x, Tensor[] more, float by) -> (Tensor, Tensor)")
    library.define("double_(Tensor(a!) x) -> Tensor(a!)")
    library.define("nowhere(Tensor x) -> Tensor")
    library.impl("halves", lambda x, more, by: (x / by, more[0] / by), "CPU")
    library.impl("double_", lambda x: x.mul_(2), "CPU")
    x = torch.arange(4.0, device=DEVICE)
    first, second = torch.ops.rgpu_host.halves(x, [x + 1], 2.0)
    assert re.search("rgpu_host::halves .* runs on this machine", capfd.readouterr().err)
    assert first.device.type == DEVICE
    assert (first.tolist(), second.tolist()) == ([0, 0.5, 1, 1.5], [0.5, 1, 1.5, 2])
    torch.ops.rgpu_host.halves(x, [x], 2.0)
    assert "rgpu_host" not in capfd.readouterr().err  # Once is enough.
    torch.ops.rgpu_host.double_(x[2:])
    assert x.tolist() == [0, 1, 4, 6]
    with pytest.raises(NotImplementedError, match="rgpu_host::nowhere .* no kernel for the CPU"):
        torch.ops.rgpu_host.nowhere(x)
    assert x.sum().item() == 11


def test_subclasses_and_function_modes_see_the_ops():
    class Wrapped(torch.Tensor):
        pass

    wrapped = torch.ones(2, device=DEVICE).as_subclass(Wrapped)
    assert type(wrapped + 1) is Wrapped and (wrapped + 1).tolist() == [2.0, 2.0]
    seen = []

    class Records(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Records():
        torch.ones(2, device=DEVICE) * 3
    assert "aten.mul.Tensor" in seen


def test_meta_and_fake_tensors_of_the_device_cost_no_record():
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch.ones(1, device=DEVICE)
    before = rgpu.stats()["records"]
    with FakeTensorMode():
        fake = torch.nn.functional.linear(
            torch.ones(4, 3, device=DEVICE), torch.ones(2, 3, device=DEVICE)
        )
        assert fake.shape == (4, 2) and fake.device.type == DEVICE
    assert rgpu.stats()["records"] == before
