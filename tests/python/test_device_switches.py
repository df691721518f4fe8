"""PyTorch's numerics switches reach the server as records, and hold for their session alone.

What a switch does is seen in results and errors that it alone decides on a server of CPUs; that
each value is sent is seen by the record that carries it.
"""

import contextlib

import pytest
import rgpu
import torch
import torch.nn.functional as F
from device_parity import DEVICE
from torch.nn.attention import SDPBackend, sdpa_kernel


@pytest.fixture(autouse=True)
def same_switches_afterwards(monkeypatch):
    # PyTorch's own testing modules, which other tests load, forbid it for their process.
    state = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(state, "__allow_nonbracketed_mutation_flag", True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_flush_denormal(False)
    torch.set_float32_matmul_precision("highest")
    for library in (torch.backends.cuda, torch.backends.mkldnn):
        library.matmul.fp32_precision = "none"  # As it was: whatever torch.backends says.
    (torch.ones(2, 2, device=DEVICE) @ torch.ones(2, 2, device=DEVICE)).cpu()
    with contextlib.suppress(Exception):
        rgpu.synchronize()


def put(device):
    """An op that refuses where algorithms have to be deterministic."""
    index = torch.tensor([1], device=device)
    return torch.zeros(3, device=device).put_(index, torch.ones(1, device=device))


def product():
    x = torch.ones(2, 2, device=DEVICE)
    return x @ x


@contextlib.contextmanager
def counted(records):
    """The block issues so many records and waits for nothing."""
    before = rgpu.stats()
    yield
    after = rgpu.stats()
    assert after["records"] - before["records"] == records
    assert after["waits"] == before["waits"]


def test_deterministic_algorithms_refuse_what_is_not():
    assert put(DEVICE).tolist() == [0.0, 1.0, 0.0]
    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError) as on_the_cpu:
        put("cpu")
    with pytest.raises(
        RuntimeError, match="does not have a deterministic implementation"
    ) as caught:
        put(DEVICE).cpu()
    assert str(on_the_cpu.value).splitlines()[0] in str(caught.value)
    assert "test_device_switches.py:" in str(caught.value)
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert put(DEVICE).tolist() == [0.0, 1.0, 0.0]
    torch.use_deterministic_algorithms(False)
    assert put(DEVICE).tolist() == [0.0, 1.0, 0.0]


def test_each_op_sees_the_switches_it_was_issued_under():
    good = put(DEVICE)
    torch.use_deterministic_algorithms(True)
    bad = put(DEVICE)
    torch.use_deterministic_algorithms(False)
    also_good = put(DEVICE)
    assert good.tolist() == also_good.tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(RuntimeError, match="deterministic"):
        bad.cpu()


def test_uninitialized_memory_is_filled_when_that_is_asked_for():
    torch.use_deterministic_algorithms(True)
    for made in (
        torch.empty(3, device=DEVICE),
        torch.empty_strided((2, 2), (1, 2), device=DEVICE),
        torch.empty_like(torch.ones(3, device=DEVICE)),
        torch.ones(2, device=DEVICE).new_empty(4),
        torch.ones(2, device=DEVICE).resize_(5)[2:],
    ):
        assert made.isnan().all().item()
    integers = torch.empty(3, dtype=torch.int32, device=DEVICE)
    assert integers.tolist() == [torch.iinfo(torch.int32).max] * 3
    fill = torch.utils.deterministic
    before = fill.fill_uninitialized_memory
    try:
        fill.fill_uninitialized_memory = False
        with counted(0):
            torch.empty(3, device=DEVICE)
    finally:
        fill.fill_uninitialized_memory = before


@pytest.mark.parametrize("backend", ["MATH", "FLASH_ATTENTION"])
def test_sdpa_kernel_chooses_the_servers_attention(backend):
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 4, 32, 16) for _ in range(3))
    with sdpa_kernel(getattr(SDPBackend, backend)):
        expected = F.scaled_dot_product_attention(query, key, value)
        found = F.scaled_dot_product_attention(*(x.to(DEVICE) for x in (query, key, value)))
    assert torch.equal(found.cpu(), expected)  # To the last bit: the same kernel.


def test_attention_that_no_allowed_backend_can_do_is_an_error_of_that_op():
    x = torch.randn(1, 2, 4, 8, device=DEVICE)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):  # The CPU has none.
        result = F.scaled_dot_product_attention(x, x, x)
    fine = F.scaled_dot_product_attention(x, x, x)
    with pytest.raises(RuntimeError, match="(?i)no (available|viable) "):
        result.cpu()
    assert fine.cpu().shape == (1, 2, 4, 8)


