"""PyTorch's device-generic tests of ops, instantiated for rgpu: `@ops(op_db)` as in test_ops.py.

A part runs each time, everything in `./dev test --all` (see conftest.py).
"""

import itertools
import warnings

import torch
from device_generic import DIFFERENTIABLE, OPS, tensors_of
from device_opinfo import RANDOM, UNINITIALISED
from torch.testing._internal.common_device_type import (
    OpDTypes,
    instantiate_device_type_tests,
    ops,
)
from torch.testing._internal.common_utils import (
    TestCase,
    freeze_rng_state,
    gradcheck,
    gradgradcheck,
)
from torch.utils._pytree import tree_map

MEANINGFUL = [op for op in OPS if op.name not in RANDOM | UNINITIALISED]
COMPLEX = [op for op in MEANINGFUL if torch.complex64 in op.supported_dtypes("rgpu")]
# In half precision the statistics beside the result have the server's dtype.
KEEPS_STATISTICS = {"native_layer_norm", "_batch_norm_with_update"}
OTHER_ERRORS = {
    "__rmod__", "__rpow__", "__rsub__",  # Their wrong inputs are for a CPU and a CUDA tensor.
    "amax", "amin", "aminmax",  # Theirs have 65 dimensions, which no op here may have.
}  # fmt: skip
# _scaled_mm wants row-major; the gradient of eig depends on the phase of its result.
OF_ONE_LAYOUT = {"torch._scaled_mm", "linalg.eig"}
SOME_DTYPES = (torch.float32, torch.int64, torch.complex64)
RESIZED = "An output with one or more elements was resized"


def leaf(value, requires_grad=None):
    """The same values in tensors of their own."""

    def own(item):
        if not isinstance(item, torch.Tensor):
            return item
        wanted = item.requires_grad if requires_grad is None else requires_grad
        return item.detach().clone().requires_grad_(wanted)

    return tree_map(own, value)


def first(samples, most=12):
    return itertools.islice(samples, most)


def call(op, sample):
    return op(sample.input, *sample.args, **sample.kwargs)


def fixed(op, sample):
    """The op as a function of the sample's floating tensors alone, and those."""
    given = (sample.input, tuple(sample.args), dict(sample.kwargs))
    variables = [t for t in tensors_of(given) if t.requires_grad]

    def function(*replaced):
        new = dict(zip(map(id, variables), replaced, strict=True))
        value, args, kwargs = tree_map(
            lambda v: new.get(id(v), v) if isinstance(v, torch.Tensor) else v, given
        )
        with freeze_rng_state():
            result = op.gradcheck_wrapper(op.get_op(), value, *args, **kwargs)
        if sample.output_process_fn_grad is not None:
            result = sample.output_process_fn_grad(result)
        found = tuple(t for t in tensors_of(result) if t.is_floating_point() or t.is_complex())
        return found[0] if len(found) == 1 else found

    return function, tuple(variables)


