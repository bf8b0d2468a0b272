"""Targets: what their kernels cost, and how much work a call is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, TypeAdapter
from torch.fx import Node

from exirkit.ir import (
    Diagnostic,
    DocumentCodes,
    Location,
    ModelError,
    OpOverload,
    UsageError,
    facts_of,
    load_yaml,
    read_document,
    underlying,
    value_of,
)
from exirkit.patterns.books.model import Strict
from exirkit.patterns.operators.arguments import canonical_arguments
from exirkit.patterns.operators.table import name_of


@dataclass(frozen=True)
class Work:
    """What one call has to do.

    Attributes:
        elements: Elements that are computed or moved: of the result, or of the input where that is reduced.
        macs: Multiplications with addition, for products of matrices and for convolutions.
        weights: Elements of the right factor of a product of matrices beyond the first 65,536. Kernels bring them into
            an order of their own, which for few rows costs as much as the product, once a cache does not hold them.
        runs: Pieces of memory that are handled one by one: runs of a copy, rows of a norm, matrices of a batch.
        broadcast: How operands differ in shape. `dim`: the result has the rank and the sizes of one operand, and the
            other one repeats along one dim, or along the first of two; leading sizes of one aside. `any`: otherwise,
            so that elements are found by index arithmetic.
    """

    elements: int = 0
    macs: int = 0
    weights: int = 0
    runs: int = 0
    broadcast: Literal["dim", "any"] | None = None


def work_of(node: Node) -> Work | None:
    """Return the work of a call.

    Args:
        node: Call of an operator, with its value recorded.

    Returns:
        The work; sizes that vary count as large as they were when the program was exported. None where sizes are
        not known at all, or the value is not a tensor.
    """
    op = underlying(node.target)
    if not isinstance(op, OpOverload):
        return Work()
    results = _tensors(node)
    arguments = dict(canonical_arguments(node))
    inputs = [value for one in arguments.values() if isinstance(one, _HOLDING) for value in _tensors(one)]
    shapes = [_sizes(one) for one in (*results, *inputs)]
    if not results or any(shape is None for shape in shapes):
        return None
    out = [shape for shape in shapes[: len(results)] if shape is not None]
    given = [shape for shape in shapes[len(results) :] if shape is not None]
    cost = facts_of(op).cost
    elements = sum(map(math.prod, out))
    if cost.elements == "input":
        elements = max([elements, *map(math.prod, given)])
    call = _Call(arguments, out, given)
    macs = _macs(cost.macs, call)
    is_pointwise = not macs and cost.runs is None
    window = math.prod(map(int, arguments[cost.window])) if cost.window is not None else 1
    return Work(
        elements=elements * window,
        macs=macs,
        weights=max(0, math.prod(_right_factor(call)) - _CACHED) if cost.macs == "product" else 0,
        runs=_RUNS[cost.runs](call) if cost.runs is not None else 0,
        broadcast=_broadcast(out[0], given) if is_pointwise else None,
    )


# Of arguments, those that can be tensors or have some.
_HOLDING = (Node, list, tuple)


@dataclass(frozen=True)
class _Call:
    arguments: dict[str, Any]
    out: Sequence[tuple[int, ...]]
    given: Sequence[tuple[int, ...]]


def _tensors(argument: Any) -> list[torch.Tensor]:
    """Return the tensors behind an argument, or behind the elements of a list."""
    value = value_of(argument)
    if isinstance(value, torch.Tensor):
        return [value]
    values = map(value_of, value) if isinstance(value, list | tuple) else [value]
    return [one for one in values if isinstance(one, torch.Tensor)]


def _sizes(value: torch.Tensor) -> tuple[int, ...] | None:
    """Return sizes as numbers; for those that vary the example is taken with which the program was exported."""
    shape = tuple(value.shape)
    if {int}.issuperset(map(type, shape)):
        return shape
    sizes = [one.node.hint if isinstance(one, torch.SymInt) else one for one in shape]
    return None if any(one is None for one in sizes) else tuple(map(int, sizes))


def _broadcast(out: tuple[int, ...], given: Sequence[tuple[int, ...]]) -> Literal["dim", "any"] | None:
    result, shapes = _trimmed(out), [_trimmed(one) for one in given]
    others = [one for one in shapes if one != result and math.prod(one) > 1]
    if len(given) < 2 or not others:
        return None
    return "dim" if len(given) == 2 and len(others) == 1 and _repeats_one_dim(result, others[0]) else "any"


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without leading sizes of one."""
    first = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    return shape[first:]


def _repeats_one_dim(out: tuple[int, ...], other: tuple[int, ...]) -> bool:
    if len(out) == len(other):
        return sum(one != size for one, size in zip(other, out, strict=True)) == 1
    return len(out) == 2 and other == out[1:]


