"""Values that enter and leave device rgpu: copies, files, text and Python's own types."""

import copy
import io
import itertools
import pickle
import re

import numpy as np
import pytest
import rgpu  # noqa: F401 - registers the device
import torch
from device_parity import DEVICE, assert_parity, randn

PAIRS = list(itertools.product(("cpu", DEVICE), repeat=2))
LAYOUTS = {
    "contiguous": lambda base: base[:4, :6],
    "transposed": lambda base: base.t()[:4, :6],
    "strided": lambda base: base[::2, 1::2][:4, :6],
    "offset": lambda base: base[4:8, 6:12],
    "flipped_strides": lambda base: base[:6, :4].t(),
}


@pytest.mark.parametrize("from_device,to_device", PAIRS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int64, torch.complex64], ids=str
)
def test_copy_between_every_pair_of_layouts(from_device, to_device, dtype):
    for source_layout, target_layout in itertools.product(LAYOUTS, repeat=2):
        numbers = torch.arange(256.0).view(16, 16)
        source = LAYOUTS[source_layout](numbers.to(from_device))
        target_base = torch.full((16, 16), -1, dtype=dtype, device=to_device)
        LAYOUTS[target_layout](target_base).copy_(source)
        want = torch.full((16, 16), -1, dtype=dtype)
        LAYOUTS[target_layout](want).copy_(LAYOUTS[source_layout](numbers))
        assert torch.equal(target_base.cpu(), want), (source_layout, target_layout)


@pytest.mark.parametrize("from_device,to_device", PAIRS)
def test_copy_broadcasts(from_device, to_device):
    for shape in ((), (1,), (4,), (3, 1), (1, 4), (3, 4)):
        source = torch.randn(shape)
        target = torch.zeros(3, 4, device=to_device)
        target.copy_(source.to(from_device))
        assert torch.equal(target.cpu(), source.expand(3, 4)), shape


def test_download_of_views_keeps_values_and_strides():
    x = torch.arange(60.0).view(3, 4, 5)
    on_device = x.to(DEVICE)
    for view in (
        lambda t: t.permute(2, 0, 1), lambda t: t[1:, ::2], lambda t: t[:, 1, 2:],
        lambda t: t[:, :1].expand(3, 4, 5), lambda t: t[:0], lambda t: t[2, 3, 4],
        lambda t: t.unfold(1, 2, 1),
    ):  # fmt: skip
        got = view(on_device).cpu()
        assert torch.equal(got, view(x))
        assert got.stride() == view(x).to("cpu", copy=True).stride()


def test_upload_keeps_strides_and_takes_a_snapshot():
    host = torch.arange(24.0).view(2, 3, 4)
    for view in (
        host,
        host.permute(2, 0, 1),
        host[:, ::2],
        host[1:, 1],
        host[:, :1].expand(2, 3, 4),
    ):
        want, up = view.clone(), view.to(DEVICE)
        assert up.stride() == view.to("cpu", copy=True).stride()
        late = view.to(DEVICE, non_blocking=True)
        host.add_(1)
        assert torch.equal(up.cpu(), want) and torch.equal(late.cpu(), want)


def test_host_memory_may_go_right_after_an_upload():
    uploads = []
    for value in range(20):
        host = torch.full((1 << 15,), float(value))
        uploads.append(host.to(DEVICE, non_blocking=True))
        del host
    assert [u.mean().item() for u in uploads] == list(range(20))


def test_non_blocking_download_holds_the_values_at_once_or_after_synchronize():
    x = torch.arange(1000.0, device=DEVICE)
    down = (x * 2).to("cpu", non_blocking=True)
    torch.accelerator.synchronize()
    assert down.sum().item() == 999000


def test_download_sees_the_writes_before_it_and_none_after():
    x = torch.zeros(4, device=DEVICE)
    x[1:].add_(5)
    first = x.cpu()
    x.fill_(9)
    assert first.tolist() == [0.0, 5.0, 5.0, 5.0] and x.tolist() == [9.0] * 4


def test_lazy_bits_are_resolved_by_copies():
    z = torch.tensor([1 + 2j, 3 - 4j])
    lazy = z.to(DEVICE).conj()
    assert torch.equal(lazy.cpu(), z.conj()) and lazy.imag.tolist() == [-2.0, 4.0]
    assert torch.equal(z.conj().to(DEVICE).cpu(), z.conj())
    assert torch.equal(z.conj().imag.to(DEVICE).cpu(), z.conj().imag)
    target = torch.zeros(2, dtype=torch.complex64, device=DEVICE)
    target.conj().copy_(z)
    assert torch.equal(target.cpu(), z.conj().resolve_conj())
    assert lazy.tolist() == [1 - 2j, 3 + 4j] and lazy[0].item() == 1 - 2j


