"""A client of another PyTorch than the server's: what the server does not know is refused alone.

Ops are defined here that this server has never heard of, as a newer client's would be. What the
server makes of schemas that differ is held by tests/server/schema_match_test.cc.
"""

import pytest
import rgpu
import torch
from device_parity import DEVICE

_newer = torch.library.Library("aten", "FRAGMENT")
_newer.define("rgpu_of_tomorrow(Tensor self, int by=1) -> Tensor")
_newer.impl("rgpu_of_tomorrow", lambda self, by=1: torch.empty_like(self), "Meta")
_newer.define("rgpu_of_tomorrow_(Tensor(a!) self) -> Tensor(a!)")
_newer.impl("rgpu_of_tomorrow_", lambda self: self, "Meta")
_newer.define("rgpu_shapeless_of_tomorrow(Tensor self) -> Tensor")
tomorrow = torch.ops.aten.rgpu_of_tomorrow


@pytest.fixture(autouse=True)
def session_goes_on():
    kept = torch.arange(3.0, device=DEVICE)
    yield
    assert (kept + 1).tolist() == [1.0, 2.0, 3.0]
    rgpu.synchronize()


def test_unknown_op_is_an_error_of_its_own_result_alone():
    x = torch.ones(2, 3, device=DEVICE)
    result = tomorrow(x)
    assert (x * 2).sum().item() == 12
    with pytest.raises(NotImplementedError) as caught:
        (result + 1).cpu()
    text = str(caught.value)
    assert "the server's PyTorch has no op aten::rgpu_of_tomorrow" in text
    assert f"client's PyTorch is {rgpu._build.TORCH_VERSION}" in text
    assert f"the server's {rgpu.server()['torch_version']}" in text
    assert "Install the same PyTorch on both sides" in text
    assert "aten::rgpu_of_tomorrow(Tensor self, int by=1) -> Tensor" in text
    assert "float32[2, 3]" in text and "test_device_skew.py:" in text


def test_program_can_catch_it_and_do_without():
    x = torch.ones(3, device=DEVICE)
    try:
        total = tomorrow(x).sum().item()
    except NotImplementedError:
        total = (x * 1).sum().item()
    assert total == 3


def test_unknown_op_in_place_poisons_its_target_until_it_is_written_anew():
    x = torch.ones(3, device=DEVICE)
    torch.ops.aten.rgpu_of_tomorrow_(x)
    with pytest.raises(NotImplementedError):
        x.cpu()
    x.copy_(torch.arange(3.0))
    assert x.tolist() == [0.0, 1.0, 2.0]


def test_unknown_op_without_a_shape_function_raises_at_the_call():
    x = torch.ones(3, device=DEVICE)
    before = rgpu.stats()["waits"]
    with pytest.raises(NotImplementedError, match="rgpu_shapeless_of_tomorrow"):
        torch.ops.aten.rgpu_shapeless_of_tomorrow(x)
    assert rgpu.stats()["waits"] == before + 1
