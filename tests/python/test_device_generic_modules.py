"""PyTorch's device-generic tests of modules and optimizers, instantiated for rgpu."""

import copy

import torch
from device_generic import adopt_exceptions, tensors_of
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_optimizers import (
    _get_optim_inputs_including_global_cliquey_kwargs,
    optim_db,
    optims,
)
from torch.testing._internal.common_utils import (
    TestCase,
    freeze_rng_state,
    gradcheck,
    gradgradcheck,
)
from torch.utils._pytree import tree_map

adopt_exceptions(module_db)
adopt_exceptions(optim_db)
TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}


def moved(value, device):
    return tree_map(
        lambda v: (
            v.detach().to(device).requires_grad_(v.requires_grad)
            if isinstance(v, torch.Tensor)
            else v
        ),
        value,
    )


def made(info, device, dtype, requires_grad, training):
    """(module, its forward's inputs, the case's name) for each case of the database, on `device`.

    Made from the CPU's random numbers and moved.
    """
    torch.default_generator.manual_seed(0)
    cases = info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=requires_grad, training=training
    )
    for case in cases:
        if case.forward_input is None:
            continue
        given = case.constructor_input
        torch.default_generator.manual_seed(1)
        module = info.module_cls(*given.args, **given.kwargs).to(dtype).train(training)
        if info.is_lazy:  # It draws its parameters where it first runs.
            module(*case.forward_input.args, **case.forward_input.kwargs)
        yield module.to(device), moved((case.forward_input.args, case.forward_input.kwargs), device)


class TestModule(TestCase):
    def results(self, info, device, dtype, training, backward):
        """The outputs of each case, with gradients, buffers and parameters."""
        found = []
        for module, (args, kwargs) in made(info, device, dtype, backward, training):
            with freeze_rng_state():
                out = module(*args, **kwargs)
            gradients = []
            ins = [t for t in tensors_of((args, kwargs)) if t.requires_grad]
            if backward:
                outs = [t for t in tensors_of(out) if t.requires_grad]
                wanted = [*ins, *(p for p in module.parameters() if p.requires_grad)]
                if outs and wanted:
                    total = sum(t.abs().sum() if t.is_complex() else t.sum() for t in outs)
                    gradients = torch.autograd.grad(total, wanted, allow_unused=True)
            found.append([out, gradients, list(module.buffers())])
        return found

    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_forward(self, device, dtype, module_info, training):
        if training and "Dropout" in module_info.name:
            self.skipTest("it draws")
        self.assertEqual(
            self.results(module_info, device, dtype, training, False),
            self.results(module_info, "cpu", dtype, training, False),
            exact_device=False, **TOLERANCE,
        )  # fmt: skip

    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_cpu_gpu_parity(self, device, dtype, module_info, training):
        if training and module_info.name in DRAW:
            self.skipTest("it draws")
        self.assertEqual(
            self.results(module_info, device, dtype, training, True),
            self.results(module_info, "cpu", dtype, training, True),
            exact_device=False, **TOLERANCE,
        )  # fmt: skip

    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_pickle_and_copy(self, device, dtype, module_info, training):
        for module, (args, kwargs) in made(module_info, device, dtype, False, training):
            with freeze_rng_state():
                want = copy.deepcopy(module)(*args, **kwargs)
            state = {name: value.cpu() for name, value in module.state_dict().items()}
            other = copy.deepcopy(module)
            other.load_state_dict(state, strict=True)
            with freeze_rng_state():
                self.assertEqual(other(*args, **kwargs), want)

    @modules(module_db, allowed_dtypes=(torch.float64,))
    def test_grad(self, device, dtype, module_info, training):
        self.check_gradients(gradcheck, device, dtype, module_info, training)

    @modules([m for m in module_db if m.supports_gradgrad], allowed_dtypes=(torch.float64,))
    def test_gradgrad(self, device, dtype, module_info, training):
        self.check_gradients(gradgradcheck, device, dtype, module_info, training)

    def check_gradients(self, check, device, dtype, info, training):
        for module, (args, kwargs) in list(made(info, device, dtype, True, training))[:3]:
            variables = [t for t in tensors_of((args, kwargs)) if t.requires_grad]
            if not variables or not training and info.name in ("nn.Transformer",):
                continue

            def function(*replaced, module=module, args=args, kwargs=kwargs, old=variables):
                new = dict(zip(map(id, old), replaced, strict=True))
                given, named = tree_map(
                    lambda v: new.get(id(v), v) if isinstance(v, torch.Tensor) else v,
                    (args, kwargs),
                )
                with freeze_rng_state():
                    found = tensors_of(copy.deepcopy(module)(*given, **named))
                return tuple(t for t in found if t.is_floating_point())

            check(function, tuple(variables), fast_mode=True,
                  nondet_tol=info.gradcheck_nondet_tol)  # fmt: skip