def test_to_returns_itself_unless_something_changes():
    x = torch.ones(2, device=DEVICE)
    assert x.to(DEVICE) is x and x.to(torch.float32) is x and x.to("rgpu:0") is x
    assert x.to(DEVICE, copy=True) is not x and x.contiguous() is x
    assert x.device == torch.device("rgpu", 0) and x.is_rgpu and torch.ones(1).rgpu().is_rgpu


def test_deepcopy_and_clone_share_nothing():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).to(DEVICE)
    twin = copy.deepcopy(model)
    before = model[0].weight.detach().cpu()
    with torch.no_grad():
        twin[0].weight.add_(1)
        twin[1].running_mean.add_(1)
    assert twin[0].weight.device.type == DEVICE and isinstance(twin[0].weight, torch.nn.Parameter)
    assert torch.equal(model[0].weight.cpu(), before) and torch.equal(
        twin[0].weight.cpu(), before + 1
    )
    assert model[1].running_mean.tolist() == [0, 0]
    views = copy.deepcopy([base := torch.zeros(4, device=DEVICE), base[1:3]])
    views[1].add_(1)
    assert views[0].tolist() == [0, 1, 1, 0] and base.tolist() == [0] * 4


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("target", [None, "cpu", DEVICE, "rgpu:0"])
def test_saved_tensors_load_where_asked(target, weights_only):
    base = torch.arange(6.0, device=DEVICE).view(2, 3)
    file = saved({"base": base, "view": base.t()[1:], "half": base.half()})
    loaded = torch.load(file, map_location=target, weights_only=weights_only)
    assert {t.device.type for t in loaded.values()} == {"cpu" if target == "cpu" else DEVICE}
    assert loaded["view"].tolist() == [[1.0, 4.0], [2.0, 5.0]]
    assert loaded["half"].dtype is torch.half
    loaded["base"].add_(1)
    assert loaded["view"].tolist() == [[2.0, 5.0], [3.0, 6.0]], "they shared a storage"


def test_file_saved_on_the_cpu_loads_to_the_device():
    model = torch.nn.Linear(3, 2)
    loaded = torch.load(saved(model.state_dict()), map_location=DEVICE)
    assert loaded["weight"].device.type == DEVICE
    twin = torch.nn.Linear(3, 2).to(DEVICE)
    twin.load_state_dict(loaded)
    assert torch.equal(twin.weight.cpu(), model.weight)
    twin.load_state_dict(torch.nn.Linear(3, 2).state_dict())
    assert twin.weight.device.type == DEVICE


def test_optimizer_state_survives_a_file():
    model = torch.nn.Linear(2, 2).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2, device=DEVICE)).sum().backward()
    optimizer.step()
    optimizer.load_state_dict(torch.load(saved(optimizer.state_dict()), map_location="cpu"))
    optimizer.step()
    state = optimizer.state[model.weight]
    assert state["exp_avg"].device.type == DEVICE and state["step"].item() == 2


def test_pickle_keeps_device_type_and_values():
    parameter = torch.nn.Parameter(torch.arange(3.0, device=DEVICE))
    for value in (parameter, parameter.detach().double(), torch.zeros(0, 3, device=DEVICE)):
        twin = pickle.loads(pickle.dumps(value))
        assert (type(twin), twin.device, twin.dtype) == (type(value), value.device, value.dtype)
        assert torch.equal(twin.cpu(), value.detach().cpu())
        assert twin.requires_grad == value.requires_grad


PRINTED = [
    torch.tensor(3.5), torch.tensor([]), torch.tensor([1, -2, 30000000000]),
    torch.tensor([True, False]),
    torch.tensor([1e-8, 1.0, 1e8]), torch.tensor([float("nan"), float("inf"), -0.0, 2.5]),
    torch.arange(12.0).view(3, 4).t(), torch.arange(24.0).view(4, 6)[1::2, ::3], torch.zeros(0, 3),
    torch.tensor([1 + 2j, -0.5j]), torch.tensor([0.1, 0.25], dtype=torch.bfloat16),
    torch.tensor([1.0, 2.0], dtype=torch.float16).expand(2, 2), torch.linspace(0, 1, 5000),
    torch.arange(100000).view(100, 1000), torch.tensor([7], dtype=torch.uint8),
    torch.tensor(5), torch.tensor([1 + 2j]).conj(), torch.zeros(2, 3, 2, dtype=torch.double),
]  # fmt: skip


