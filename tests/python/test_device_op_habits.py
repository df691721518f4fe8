"""What programs do around ops, over PyTorch's op database: the device answers as the CPU does.

In-place and out= variants, inputs that lie in memory in every way, errors, and writes through
overlapping memory. A case that the CPU refuses is refused here with the same type of exception, at
the call or when its result is read.
"""

import warnings

import pytest
import rgpu
import torch
from device_opinfo import (
    OPS,
    assert_agree,
    dtype_for,
    full_name,
    is_random,
    moved,
    samples_of,
    settle_session,
    tensors_of,
)
from device_parity import DEVICE
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_map

REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)
RESIZED = "An output with one or more elements was resized"


@pytest.fixture(autouse=True)
def living_session():
    yield
    settle_session()


def outcome(action):
    """("gives", what, warnings) with tensors on the CPU, or ("raises", the exception)."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = tree_map(
                lambda v: v.detach().cpu() if isinstance(v, torch.Tensor) else v, action()
            )
            rgpu.synchronize()  # A tensor of no elements is read without a wait.
        except REFUSALS as error:
            return "raises", error, ()
        return "gives", result, [w for w in seen if RESIZED in str(w.message)]


def same_outcome(action, random=False):
    """The action, called with a device's name, has one outcome on both; that of the CPU."""
    want, got = outcome(lambda: action("cpu")), outcome(lambda: action(DEVICE))
    assert got[0] == want[0], f"the CPU {want[:2]}, the device {got[:2]}"
    if want[0] == "raises":
        assert type(got[1]) is type(want[1]), f"{want[1]!r} became {got[1]!r}"
    else:
        assert_agree(got[1], want[1], random)
        # Some of the CPU's kernels (arange, linspace) resize without a word.
        count = len(got[2])
        assert count == len(want[2]) or not want[2], f"warnings: {count} and not {len(want[2])}"
    return want


def given(sample, device):
    return moved((sample.input, tuple(sample.args), dict(sample.kwargs)), device)


def layout(tensors):
    return [(list(t.shape), list(t.stride()) if t.numel() > 1 else []) for t in tensors]


# ---- In place -----------------------------------------------------------------------------------

INPLACE = [name for name, op in OPS.items() if op.inplace_variant is not None]


@pytest.mark.parametrize("name", INPLACE)
def test_inplace_variant(name):
    op = OPS[name]

    def change(sample, device):
        target, args, kwargs = given(sample, device)
        torch.manual_seed(0)
        result = op.inplace_variant(target, *args, **kwargs)
        assert isinstance(target, (list, tuple)) or result is target
        return target

    for sample in samples_of(op, dtype_for(op)):
        same_outcome(lambda device, sample=sample: change(sample, device), is_random(op, sample))


# ---- out= ---------------------------------------------------------------------------------------

# The CPU's kernels of these write nothing, or what they like, into an out that is not contiguous.
BROKEN_OUT = {"nn.functional.gelu", "nn.functional.linear"}
OUT = [name for name, op in OPS.items() if op.supports_out and op.name not in BROKEN_OUT]


def fits(like):
    return torch.empty_like(like)


def wrong_size(like):
    return torch.empty((2, *like.shape), dtype=like.dtype, device=like.device)


def wrong_dtype(like):
    dtype = torch.int32 if like.dtype != torch.int32 else torch.bool
    return torch.empty(like.shape, dtype=dtype, device=like.device)


def wider_dtype(like):
    return torch.empty(like.shape, dtype=torch.complex128, device=like.device)


def strided(like):
    whole = torch.zeros((*like.shape, 2), dtype=like.dtype, device=like.device)
    return whole[..., 1]


def transposed(like):
    return torch.empty(like.shape[::-1], dtype=like.dtype, device=like.device).permute(
        *range(like.dim() - 1, -1, -1)
    )


def without_elements(like):
    return torch.empty(0, dtype=like.dtype, device=like.device)


OUTS = [fits, wrong_size, wrong_dtype, wider_dtype, strided, transposed, without_elements]