DRAW = {"nn.Dropout", "nn.Dropout1d", "nn.Dropout2d", "nn.Dropout3d", "nn.AlphaDropout",
        "nn.FeatureAlphaDropout", "nn.RReLU", "nn.FractionalMaxPool2d",
        "nn.FractionalMaxPool3d"}  # fmt: skip


class TestOptimRenewed(TestCase):
    def trained(self, info, device, dtype, options, steps=4):
        torch.default_generator.manual_seed(0)
        weights = [torch.randn(3, 4, dtype=dtype), torch.randn(4, dtype=dtype)]
        parameters = [torch.nn.Parameter(w.to(device)) for w in weights]
        x = torch.randn(5, 3, dtype=dtype).to(device)
        options = copy.deepcopy(options)
        kind = info.optim_cls
        if kind.__name__ == "Muon":
            parameters = parameters[:1]
        optimizer = kind(parameters, **options)

        def closure():
            optimizer.zero_grad()
            loss = (x @ parameters[0]).square().mean()
            if len(parameters) > 1:
                loss = loss + (parameters[0] * parameters[1]).square().sum()
            loss.backward()
            return loss

        losses = []
        for _ in range(steps):
            losses.append(optimizer.step(closure).detach())
        return losses, [p.detach() for p in parameters], optimizer

    def configurations(self, info, device):
        if info.only_supports_sparse_grads:
            self.skipTest("for sparse gradients alone")
        for case in _get_optim_inputs_including_global_cliquey_kwargs(
            device, torch.float32, info, skip=("differentiable",)
        ):
            if not case.kwargs.get("capturable"):
                yield case.kwargs

    @optims(optim_db, dtypes=[torch.float32])
    def test_steps_are_the_cpus(self, device, dtype, optim_info):
        for options in self.configurations(optim_info, device):
            mine, theirs = copy.deepcopy(options), copy.deepcopy(options)
            got = self.trained(optim_info, device, dtype, mine)[:2]
            want = self.trained(optim_info, "cpu", dtype, theirs)[:2]
            self.assertEqual(got, want, exact_device=False, **TOLERANCE)

    @optims(optim_db, dtypes=[torch.float32])
    def test_state_dict_goes_on_where_it_was(self, device, dtype, optim_info):
        for options in self.configurations(optim_info, device):
            optimizer = self.trained(optim_info, device, dtype, options)[2]
            state = optimizer.state_dict()
            other = self.trained(optim_info, device, dtype, options, steps=0)[2]
            other.load_state_dict(copy.deepcopy(state))
            self.assertEqual(other.state_dict(), state)
            host = tree_map(lambda v: v.cpu() if isinstance(v, torch.Tensor) else v, state)
            other.load_state_dict(host)
            self.assertEqual(other.state_dict()["state"], state["state"])


for tests in (TestModule, TestOptimRenewed):
    instantiate_device_type_tests(tests, globals(), only_for=("rgpu",))
del tests
