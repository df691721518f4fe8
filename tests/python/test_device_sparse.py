"""Sparse tensors of device rgpu: COO, CSR, CSC, BSR and BSC; the CPU is the reference."""

import copy
import gc
import io
import pickle

import pytest
import rgpu
import torch
from device_parity import DEVICE
from device_sparse import (
    LAYOUTS,
    Waits,
    as_dense,
    assert_parity,
    assert_same,
    connected,  # noqa: F401 - a fixture
    coo,
    dense,
    of_layout,
)

pytestmark = [
    pytest.mark.usefixtures("connected"),
    pytest.mark.filterwarnings("ignore:Sparse"),
]


# ---- Making, moving, reading --------------------------------------------------------------------


def test_components_are_tensors_of_the_device():
    s = coo(DEVICE, coalesced=True)
    assert (s.layout, s.device.type, s.is_coalesced()) == (torch.sparse_coo, DEVICE, True)
    assert (s.sparse_dim(), s.dense_dim(), s._nnz()) == (2, 0, 4)
    assert s.indices().cpu().tolist() == coo("cpu", coalesced=True).indices().tolist()
    assert s.values().cpu().tolist() == coo("cpu", coalesced=True).values().tolist()


def test_constructors_take_lists_and_tensors_and_wait_for_nothing():
    indices, values = torch.tensor([[0, 1], [1, 0]]).to(DEVICE), dense(DEVICE, 2)
    with Waits() as waits:
        made = [
            torch.sparse_coo_tensor(indices, values, (2, 2)),
            torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), device=DEVICE),
            torch.sparse_csr_tensor([0, 1, 2], [1, 0], [1.0, 2.0], (2, 2), device=DEVICE),
            torch.sparse_csc_tensor([0, 1, 2], [1, 0], [1.0, 2.0], (2, 2), device=DEVICE),
            torch.sparse_bsr_tensor([0, 1], [1], torch.ones(1, 2, 2), (2, 4), device=DEVICE),
            torch.empty(2, 2, layout=torch.sparse_coo, device=DEVICE),
            torch.zeros(2, 2, layout=torch.sparse_csr, device=DEVICE),
        ]
    assert waits.count == 0
    assert [t.device.type for t in made] == [DEVICE] * 7
    assert made[2].to_dense().cpu().tolist() == [[0, 1], [2, 0]]