@pytest.mark.parametrize("sample", PRINTED, ids=[*map(str, range(len(PRINTED)))])
def test_printed_text_is_the_cpus_apart_from_the_device(sample):
    def text(tensor):
        return " ".join(re.sub(r",\s*device='rgpu:0'", "", repr(tensor)).split())

    shown = repr(sample.to(DEVICE))
    assert "device='rgpu:0'" in shown
    assert text(sample.to(DEVICE)) == text(sample)


def test_printed_text_of_parameters_and_results_names_their_graph():
    leaf = torch.ones(2, device=DEVICE, requires_grad=True)
    assert repr(leaf) == "tensor([1., 1.], device='rgpu:0', requires_grad=True)"
    assert repr(leaf * 2) == "tensor([2., 2.], device='rgpu:0', grad_fn=<MulBackward0>)"
    assert repr(torch.nn.Parameter(leaf.detach())).startswith(
        "Parameter containing:\ntensor([1., 1.]"
    )


def test_python_values_of_tensors():
    def case(device):
        x, flag = torch.tensor([2.5], device=device), torch.tensor(True, device=device)
        whole = torch.tensor(7, device=device)
        return [
            x.item(), float(x), int(x), bool(flag), not flag, f"{x[0]:.2f}", f"{whole}", x.tolist(),
            whole.item(), whole.__index__(), "abcdefgh"[whole], range(whole)[-1], x.numel(),
            complex(x[0]), torch.tensor(1 + 2j, device=device).item(), x.to("cpu").item(),
            torch.zeros(2, 0, device=device).tolist(), x.half()[0].item(),
            bool((x > 1).any()), x.nelement(), x.element_size(), x.dim(), str(x.dtype),
        ]  # fmt: skip

    assert_parity(case)


@pytest.mark.parametrize("convert", [bool, float, int, torch.Tensor.item])
def test_only_one_element_converts_to_a_number(convert):
    errors = []
    for device in ("cpu", DEVICE):
        with pytest.raises((RuntimeError, ValueError, TypeError)) as caught:
            convert(torch.ones(2, device=device))
        errors.append(caught.type)
    assert errors[0] == errors[1]


@pytest.mark.parametrize("call", [lambda x: x.numpy(), np.asarray])
def test_numpy_is_refused_with_the_remedy(call):
    with pytest.raises(TypeError, match=r"cpu\(\)"):
        call(torch.ones(2, device=DEVICE))


def test_numpy_is_a_way_in_and_through_the_cpu_out():
    values = np.arange(6, dtype=np.float64).reshape(2, 3)
    x = torch.from_numpy(values).to(DEVICE)
    assert x.dtype is torch.float64 and np.array_equal((x * 2).cpu().numpy(), values * 2)
    assert torch.tensor(values, device=DEVICE).shape == (2, 3)
    assert torch.as_tensor(np.float32(2.5), device=DEVICE).item() == 2.5


@pytest.mark.parametrize("take", [np.from_dlpack, torch.from_dlpack])
def test_dlpack_is_refused(take):
    with pytest.raises((RuntimeError, BufferError, ValueError), match="(?i)device"):
        take(torch.ones(2, device=DEVICE))


def test_storages_are_shared_by_views():
    x = torch.arange(4.0, device=DEVICE)
    assert x.view(2, 2).untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert x.untyped_storage().data_ptr() != x.clone().untyped_storage().data_ptr()
    assert x.untyped_storage().nbytes() == 16 and x[1:].storage_offset() == 1


def test_default_device_places_what_is_made():
    with torch.device(DEVICE):
        layer = torch.nn.Linear(2, 2)
        made = [layer.weight, torch.zeros(2), torch.tensor([1.0]), torch.arange(3), torch.randn(2)]
        with torch.device("cpu"):
            assert torch.zeros(1).device.type == "cpu"
    assert {t.device.type for t in made} == {DEVICE}


def test_dataloader_batches_are_uploaded():
    data = torch.utils.data.TensorDataset(torch.arange(8.0), torch.arange(8))
    loader = torch.utils.data.DataLoader(data, batch_size=3)
    total = sum((x.to(DEVICE) * y.to(DEVICE)).sum() for x, y in loader)
    assert total.item() == sum(i * i for i in range(8))


def test_modules_move_there_and_back():
    def case(device):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        model.to(device).half().float()
        model.register_buffer("extra", randn(device, 2))
        return [dict(model.state_dict()), model(randn(device, 4, 3)).detach()]

    assert_parity(case)