def into(op, sample, device, make):
    """The op with outs made by `make` from its plain results; what they hold then, and their form.

    `None` where its results are not tensors alone.
    """
    value, args, kwargs = given(sample, device)
    plain = op(value, *args, **kwargs)
    several = isinstance(plain, (tuple, list))
    likes = list(plain) if several else [plain]
    if not likes or not all(isinstance(t, torch.Tensor) for t in likes):
        return None
    outs = [make(like) for like in likes]
    before = [t.data_ptr() for t in outs]
    result = op(value, *args, **kwargs, out=tuple(outs) if several else outs[0])
    assert several or result is outs[0]
    kept = [t.data_ptr() == b for t, b in zip(outs, before, strict=True)]
    resized = make in (wrong_size, without_elements)  # Its strides are the shape function's.
    free = resized or full_name(op) in FREE_STRIDES
    return outs, [] if free else layout(outs), [] if resized else kept


@pytest.mark.parametrize("make", OUTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", OUT)
def test_out_variant(name, make):
    op = OPS[name]
    for sample in samples_of(op, dtype_for(op), most=2):
        same_outcome(
            lambda device, sample=sample: into(op, sample, device, make), is_random(op, sample)
        )


# ---- Inputs -------------------------------------------------------------------------------------


def with_gap(tensor):
    """The same numbers, at an offset and with gaps between them."""
    whole = tensor.new_zeros((*tensor.shape, 3))
    whole[..., 1] = tensor
    return whole[..., 1]


def at_an_offset(tensor):
    return torch.cat([tensor.new_zeros(3), tensor.reshape(-1)])[3:].view(tensor.shape)


def backwards(tensor):
    """Dimensions lie in memory in the opposite order."""
    order = range(tensor.dim() - 1, -1, -1)
    return tensor.permute(*order).contiguous().permute(*order)


def expanded(tensor):
    """One row for all along the first dimension."""
    return tensor[:1].expand(tensor.shape) if tensor.dim() and tensor.shape[0] else tensor


def channels_last(tensor):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor.dim() not in formats:
        return tensor
    return tensor.contiguous(memory_format=formats[tensor.dim()])


LAYOUTS = [with_gap, at_an_offset, backwards, expanded, channels_last]


# The numbers of these lie in memory as PyTorch's shape functions say, which differs from the CPU's
# kernels; the server copies into place.
FREE_STRIDES = {
    "fft.hfft", "fft.hfftn", "fft.irfft", "fft.rfftn", "linalg.eig", "native_dropout_backward",
    "nn.functional.batch_norm", "nn.functional.channel_shuffle",
    "nn.functional.conv_transpose3d",
    "nn.functional.max_unpool2d",
    "nn.functional.max_unpool2d_grad", "nn.functional.pad_replicate_negative",
    "nn.functional.pixel_shuffle",
}  # fmt: skip


@pytest.mark.parametrize("lay", LAYOUTS, ids=lambda lay: lay.__name__)
@pytest.mark.parametrize("name", OPS)
def test_inputs_that_lie_in_memory_another_way(name, lay):
    op = OPS[name]
    if name == "_batch_norm_with_update":
        pytest.skip("it writes to its running statistics, which may not lie that way")

    def call(sample, device):
        value, args, kwargs = given(sample, device)
        value, args = tree_map(
            lambda v: lay(v) if isinstance(v, torch.Tensor) and v.layout == torch.strided else v,
            (value, args),
        )
        torch.manual_seed(0)
        result = op(value, *args, **kwargs)
        return result, [] if name in FREE_STRIDES else layout(tensors_of(result))

    for sample in samples_of(op, dtype_for(op), most=2):
        same_outcome(lambda device, sample=sample: call(sample, device), is_random(op, sample))


ELEMENTWISE = [n for n, op in OPS.items() if isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo))]
REDUCTIONS = [name for name, op in OPS.items() if isinstance(op, ReductionOpInfo)]
SIZES = [(), (0,), (2, 0, 3), (1,), (1, 1, 1)]


