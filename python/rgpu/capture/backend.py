"""The backend for ``torch.compile``: captures, sends, and says what was not sent.

Threading: called by ``torch.compile`` under its own lock.
Errors: ``ValueError`` for an option that does not exist; with ``fallback="error"`` a
``RuntimeError`` for a graph that cannot be sent.
"""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import CheckpointPolicy

from rgpu.capture.nodes import is_random
from rgpu.capture.stored import COMPILES, UNCACHED, StoredGraph
from rgpu.capture.symbols import Unshippable
from rgpu.capture.translate import Translator

_PAIR = "rgpu_pair"

_names = itertools.count()
_pairs = itertools.count()


@dataclass(frozen=True)
class Options:
    """Of ``rgpu.compile_backend``, which documents them."""

    compiler: str
    mode: str
    cache: bool
    fallback: str
    wait: bool

    CHOICES = {  # noqa: RUF012
        "compiler": ("inductor", "eager"),
        "mode": ("default",),
        "fallback": ("eager", "error"),
    }

    def __post_init__(self) -> None:
        for name, choices in self.CHOICES.items():
            given = getattr(self, name)
            if given not in choices:
                raise ValueError(
                    f"rgpu.compile_backend: {name} is {given!r}, but must be one of "
                    f"{', '.join(map(repr, choices))}"
                )

    def bits(self) -> int:
        """As the server knows them."""
        return (COMPILES if self.compiler == "inductor" else 0) | (0 if self.cache else UNCACHED)


class Backend:
    """What ``torch.compile(backend=…)`` takes."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.__name__ = "rgpu"

    def __call__(
        self, module: GraphModule, example_inputs: Sequence[Any], **extra: Any
    ) -> Callable[..., Any]:
        """Compile one captured function. ``torch.compile`` passes on its mode= and options=."""
        capture = _Capture(self._with(extra), f"graph{next(_names)}")
        return aot_autograd(
            fw_compiler=capture.forward,
            bw_compiler=capture.backward,
            inference_compiler=capture.inference,
            partition_fn=capture.partition,
            keep_inference_input_mutations=True,
        )(module, example_inputs)

    def _with(self, extra: dict[str, Any]) -> Options:
        given = {**extra.pop("options", {}), **extra}
        unknown = given.keys() - {field.name for field in fields(Options)}
        if unknown:
            raise ValueError(
                f"torch.compile: the backend rgpu has no option {', '.join(sorted(unknown))}; "
                "rgpu.compile_backend documents those that it has"
            )
        return replace(self._options, **given)


class _Capture:
    """One captured function: its graphs, the forward ones by the pair that they belong to."""

    def __init__(self, options: Options, name: str) -> None:
        self._options = options
        self._name = name
        self._forwards: dict[int, StoredGraph | None] = {}

    def partition(self, joint: GraphModule, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Forward and backward graphs, marked as a pair."""
        for node in joint.graph.nodes:
            # Drawn again, the numbers would be others.
            if isinstance(node.target, torch._ops.OpOverload) and is_random(node.target):
                # Of several results, what is saved is each of them.
                results = [user for user in node.users if user.target is operator.getitem]
                for saved in (node, *results):
                    saved.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        is_compiled = self._options.compiler == "inductor"
        split = min_cut_rematerialization_partition if is_compiled else default_partition
        forward, backward = split(joint, *args, **kwargs)
        forward.meta[_PAIR] = backward.meta[_PAIR] = next(_pairs)
        return forward, backward

    def inference(self, module: GraphModule, _example_inputs: Any) -> Callable[..., Any]:
        return self._ship(module, "inference")[0]

    def forward(self, module: GraphModule, _example_inputs: Any) -> Callable[..., Any]:
        run, graph = self._ship(module, "forward", has_backward=True)
        self._forwards[module.meta.get(_PAIR, -1)] = graph
        return run

    def backward(self, module: GraphModule, _example_inputs: Any) -> Callable[..., Any]:
        forward = self._forwards.pop(module.meta.get(_PAIR, -1), None)
        return self._ship(module, "backward", forward=forward)[0]

    def _ship(
        self, module: GraphModule, role: str, **links: Any
    ) -> tuple[Callable[..., Any], StoredGraph | None]:
        options = self._options
        try:
            translator = Translator(module)
            if not translator.is_for_device():
                return make_boxed_func(module.forward), None
            translation = translator.translate()
            with _disable_current_modes():
                graph = StoredGraph(
                    translation,
                    f"{self._name}.{role}",
                    options.bits(),
                    wait=options.wait,
                    **links,
                )
        except (Unshippable, NotImplementedError, ValueError) as error:
            return self._run_eagerly(module, role, str(error)), None
        return graph.function(), graph

    def _run_eagerly(self, module: GraphModule, role: str, reason: str) -> Callable[..., Any]:
        text = f"rgpu: the {role} graph {self._name} cannot be sent to the server: {reason}."
        if self._options.fallback == "error":
            raise RuntimeError(f'{text} With fallback="eager" its ops run one by one')
        warnings.warn(f"{text} Its ops run one by one", stacklevel=2)
        return make_boxed_func(module.forward)
