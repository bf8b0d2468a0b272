"""What a model of the zoo is: a module, the calls to make on it, and how close the answers must be."""

from __future__ import annotations

import copy
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

Value = torch.Tensor | int | float | bool | None


@dataclass(frozen=True)
class Tolerance:
    """How far an answer may be from eager PyTorch, and why it may be that far."""

    rtol: float
    atol: float
    reason: str


EXACT = Tolerance(0.0, 0.0, "copies, integers, or single operations that every executor rounds alike")
ROUNDING = Tolerance(2e-6, 2e-6, "a few float32 operations whose kernels may differ in the last bits")
SHALLOW = Tolerance(1e-5, 1e-5, "float32 sums of at most a few hundred products, taken in another order")
DEEP = Tolerance(5e-5, 5e-5, "float32 sums taken in another order, carried through many layers")
HALF = Tolerance(2e-3, 2e-3, "float16 has 11 significant bits; kernels round after every operation or at the end")
BRAIN = Tolerance(1e-2, 1e-2, "bfloat16 has 8 significant bits; kernels round after every operation or at the end")


class Call:
    """Arguments of one call, positional and named."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs

    def leaves(self) -> list[Value]:
        """Return the values in the order in which a lowered program takes them."""
        return list(pytree.tree_leaves((self.args, self.kwargs)))

    def cloned(self) -> Call:
        """Return a call whose tensors are private copies of the same layout."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, (self.args, self.kwargs))
        return Call(*args, **kwargs)


@dataclass(frozen=True)
class Method:
    """One entry point: a module in eval mode and the calls to make on it, one after another.

    Attributes:
        module: Called as it stands; a copy of it is called, so state never leaks from one test to another.
        calls: The inputs to run. Of a module with state they are consecutive steps.
        example: The call to trace with, the first of `calls` unless given.
        dynamic_shapes: As `torch.export.export` takes it.
        grad_mode: Whether to trace with gradients enabled.
    """

    module: torch.nn.Module
    calls: Sequence[Call]
    example: Call | None = None
    dynamic_shapes: dict[str, Any] | tuple[Any, ...] | None = None
    grad_mode: bool = False

    def export(self) -> ExportedProgram:
        """Trace the module; warnings of third parties while tracing are none of our business."""
        example = self.example or self.calls[0]
        with torch.set_grad_enabled(self.grad_mode), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(
                copy.deepcopy(self.module),
                example.cloned().args,
                example.cloned().kwargs,
                dynamic_shapes=self.dynamic_shapes,
                strict=False,
            )

    def expected(self) -> list[list[Value]]:
        """Return the flat outputs of every call, from eager PyTorch."""
        module = copy.deepcopy(self.module)
        answers: list[list[Value]] = []
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for call in self.calls:
                private = call.cloned()
                leaves = pytree.tree_leaves(module(*private.args, **private.kwargs))
                answers.append([leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])
        return answers


@dataclass(frozen=True)
class Built:
    """The methods of one program, by name."""

    methods: Mapping[str, Method]

    def export(self) -> dict[str, ExportedProgram]:
        """Trace every method."""
        return {name: method.export() for name, method in self.methods.items()}


def single(
    module: torch.nn.Module,
    *calls: Call,
    example: Call | None = None,
    dynamic_shapes: dict[str, Any] | tuple[Any, ...] | None = None,
    grad_mode: bool = False,
) -> Built:
    """Return a program with the one method `forward`."""
    return Built({"forward": Method(module, calls, example, dynamic_shapes, grad_mode)})


@dataclass(frozen=True)
class ModelCase:
    """A named model of the zoo.

    Attributes:
        name: Unique, a Python identifier.
        build: Makes the module with random weights; call `make` to have them seeded.
        tolerance: How far every answer may be from eager PyTorch.
        tags: Family and features, for selection.
        official_defect: What the official exporter does wrong with this model, if it does; ours must be right.
    """

    name: str
    build: Callable[[], Built]
    tolerance: Tolerance
    tags: frozenset[str] = frozenset()
    official_defect: str | None = None

    def make(self) -> Built:
        """Build with weights and inputs that depend on the name of the case only."""
        with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(zlib.crc32(self.name.encode()))
            built = self.build()
        for method in built.methods.values():
            method.module.eval().requires_grad_(method.grad_mode)
        return built


@dataclass
class Family:
    """The cases of one file, in the order of their definition."""

    name: str
    cases: list[ModelCase] = field(default_factory=list)

    def case(
        self, tolerance: Tolerance, *tags: str, official_defect: str | None = None
    ) -> Callable[[Callable[[], Built]], Callable[[], Built]]:
        """Register the decorated builder under its own name."""

        def register(build: Callable[[], Built]) -> Callable[[], Built]:
            labels = frozenset((self.name, *tags))
            self.cases.append(ModelCase(build.__name__, build, tolerance, labels, official_defect))
            return build

        return register


def enliven(model: torch.nn.Module) -> torch.nn.Module:
    """Give a model weights that keep its signal alive, and return it.

    Libraries initialise for training: tiny weights, normalisations that do nothing, scales near zero. After some layers
    the answers are so small that any tolerance accepts them.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=parameter[0].numel() ** -0.5)
            elif name.endswith(("weight", "scale_parameter")):
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(std=0.1)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(std=0.1)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return model


class Function(torch.nn.Module):
    """A module around a plain function of tensors, for models without weights."""

    def __init__(self, function: Callable[..., Any], **buffers: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, *args: Any) -> Any:
        return self.function(*args)