class TestCommon(TestCase):
    @ops(MEANINGFUL, dtypes=OpDTypes.supported, allowed_dtypes=SOME_DTYPES)
    def test_compare_cpu(self, device, dtype, op):
        for sample in first(op.sample_inputs("cpu", dtype)):
            moved = sample.transform(
                lambda v: (
                    v.to(device)
                    if isinstance(v, torch.Tensor)
                    else torch.device(device)
                    if v == "cpu" or v == torch.device("cpu")
                    else v
                )
            )
            self.assertEqual(
                call(op, moved), call(op, sample), exact_device=False, atol=1e-4, rtol=1e-3
            )

    @ops([op for op in OPS if op.name not in KEEPS_STATISTICS], dtypes=OpDTypes.none)
    def test_dtypes(self, device, op):
        for dtype in op.supported_dtypes(device):
            for sample in first(op.sample_inputs(device, dtype), 1):
                for tensor in tensors_of(call(op, sample)):
                    tensor.cpu()

    @ops([op for op in OPS if op.name not in OTHER_ERRORS], dtypes=OpDTypes.none)
    def test_errors(self, device, op):
        if op.error_inputs_func is None:
            self.skipTest("no wrong inputs are known")
        for wrong in op.error_inputs(device):
            with self.assertRaisesRegex(wrong.error_type, wrong.error_regex):
                for tensor in tensors_of(call(op, wrong.sample_input)):
                    tensor.cpu()
                torch.rgpu.synchronize()

    @ops([op for op in MEANINGFUL if op.name not in OF_ONE_LAYOUT], dtypes=OpDTypes.any_one)
    def test_noncontiguous_samples(self, device, dtype, op):
        grad = op.supports_autograd and dtype.is_floating_point
        for sample in first(op.sample_inputs(device, dtype, requires_grad=grad)):
            other = sample.noncontiguous()
            want, got = call(op, sample), call(op, other)
            self.assertEqual(got, want)
            if not grad:
                continue
            outs = [t for t in tensors_of(want) if t.requires_grad]
            others = [t for t in tensors_of(got) if t.requires_grad]
            ins = [t for t in tensors_of((sample.input, sample.args, sample.kwargs))
                   if t.requires_grad]  # fmt: skip
            their = [t for t in tensors_of((other.input, other.args, other.kwargs))
                     if t.requires_grad]  # fmt: skip
            if not outs or not ins:
                continue
            weights = [torch.ones_like(t) for t in outs]
            self.assertEqual(
                torch.autograd.grad(others, their, weights, allow_unused=True),
                torch.autograd.grad(outs, ins, weights, allow_unused=True),
                atol=1e-4, rtol=1e-4,
            )  # fmt: skip

    @ops([op for op in MEANINGFUL if op.supports_out], dtypes=OpDTypes.any_one)
    def test_out(self, device, dtype, op):
        for sample in first(op.sample_inputs(device, dtype)):
            want = call(op, sample)
            if isinstance(want, torch.Tensor):
                makers = [torch.empty_like, lambda t: torch.empty_like(t, dtype=t.dtype).fill_(0)]
                if want.dim() > 1:
                    makers.append(lambda t: torch.empty_like(t.mT).mT)
                for make in makers:
                    out = make(want)
                    place = out.data_ptr()
                    result = op(sample.input, *sample.args, **sample.kwargs, out=out)
                    self.assertIs(result, out)
                    self.assertEqual(out, want)
                    self.assertEqual(out.data_ptr(), place)
            elif isinstance(want, tuple) and all(isinstance(t, torch.Tensor) for t in want):
                outs = tuple(torch.empty_like(t) for t in want)
                op(sample.input, *sample.args, **sample.kwargs, out=outs)
                self.assertEqual(tuple(outs), tuple(want))

    @ops([op for op in MEANINGFUL if op.supports_out], dtypes=OpDTypes.any_one)
    def test_out_warning(self, device, dtype, op):
        for sample in first(op.sample_inputs(device, dtype)):
            want = call(op, sample)
            if not isinstance(want, torch.Tensor):
                break
            out = torch.empty((0,), dtype=want.dtype, device=device)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                op(sample.input, *sample.args, **sample.kwargs, out=out)
            self.assertFalse([w for w in seen if RESIZED in str(w.message)])
            self.assertEqual(out, want)
            out = torch.empty((*want.shape, 3), dtype=want.dtype, device=device)
            if out.numel() == 0:
                continue
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                op(sample.input, *sample.args, **sample.kwargs, out=out)
            self.assertEqual(len([w for w in seen if RESIZED in str(w.message)]), 1)
            self.assertEqual(out, want)

    @ops(MEANINGFUL, dtypes=OpDTypes.any_one)
    def test_variant_consistency_eager(self, device, dtype, op):
        variants = [v for v in (op.get_method(), op.get_inplace(), op.get_operator(),
                                op.get_inplace_operator()) if v is not None]  # fmt: skip
        inplace = (op.get_inplace(), op.get_inplace_operator())
        operators = (op.get_operator(), op.get_inplace_operator())
        for sample in first(op.sample_inputs(device, dtype)):
            want = call(op, sample)
            for variant in variants:
                if variant in inplace:
                    if sample.broadcasts_input or not isinstance(want, torch.Tensor):
                        continue
                    if torch.result_type(want, sample.input) != sample.input.dtype:
                        continue
                if variant in operators and sample.kwargs:
                    continue  # An operator takes none.
                given = leaf((sample.input, tuple(sample.args), dict(sample.kwargs)), False)
                got = variant(given[0], *given[1], **given[2])
                same = want.to(got.dtype) if variant in inplace else want
                self.assertEqual(got, same, atol=1e-5, rtol=1e-5)

    @ops(MEANINGFUL, dtypes=OpDTypes.supported, allowed_dtypes=(torch.bool,))
    def test_non_standard_bool_values(self, device, dtype, op):
        for sample in op.sample_inputs("cpu", dtype):

            def odd(value, device=device):
                """True as a byte that is not 1, as views of other memory give it."""
                if not isinstance(value, torch.Tensor):
                    return value
                if value.dtype != torch.bool:
                    return value.to(device)
                return torch.where(value, 7, 0).to(torch.uint8).to(device).view(torch.bool)

            self.assertEqual(call(op, sample.transform(odd)), call(op, sample), exact_device=False)