def test_denormals_are_flushed_by_the_session():
    tiny = torch.tensor([1e-40]).to(DEVICE)
    one = torch.ones(1).to(DEVICE)
    kept = tiny * one
    assert torch.set_flush_denormal(True)
    flushed = tiny * one
    torch.set_flush_denormal(False)
    kept_again = tiny * one
    assert flushed.item() == 0
    assert kept.item() == kept_again.item() > 0


SETTINGS = {
    "matmul.allow_tf32": (torch.backends.cuda.matmul, "allow_tf32", True),
    "matmul.fp16_reduction": (
        torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
    "matmul.bf16_reduction": (
        torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
    "matmul.fp16_accumulation": (torch.backends.cuda.matmul, "allow_fp16_accumulation", True),
    "matmul.fp32_precision": (torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    "fp32_precision": (torch.backends, "fp32_precision", "tf32"),
    "mkldnn.matmul.fp32_precision": (torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
    "cudnn.allow_tf32": (torch.backends.cudnn, "allow_tf32", False),
    "cudnn.enabled": (torch.backends.cudnn, "enabled", False),
    "cudnn.benchmark": (torch.backends.cudnn, "benchmark", True),
    "cudnn.deterministic": (torch.backends.cudnn, "deterministic", True),
    "mkldnn.enabled": (torch.backends.mkldnn, "enabled", False),
    "mkldnn.deterministic": (torch.backends.mkldnn, "deterministic", True),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_changed_switch_is_one_record_before_the_next_op_that_may_depend_on_it(name):
    place, attribute, value = SETTINGS[name]
    before = getattr(place, attribute)
    product()
    with counted(1 + 2):  # `ones` fills, which nothing changes.
        product()
    try:
        setattr(place, attribute, value)
        with counted(1 + 2 + 1):
            product()
        with counted(1 + 2):
            product()
    finally:
        setattr(place, attribute, before)
    with counted(1 + 2 + 1):
        product()


def test_convolution_and_recurrent_precisions_are_seen_by_their_ops():
    x = torch.ones(1, 1, 4, 4, device=DEVICE)
    weight = torch.ones(1, 1, 3, 3, device=DEVICE)
    before = torch.backends.cudnn.conv.fp32_precision
    F.conv2d(x, weight)
    try:
        torch.backends.cudnn.conv.fp32_precision = "ieee"
        with counted(2):
            F.conv2d(x, weight)
    finally:
        torch.backends.cudnn.conv.fp32_precision = before
    with counted(2):
        F.conv2d(x, weight)


def test_matmul_precision_is_sent():
    product()
    for precision in ("medium", "high", "highest"):
        torch.set_float32_matmul_precision(precision)
        with counted(1 + 2 + 1):
            product()


def test_a_switch_that_is_changed_back_before_any_op_costs_nothing():
    product()
    torch.use_deterministic_algorithms(True)
    torch.use_deterministic_algorithms(False)
    with counted(1 + 2):
        product()


def test_pointwise_ops_carry_no_switches():
    x = torch.ones(2, 2, device=DEVICE)
    product()
    torch.backends.cudnn.benchmark = True
    try:
        with counted(2):
            (x + 1).relu()
    finally:
        torch.backends.cudnn.benchmark = False


def test_two_sessions_have_switches_of_their_own(run_snippet):
    program = """
        import torch, rgpu
        torch.use_deterministic_algorithms({deterministic})
        for _ in range(20):
            x = torch.zeros(3, device="rgpu")
            x.put_(torch.tensor([1], device="rgpu"), torch.ones(1, device="rgpu"))
            try:
                print(x.tolist())
            except RuntimeError as error:
                print("deterministic" in str(error))
    """
    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match="deterministic"):
        put(DEVICE).cpu()
    other = run_snippet(program.format(deterministic=False))
    assert other.stdout.splitlines() == ["[0.0, 1.0, 0.0]"] * 20, other.stderr
    strict = run_snippet(program.format(deterministic=True))
    assert strict.stdout.splitlines() == ["True"] * 20, strict.stderr
    torch.use_deterministic_algorithms(False)
    assert put(DEVICE).tolist() == [0.0, 1.0, 0.0]


def test_a_new_session_begins_with_the_programs_switches(run_snippet, opserver):
    result = run_snippet(f"""
        import torch, rgpu
        host = torch.tensor([1e-40])
        torch.use_deterministic_algorithms(True)
        torch.set_flush_denormal(True)
        for _ in range(2):
            rgpu.connect("{opserver.address}")
            tiny = host.to("rgpu")
            print((tiny * torch.ones(1).to("rgpu")).view(torch.int32).item())
            x = torch.zeros(3, device="rgpu")
            x.put_(torch.tensor([1], device="rgpu"), torch.ones(1, device="rgpu"))
            try:
                x.cpu()
            except RuntimeError as error:
                print("deterministic" in str(error))
    """)
    assert result.stdout.splitlines() == ["0", "True"] * 2, result.stderr