def test_sizes_left_out_follow_from_the_indices():
    indices = torch.tensor([[0, 4], [1, 2]])
    assert_parity(lambda d: torch.sparse_coo_tensor(indices.to(d), dense(d, 2)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_goes_there_and_back_with_one_wait(layout):
    want = of_layout(layout, "cpu")
    there = want.to(DEVICE)
    assert (there.layout, there.shape, there._nnz()) == (want.layout, want.shape, want._nnz())
    with Waits() as waits:
        back = there.cpu()
    assert waits.count == 1
    torch.testing.assert_close(back, want)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dense_to_sparse_waits_once_and_back_not_at_all(layout):
    matrix = of_layout(layout, "cpu").to_dense().to(DEVICE)
    block = {"blocksize": (2, 2)} if layout in ("bsr", "bsc") else {}
    with Waits() as waits:
        made = matrix.to_sparse(layout=LAYOUTS[layout], **block)
    assert waits.count == 1
    with Waits() as waits:
        back = made.to_dense()
    assert waits.count == 0
    assert_same(made, of_layout(layout, "cpu"))
    assert torch.equal(back.cpu(), matrix.cpu())


@pytest.mark.parametrize("target", ["coo", "csr", "csc"])
@pytest.mark.parametrize("source", ["coo", "csr", "csc"])
def test_layouts_convert_into_each_other(source, target):
    assert_parity(lambda device: of_layout(source, device).to_sparse(layout=LAYOUTS[target]))


def test_coalescing_waits_once_and_a_coalesced_tensor_not():
    s = coo(DEVICE)
    with Waits() as waits:
        once = s.coalesce()
        again = once.coalesce()
    assert waits.count == 1
    assert again is once or again._nnz() == 4
    want = coo("cpu").coalesce()
    assert once.indices().cpu().tolist() == want.indices().tolist()
    assert once.values().cpu().tolist() == want.values().tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_printing_is_pytorchs_text_with_one_wait(layout):
    tensor = of_layout(layout, DEVICE)
    with Waits() as waits:
        text = repr(tensor)
    assert waits.count == 1
    want = repr(of_layout(layout, "cpu"))
    bare = "".join(text.replace("device='rgpu:0',", "").split())
    assert bare == "".join(want.split())
    assert "device='rgpu:0'" in text


def test_dtype_changes_stay_on_the_device():
    with Waits() as waits:
        wide, half = coo(DEVICE).double(), of_layout("csr", DEVICE).to(torch.bfloat16)
    assert waits.count == 0
    assert (wide.dtype, half.dtype, half.values().dtype) == (
        torch.float64, torch.bfloat16, torch.bfloat16)  # fmt: skip
    assert_same(wide, coo("cpu").double())


# ---- Copies, views, files -----------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("copied", [torch.clone, copy.deepcopy])
def test_copies_are_independent(copied, layout):
    original = of_layout(layout, DEVICE)
    with Waits() as waits:
        twin = copied(original)
        original.values().zero_()
    assert waits.count == 0
    assert_same(twin, of_layout(layout, "cpu"))


def test_values_are_a_view_and_detach_shares_them():
    s = coo(DEVICE, coalesced=True, grad=True)
    detached = s.detach()
    detached.values().mul_(2)
    assert_same(s.detach(), coo("cpu", coalesced=True) * 2)
    assert not detached.requires_grad


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pickle_and_save(layout):
    tensor = of_layout(layout, DEVICE)
    assert_same(pickle.loads(pickle.dumps(tensor)), of_layout(layout, "cpu"))
    file = io.BytesIO()
    torch.save({"t": tensor}, file)
    for target, where in ((None, DEVICE), ("cpu", "cpu"), (DEVICE, DEVICE)):
        file.seek(0)
        loaded = torch.load(file, map_location=target)["t"]
        assert (loaded.device.type, loaded.layout) == (where, tensor.layout)
        torch.testing.assert_close(as_dense(loaded), as_dense(tensor))


def test_copy_in_place_takes_the_other_ones_elements():
    def case(device):
        target = torch.empty(3, 4, layout=torch.sparse_coo, device=device)
        return target.copy_(coo(device))

    assert_parity(case)


def test_transposes_permutations_and_parts():
    assert_parity(
        lambda device: [
            coo(device).t(),
            coo(device).transpose(0, 1),
            coo(device).permute(1, 0),
            coo(device).unsqueeze(1),
            coo(device)[1],
            coo(device).narrow_copy(1, 1, 2),
            coo(device).index_select(1, torch.tensor([0, 3], device=device)),
            torch.cat([coo(device), coo(device)], 1),
            of_layout("csr", device).t(),
            of_layout("csr", device)[1],
        ]
    )


# ---- Arithmetic ---------------------------------------------------------------------------------

CASES = {
    "sum of two": lambda d: coo(d) + coo(d, coalesced=True),
    "difference": lambda d: coo(d) - coo(d, coalesced=True),
    "weighted sum": lambda d: torch.add(coo(d), coo(d), alpha=-3),
    "sum of dtypes": lambda d: coo(d) + coo(d, dtype=torch.float64),
    "sum into a dense one": lambda d: dense(d, 3, 4) + coo(d),
    "sum in place": lambda d: coo(d).add_(coo(d)),
    "sum into a dense one in place": lambda d: dense(d, 3, 4).add_(coo(d), alpha=2),
    "out=": lambda d: torch.add(coo(d), coo(d), out=coo(d)),
    "csr sum": lambda d: of_layout("csr", d) + of_layout("csr", d),
    "csr sum in place": lambda d: of_layout("csr", d).add_(of_layout("csr", d)),
    "product": lambda d: coo(d) * coo(d, coalesced=True),
    "product with a dense one": lambda d: coo(d) * dense(d, 3, 4),
    "product in place": lambda d: coo(d).mul_(dense(d, 3, 4)),
    "csr product": lambda d: of_layout("csr", d) * dense(d, 4, 6),
    "csr times csr": lambda d: of_layout("csr", d) * of_layout("csr", d),
    "numbers": lambda d: [coo(d) * 2, coo(d) / 4, 3 * of_layout("csr", d), coo(d) // 2],
    "number of the device": lambda d: [coo(d) * torch.tensor(2.0, device=d)],
    "integers by a fraction": lambda d: (of_layout("csr", d).to(torch.int64) * 2.5),
    "powers": lambda d: coo(d) ** 2,
    "negative": lambda d: [-coo(d), -of_layout("csc", d)],
    "unary": lambda d: [getattr(coo(d), n)() for n in ("abs", "sin", "relu", "sign", "tanh")],
    "unary in place": lambda d: [coo(d, coalesced=True).sin_(), of_layout("csr", d).tanh_()],
    "predicates": lambda d: [coo(d).isnan(), coo(d).signbit(), torch.any(coo(d))],
    "zero_": lambda d: [coo(d).zero_(), of_layout("csr", d).zero_()],
    "total": lambda d: [coo(d).sum(), of_layout("csr", d).sum(), torch.sparse.sum(coo(d))],
    "row sums": lambda d: [torch.sparse.sum(coo(d), 1), coo(d).sum(0)],
    "norm": lambda d: [coo(d).norm(), coo(d).norm(1)],
    "softmax": lambda d: [torch.sparse.softmax(coo(d), 1), torch.sparse.log_softmax(coo(d), 0)],
    "mask": lambda d: dense(d, 3, 4).sparse_mask(coo(d, coalesced=True)),
    "mask by csr": lambda d: dense(d, 4, 6).sparse_mask(of_layout("csr", d)),
    "mask of a sparse one": lambda d: coo(d, coalesced=True).sparse_mask(coo(d).t().coalesce().t()),
    "mm": lambda d: [coo(d) @ dense(d, 4, 2), torch.sparse.mm(coo(d), dense(d, 4, 2))],
    "dense mm": lambda d: torch.sparse.mm(dense(d, 2, 3), coo(d)),
    "mv": lambda d: [coo(d) @ dense(d, 4), of_layout("csr", d) @ dense(d, 6)],
    "bmm": lambda d: torch.bmm(torch.stack([coo(d), coo(d)]), dense(d, 2, 4, 5)),
    "csr mm": lambda d: [of_layout(n, d) @ dense(d, 6, 2) for n in ("csr", "csc", "bsr")],
    "sparse mm": lambda d: [torch.sparse.mm(coo(d), coo(d).t()), coo(d) @ coo(d).t()],
    "csr csr mm": lambda d: of_layout("csr", d) @ of_layout("csr", d).t().to_sparse_csr(),
    "addmm": lambda d: [
        torch.sparse.addmm(dense(d, 3, 2), coo(d), dense(d, 4, 2), beta=0.5, alpha=2),
        torch.addmm(dense(d, 4, 2), of_layout("csr", d), dense(d, 6, 2)),
        dense(d, 3, 2).addmm_(coo(d), dense(d, 4, 2)),
    ],
    "hspmm": lambda d: torch.hspmm(coo(d), dense(d, 4, 2)),
    "sampled_addmm": lambda d: torch.sparse.sampled_addmm(
        of_layout("csr", d), dense(d, 4, 3), dense(d, 3, 6), beta=0.5, alpha=2
    ),
    "mm out=": lambda d: torch.mm(coo(d), dense(d, 4, 2), out=torch.empty(0, device=d)),
    "hybrid": lambda d: (hybrid(d).coalesce() + hybrid(d)).to_dense(),
    "hybrid sums": lambda d: [torch.sparse.sum(hybrid(d), 0), hybrid(d).sum()],
    "nothing in it": lambda d: [
        nothing(d).coalesce(), nothing(d) + coo(d), coo(d) + nothing(d), nothing(d).to_dense(),
        nothing(d) @ dense(d, 4, 2),
    ],
}  # fmt: skip


def hybrid(device):
    """Two sparse dimensions and one dense."""
    indices = torch.tensor([[0, 1, 1], [2, 0, 0]], device=device)
    return torch.sparse_coo_tensor(indices, dense(device, 3, 5), (2, 3, 5))


def nothing(device):
    return torch.empty(3, 4, layout=torch.sparse_coo, device=device)


@pytest.mark.parametrize("name", CASES)
def test_arithmetic_gives_the_cpus_values(name):
    assert_parity(CASES[name])


# How many waits, where one would not guess.
WAITS = {
    "sum into a dense one": (0, lambda s, c, m: m + s),
    "sum of two": (0, lambda s, c, m: s + s),
    "product with a dense one": (0, lambda s, c, m: s * m),
    "csr product": (0, lambda s, c, m: c * m),
    "number": (0, lambda s, c, m: (s * 2, c * 2, s / 3)),
    "mm": (0, lambda s, c, m: (s @ m.t(), c @ m.t(), torch.sparse.mm(s, m.t()))),
    "unary": (0, lambda s, c, m: (s.sin(), c.relu(), -s)),
    "softmax": (0, lambda s, c, m: torch.sparse.softmax(s, 1)),
    "mask": (0, lambda s, c, m: (m.sparse_mask(s), m.sparse_mask(c))),
    "sampled_addmm": (0, lambda s, c, m: torch.sparse.sampled_addmm(c, m @ m.t(), m)),
    "total": (0, lambda s, c, m: (s.sum(), s.norm())),
    "transposed": (0, lambda s, c, m: (s.t(), c.t())),
    "coo to csr": (0, lambda s, c, m: s.to_sparse_csr()),
    "csr to coo": (0, lambda s, c, m: c.to_sparse()),
    "sparse product": (1, lambda s, c, m: torch.sparse.mm(s, s.t())),
}


@pytest.mark.parametrize("name", WAITS)
def test_only_what_depends_on_data_waits(name):
    expected, case = WAITS[name]
    s, c = coo(DEVICE, coalesced=True), coo(DEVICE, coalesced=True).to_sparse_csr()
    m = dense(DEVICE, 3, 4)
    with Waits() as waits:
        case(s, c, m)
    assert waits.count == expected


# ---- Errors and memory --------------------------------------------------------------------------


def test_an_index_out_of_range_is_told_with_its_line():
    bad = torch.sparse_coo_tensor(torch.tensor([[0, 7]]).to(DEVICE), dense(DEVICE, 2), (3,))
    with pytest.raises(RuntimeError, match=r"found index 7[\s\S]*test_device_sparse.py"):
        bad.to_dense().cpu()
    with pytest.raises(RuntimeError, match="found index 7"):
        bad.coalesce()
    assert torch.ones(2, device=DEVICE).sum().item() == 2


def test_invariants_are_checked_when_asked_for():
    indices = torch.tensor([[0, 7]]).to(DEVICE)
    with pytest.raises(RuntimeError, match="found index 7"):
        torch.sparse_coo_tensor(indices, [1.0, 2.0], (3,), device=DEVICE, check_invariants=True)
    with pytest.raises(RuntimeError, match="col_indices < ncols"):  # noqa: PT012 - at the latest there
        torch.sparse_csr_tensor([0, 1], [9], [1.0], (1, 3), device=DEVICE, check_invariants=True)
        rgpu.synchronize()


def test_a_failed_call_leaves_its_arguments_as_they_were():
    s = coo(DEVICE)
    with pytest.raises(RuntimeError, match="sizes"):
        s.add_(coo(DEVICE).t())
    with pytest.raises(RuntimeError):
        of = of_layout("csr", DEVICE)
        of.add_(dense(DEVICE, 4, 6))
    assert_same([s, of], [coo("cpu"), of_layout("csr", "cpu")])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s, c: torch.ones(5, device=DEVICE) + s,
        lambda s, c: torch.ones(3, 1, device=DEVICE).add_(s),
        lambda s, c: torch.ones(1, device=DEVICE).sub_(c),
        lambda s, c: s @ torch.ones(5, 2, device=DEVICE),
        lambda s, c: s.double() @ torch.ones(4, 2, device=DEVICE),
        lambda s, c: torch.sparse.sampled_addmm(c, dense(DEVICE, 4, 2), dense(DEVICE, 3, 6)),
        lambda s, c: torch.sparse.softmax(s.coalesce(), 7),
        lambda s, c: torch.ones(2, 2, device=DEVICE).sparse_mask(c),
    ],
)
def test_wrong_shapes_and_dtypes_raise_at_the_call(wrong):
    with pytest.raises((RuntimeError, IndexError)):
        wrong(coo(DEVICE), of_layout("csr", DEVICE))


def test_tensors_of_two_devices_are_refused():
    with pytest.raises(RuntimeError, match="same device"):
        torch.mm(coo("cpu"), dense(DEVICE, 4, 2))
    with pytest.raises(RuntimeError, match="device"):
        coo(DEVICE) + coo("cpu")


def test_what_the_cpu_has_no_kernel_for_is_not_implemented():
    for device in ("cpu", DEVICE):
        with pytest.raises(NotImplementedError, match="aten::cumsum"):
            coo(device).cumsum(0)


@pytest.mark.filterwarnings("ignore")  # Of PyTorch, about both kinds.
def test_nested_and_quantized_tensors_say_what_to_do():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with pytest.raises(NotImplementedError, match="layout=torch.jagged"):
        nested.to(DEVICE)
    with pytest.raises(NotImplementedError, match="quantize on the CPU"):
        torch.quantize_per_tensor(torch.ones(2, device=DEVICE), 1.0, 0, torch.qint8)
    with pytest.raises(NotImplementedError, match="quantize on the CPU"):
        torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8).to(DEVICE)


def test_components_are_freed_on_the_server():
    def use():
        s = coo(DEVICE)
        results = [s.coalesce(), s @ dense(DEVICE, 4, 2), torch.sparse.mm(s, s.t()), s + s]
        with pytest.raises(RuntimeError):
            torch.sparse_coo_tensor(s._indices() + 9, s._values(), (3, 4)).coalesce()
        return len(results)

    use()
    gc.collect()
    before = torch.rgpu.memory_allocated()
    for _ in range(5):
        use()
    gc.collect()
    assert torch.rgpu.memory_allocated() == before