class TestMathBits(TestCase):
    def check(self, op, sample, lazy):
        """`lazy` makes a view with a bit set, of the same values."""

        def both(value):
            if not isinstance(value, torch.Tensor) or not (
                value.is_complex() or value.is_floating_point()
            ):
                return value
            return lazy(value)

        self.assertEqual(call(op, sample.transform(both)), call(op, sample), atol=1e-4, rtol=1e-4)

    @ops(COMPLEX, allowed_dtypes=(torch.complex64,))
    def test_conj_view(self, device, dtype, op):
        if not op.test_conjugated_samples:
            self.skipTest("PyTorch refuses it, or has no kernel for it")

        def lazy(value):
            return value.conj_physical().conj() if value.is_complex() else value

        for sample in first(op.sample_inputs(device, dtype)):
            self.check(op, sample, lazy)

    @ops(MEANINGFUL, allowed_dtypes=(torch.float32, torch.complex64))
    def test_neg_view(self, device, dtype, op):
        if not op.test_neg_view or op.name == "_batch_norm_with_update":
            self.skipTest("PyTorch refuses it, or has no kernel for it")
        for sample in first(op.sample_inputs(device, dtype)):
            self.check(op, sample, lambda value: torch._neg_view(value.neg()))

    @ops(COMPLEX, allowed_dtypes=(torch.complex64,))
    def test_neg_conj_view(self, device, dtype, op):
        if not op.test_conjugated_samples:
            self.skipTest("PyTorch refuses it, or has no kernel for it")

        def lazy(value):
            if not value.is_complex():
                return value
            return torch._neg_view(value.neg().conj_physical().conj())

        for sample in first(op.sample_inputs(device, dtype)):
            self.check(op, sample, lazy)


# With dropout, many gradients at once are refused; the error says so.
NOT_BATCHED = {"nn.functional.scaled_dot_product_attention"}


class TestBwdGradients(TestCase):
    @ops(DIFFERENTIABLE, dtypes=OpDTypes.supported_backward, allowed_dtypes=(torch.float64,))
    def test_fn_grad(self, device, dtype, op):
        for sample in first(op.sample_inputs(device, dtype, requires_grad=True), 3):
            function, variables = fixed(op, sample)
            if variables:
                gradcheck(
                    function, variables, fast_mode=True,
                    check_batched_grad=op.check_batched_grad and op.name not in NOT_BATCHED,
                    nondet_tol=op.gradcheck_nondet_tol,
                )  # fmt: skip

    @ops(DIFFERENTIABLE, dtypes=OpDTypes.supported_backward, allowed_dtypes=(torch.float64,))
    def test_fn_gradgrad(self, device, dtype, op):
        if not op.supports_gradgrad:
            self.skipTest("it has no second derivative")
        for sample in first(op.sample_inputs(device, dtype, requires_grad=True), 3):
            function, variables = fixed(op, sample)
            if variables:
                gradgradcheck(
                    function, variables, fast_mode=True, gen_non_contig_grad_outputs=False,
                    check_batched_grad=op.check_batched_gradgrad,
                    nondet_tol=op.gradcheck_nondet_tol,
                )  # fmt: skip


class TestFwdGradients(TestCase):
    @ops(DIFFERENTIABLE, dtypes=OpDTypes.supported_backward, allowed_dtypes=(torch.float64,))
    def test_forward_mode_AD(self, device, dtype, op):
        if not op.supports_forward_ad:
            self.skipTest("it has no forward derivative")
        for sample in first(op.sample_inputs(device, dtype, requires_grad=True), 3):
            function, variables = fixed(op, sample)
            if variables:
                gradcheck(
                    function, variables, fast_mode=True, check_forward_ad=True,
                    check_backward_ad=False, check_undefined_grad=False, check_batched_grad=False,
                    nondet_tol=op.gradcheck_nondet_tol,
                )  # fmt: skip


for tests in (TestCommon, TestMathBits, TestBwdGradients, TestFwdGradients):
    instantiate_device_type_tests(tests, globals(), only_for=("rgpu",))
del tests
