"""What a target has and what it costs: data, written by a script that measures, asked by rules that choose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import yaml
from pydantic import Field, TypeAdapter
from torch.fx import Node

from exirkit.ir import Diagnostic, DocumentCodes, Location, ModelError, UsageError, read_document, underlying
from exirkit.patterns.books.model import Strict

from .table import name_of
from .work import Work, work_of

SHIPPED_TARGETS = "targets"
_REGISTRIES = "registries"


class KernelCost(Strict):
    """What one kernel costs: the sum of what it does, times what each unit of it takes.

    Attributes:
        call_ns: Nanoseconds of a call that computes nothing.
        element_ns: Nanoseconds for each element of the result, or of what is reduced.
        broadcast_ns: Instead of `element_ns` where operands differ in shape.
        mac_ns: Nanoseconds for each multiplication with addition, for products of matrices and convolutions.
        run_ns: Nanoseconds for each run of memory, row or matrix that is handled by itself.
        note: Where the figure does not hold.
    """

    call_ns: float = Field(default=0.0, ge=0)
    element_ns: float = Field(default=0.0, ge=0)
    broadcast_ns: float | None = Field(default=None, ge=0)
    mac_ns: float = Field(default=0.0, ge=0)
    run_ns: float = Field(default=0.0, ge=0)
    note: str | None = None

    def of(self, work: Work) -> float:
        """Return the estimated time of a call in nanoseconds."""
        each = self.element_ns
        if work.is_broadcast and self.broadcast_ns is not None:
            each = self.broadcast_ns
        return self.call_ns + each * work.elements + self.mac_ns * work.macs + self.run_ns * work.runs


class Registry(Strict):
    """What a runtime registers.

    Attributes:
        base: Name of a shipped registry, to which the other entries are added.
        operators: Conditions of the kernel by operator as it stands in program files (`aten::add.out`); see
            `exirkit.verifiers.read_condition`.
        lacks: Operators of the base that this runtime does not have.
    """

    base: str | None = None
    operators: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    lacks: tuple[str, ...] = ()

    def conditions(self) -> dict[str, tuple[str, ...]]:
        """Return the conditions of all operators, with those of the base.

        Raises:
            UsageError: EK209, there is no such base.
        """
        found = dict(_shipped_registry(self.base)) if self.base is not None else {}
        found.update(self.operators)
        return {name: texts for name, texts in found.items() if name not in self.lacks}


class Target(Strict):
    """A runtime and its kernels.

    Attributes:
        target: Version of the form: 1.
        name: Name of the target.
        doc: What it is, and on what it was measured.
        kernels: Costs by operator: `aten.linear.default`.
        features: Other things that rules may ask for.
        registry: The operators that programs may call, with the conditions of their kernels; without, nothing is known
            of them and nothing is checked.
    """

    target: int = Field(ge=1, le=1)
    name: str
    doc: str | None = None
    kernels: dict[str, KernelCost] = Field(default_factory=dict)
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
        is no call of an operator costs nothing.
        """
        op = underlying(node.target)
        if node.op != "call_function" or not hasattr(op, "_schema"):
            return 0.0
        kernel = self.kernels.get(name_of(op))
        if kernel is None:
            return math.inf
        work = work_of(node)
        return math.nan if work is None else kernel.of(work)


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
        resource = files("exirkit.patterns").joinpath(SHIPPED_TARGETS, f"{name}.yaml")
        text = resource.read_text(encoding="utf-8")
    else:
        text = Path(path).read_text(encoding="utf-8")
    return _parsed(text, name)


@lru_cache(maxsize=8)
def _shipped_registry(name: str) -> Mapping[str, tuple[str, ...]]:
    resource = files("exirkit.patterns").joinpath(SHIPPED_TARGETS, _REGISTRIES, f"{name}.yaml")
    if not name.isidentifier() or not resource.is_file():
        raise _wrong(name, f"there is no registry {name!r} to start from", "the name of a shipped one: official_host")
    # Made by a script: no need for the places of its words.
    loader = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
    data = yaml.load(resource.read_text(encoding="utf-8"), loader)
    return TypeAdapter(dict[str, tuple[str, ...]]).validate_python(data["operators"])


# Every lowering asks for the same one.
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
            message=f"this is no target description: {message}",
            location=Location(file=name),
            hint=hint,
        )
    )