def _macs(kind: str | None, call: _Call) -> int:
    out, given = call.out[0], call.given
    if kind == "product":
        return math.prod(out) * given[_left_factor(call)][-1]
    if kind == "convolution":
        across = math.prod(given[1][1:])
        # A transposed one adds every input into a window of results.
        return math.prod(given[0] if call.arguments.get("transposed") else out) * across
    return 0


# Elements of a factor, 256 KiB of float32, that caches of processors hold beside the other one.
_CACHED = 1 << 16


def _left_factor(call: _Call) -> int:
    """Return the place of the left factor among the inputs: behind the summand, where there is one."""
    return 1 if "mat1" in call.arguments else 0


def _right_factor(call: _Call) -> tuple[int, ...]:
    return call.given[_left_factor(call) + 1]


def _above(shape: Sequence[int], dim: int) -> int:
    return math.prod(shape[: dim % len(shape)] if shape else ())


def _slice_runs(call: _Call) -> int:
    out, dim = call.out[0], int(call.arguments["dim"])
    pieces = _above(out, dim)
    return pieces if call.arguments["step"] == 1 or not out else pieces * out[dim % len(out)]


def _joined_runs(call: _Call) -> int:
    dim = int(call.arguments["dim"])
    return sum(_above(one, dim) for one in (call.given if len(call.out) == 1 else call.out))


def _permute_runs(call: _Call) -> int:
    """A permutation moves what lies together in both orders."""
    dims = [int(one) for one in call.arguments["dims"]]
    kept = len(dims)
    while kept and dims[kept - 1] == kept - 1:
        kept -= 1
    return math.prod(call.out[0][:kept])


def _expand_runs(call: _Call) -> int:
    given, out = call.given[0], call.out[0]
    padded = (1,) * (len(out) - len(given)) + tuple(given)
    kept = len(out)
    while kept and padded[kept - 1] == out[kept - 1]:
        kept -= 1
    return math.prod(out[:kept])


_RUNS: dict[str, Callable[[_Call], int]] = {
    "slice": _slice_runs,
    "select": lambda call: _above(call.given[0], int(call.arguments["dim"])),
    "joined": _joined_runs,
    "rows": lambda call: math.prod(call.given[0][:-1]),
    "permute": _permute_runs,
    "expand": _expand_runs,
    "batch": lambda call: call.given[0][0],
}
"""How many pieces of memory a call handles one by one, by what the catalogue counts."""


# What a target has and what it costs: data, written by a script that measures, asked by rules that choose


SHIPPED_TARGETS = "targets"
_REGISTRIES = "registries"


class KernelCost(Strict):
    """What one kernel costs: the sum of what it does, times what each unit of it takes.

    Attributes:
        call_ns: Nanoseconds of a call that computes nothing.
        element_ns: Nanoseconds for each element of the result, or of what is reduced.
        broadcast_ns: Instead of `element_ns` where operands differ in shape.
        dim_broadcast_ns: Instead of `broadcast_ns` where one operand repeats along one dim only.
        mac_ns: Nanoseconds for each multiplication with addition, for products of matrices and convolutions.
        weight_ns: Nanoseconds for each element of the right factor of a product of matrices beyond the first 65,536.
        run_ns: Nanoseconds for each run of memory, row or matrix that is handled by itself.
        note: Where the figure does not hold.
    """

    call_ns: float = Field(default=0.0, ge=0)
    element_ns: float = Field(default=0.0, ge=0)
    broadcast_ns: float | None = Field(default=None, ge=0)
    dim_broadcast_ns: float | None = Field(default=None, ge=0)
    mac_ns: float = Field(default=0.0, ge=0)
    weight_ns: float = Field(default=0.0, ge=0)
    run_ns: float = Field(default=0.0, ge=0)
    note: str | None = None

    def of(self, work: Work) -> float:
        """Return the estimated time of a call in nanoseconds."""
        return (
            self.call_ns
            + self._element_ns(work) * work.elements
            + self.mac_ns * work.macs
            + self.weight_ns * work.weights
            + self.run_ns * work.runs
        )

    def _element_ns(self, work: Work) -> float:
        if work.broadcast == "dim" and self.dim_broadcast_ns is not None:
            return self.dim_broadcast_ns
        if work.broadcast is not None and self.broadcast_ns is not None:
            return self.broadcast_ns
        return self.element_ns


class Registry(Strict):
    """What a runtime registers.

    Attributes:
        base: Name of a shipped registry, or several names, to which the other entries are added.
        operators: Conditions of the kernel by operator as it stands in program files (`aten::add.out`); see
            `exirkit.verifiers.read_condition`.
        lacks: Operators of the base that this runtime does not have.
    """

    base: str | tuple[str, ...] | None = None
    operators: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    lacks: tuple[str, ...] = ()

    def conditions(self) -> dict[str, tuple[str, ...]]:
        """Return the conditions of all operators, with those of the base.

        Raises:
            UsageError: EK209, there is no such base.
        """
        bases = (self.base,) if isinstance(self.base, str) else self.base or ()
        found = {name: texts for base in bases for name, texts in _shipped_registry(base).items()}
        found.update(self.operators)
        return {name: texts for name, texts in found.items() if name not in self.lacks}