def ones(op, sizes, device):
    return torch.ones(sizes, dtype=dtype_for(op), device=device)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_op_on_tensors_of_no_and_one_element(name):
    op = OPS[name]
    kwargs = {} if isinstance(op, BinaryUfuncInfo) else op.sample_kwargs("cpu", dtype_for(op), 1)[0]
    for sizes in SIZES:

        def call(device, sizes=sizes):
            count = 2 if isinstance(op, BinaryUfuncInfo) else 1
            return op(*[ones(op, sizes, device) for _ in range(count)], **moved(kwargs, device))

        same_outcome(call, op.name in {"bernoulli"})


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_of_tensors_of_no_and_one_element(name):
    op = OPS[name]
    for sizes in SIZES:
        for options in ({}, {"dim": 0}, {"dim": -1, "keepdim": True}):
            same_outcome(lambda device, s=sizes, o=options: op(ones(op, s, device), **o))


@pytest.mark.parametrize("name", [n for n in ELEMENTWISE if isinstance(OPS[n], BinaryUfuncInfo)])
def test_host_scalar_tensor_takes_part_as_on_cuda(name):
    op = OPS[name]

    def call(device, first):
        host = torch.tensor(2, dtype=dtype_for(op))
        other = torch.arange(1, 5).to(dtype_for(op)).to(device)
        return op(host, other) if first else op(other, host)

    for first in (False, True):
        same_outcome(lambda device, first=first: call(device, first))


# ---- Errors -------------------------------------------------------------------------------------

ERRONEOUS = [name for name, op in OPS.items() if op.error_inputs_func is not None]


@pytest.mark.parametrize("name", ERRONEOUS)
def test_wrong_arguments_raise_what_the_cpu_raises(name):
    op = OPS[name]
    for case in op.error_inputs("cpu"):
        sample = case.sample_input
        if not tensors_of((sample.input, sample.args, sample.kwargs)):
            continue  # There is nothing to move to the device.
        if op.name == "__rdiv__" and not isinstance(sample.input, torch.Tensor):
            continue  # Nor a method to call.

        def call(device, sample=sample):
            value, args, kwargs = given(sample, device)
            return op(value, *args, **kwargs)

        same_outcome(call)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x.mul_(x),
        lambda x: x.copy_(torch.arange(3.0, device=x.device)),
        lambda x: x.exp_(),
        lambda x: torch.add(torch.ones(3, device=x.device), 1, out=x),
        lambda x: x.fill_(2),
        lambda x: x.index_add_(0, torch.tensor([0, 1]).to(x.device), x.new_ones(2)),
        lambda x: x.masked_fill_(torch.tensor([True, False, True]).to(x.device), 1),
        lambda x: x.scatter_(0, torch.tensor([0, 1]).to(x.device), 1.0),
        lambda x: x.clamp_(min=0),
        lambda x: x.zero_(),
        lambda x: torch._foreach_add_([x], 1),
        lambda x: x.random_(),
    ],
)
def test_write_through_overlapping_memory_is_judged_as_on_the_cpu(write):
    def call(device):
        write(torch.zeros(1, device=device).expand(3))

    same_outcome(call)


def test_partly_overlapping_operands_are_refused():
    def call(device):
        x = torch.arange(6.0, device=device)
        return torch.add(x[:4], 1, out=x[1:5])

    assert same_outcome(call)[0] == "raises"


def test_tensors_in_a_reference_cycle_are_freed_on_the_server():
    import gc

    class Node:
        pass

    gc.collect()
    rgpu.synchronize()
    before = torch.rgpu.memory_allocated()
    nodes = [Node(), Node()]
    nodes[0].other, nodes[1].other = nodes[1], nodes[0]
    nodes[0].tensor = torch.ones(1 << 18, device=DEVICE)
    nodes[1].tensor = nodes[0].tensor * 2
    assert torch.rgpu.memory_allocated() >= before + (1 << 21)
    del nodes
    gc.collect()
    assert torch.rgpu.memory_allocated() <= before