class Target(Strict):
    """A runtime and its kernels.

    Attributes:
        target: Version of the form: 1.
        name: Name of the target.
        doc: What it is, and on what it was measured.
        kernels: Costs by operator: `aten.linear.default`.
        delegate_ns: Of a backend, what every call of a delegate costs beside the calls in it, in nanoseconds; `kernels`
            are what its delegates compute.
        shared_weight_ns: Of a backend, nanoseconds for each element of a weight that several delegates use: each has a
            copy of its own, and caches do not hold them all.
        features: Other things that rules may ask for.
        registry: The operators that programs may call, with the conditions of their kernels; without, nothing is known
            of them and nothing is checked.
    """

    target: int = Field(ge=1, le=1)
    name: str
    doc: str | None = None
    kernels: dict[str, KernelCost] = Field(default_factory=dict)
    delegate_ns: float | None = Field(default=None, ge=0)
    shared_weight_ns: float = Field(default=0.0, ge=0)
    features: tuple[str, ...] = ()
    registry: Registry | None = None

    def has(self, capability: str) -> bool:
        """Whether the target has a kernel for an operator, or a feature."""
        return capability in self.kernels or capability in self.features

    def without_registry(self) -> Target:
        """Return the target as one of which costs are known, but not which calls its kernels take."""
        return self.model_copy(update={"registry": None})

    def cost_ns(self, operator: str, *, elements: int = 0, macs: int = 0, runs: int = 0) -> float | None:
        """Return the estimated time of a call in nanoseconds, or None for an operator without a kernel."""
        known = self.kernels.get(operator)
        return None if known is None else known.of(Work(elements=elements, macs=macs, runs=runs))

    def cost_of(self, node: Node) -> float:
        """Return the estimated time of a call in a graph in nanoseconds.

        Infinite for an operator that the target has no kernel for; not a number where sizes are not known. What
        is not a call of an operator costs nothing.
        """
        op = underlying(node.target)
        if node.op != "call_function" or not hasattr(op, "_schema"):
            return 0.0
        kernel = self.kernels.get(name_of(op))
        if kernel is None:
            return math.inf
        work = work_of(node)
        return math.nan if work is None else kernel.of(work)

    def estimate_of(self, node: Node) -> float:
        """Return the estimated time of a call in nanoseconds; where it is not known, one for each thing it computes."""
        cost = self.cost_of(node)
        if math.isfinite(cost):
            return cost
        work = work_of(node)
        return 0.0 if work is None else float(work.elements + work.macs)


def shipped_targets() -> tuple[str, ...]:
    """Return the names of the targets that come with exirkit."""
    folder = files("exirkit.patterns").joinpath(SHIPPED_TARGETS)
    return tuple(sorted(each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml")))


def read_target(path: str | Path) -> Target:
    """Read a description.

    Args:
        path: YAML file, or a name as in `shipped_targets()`.

    Raises:
        UsageError: EK209, it is none.
        OSError: It cannot be read.
    """
    name = str(path)
    if name in shipped_targets():
        return _shipped_target(name)
    return _parsed(Path(path).read_text(encoding="utf-8"), name)


@lru_cache(maxsize=8)
def _shipped_registry(name: str) -> Mapping[str, tuple[str, ...]]:
    resource = files("exirkit.patterns").joinpath(SHIPPED_TARGETS, _REGISTRIES, f"{name}.yaml")
    if not name.isidentifier() or not resource.is_file():
        raise _wrong(
            name, f"there is no registry {name!r} to start from", "the name of a shipped one: official_host, quantized"
        )
    # Made by a script: no need for the places of its words.
    data = load_yaml(resource.read_text(encoding="utf-8"))
    return TypeAdapter(dict[str, tuple[str, ...]]).validate_python(data["operators"])


# Every lowering asks for the same one.
@lru_cache(maxsize=8)
def _shipped_target(name: str) -> Target:
    """Read a target that comes with exirkit: it is known to be right, so the places of its words are not kept."""
    resource = files("exirkit.patterns").joinpath(SHIPPED_TARGETS, f"{name}.yaml")
    return Target.model_validate(load_yaml(resource.read_text(encoding="utf-8")))


@lru_cache(maxsize=8)
def _parsed(text: str, name: str) -> Target:
    try:
        return read_document(text, Target, DocumentCodes("EK209", "EK209"), file=name).model
    except ModelError as error:
        raise UsageError(error.diagnostics) from None


def _wrong(name: str, message: str, hint: str) -> UsageError:
    return UsageError(
        Diagnostic(
            code="EK209",
            message=f"this is not a target description: {message}",
            location=Location(file=name),
            hint=hint,
        )
    )
