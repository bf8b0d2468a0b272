"""The operator catalogue: what exirkit knows of operators beyond their schemas, read from `entries/*.yaml`.

One entry per operator, under its name `aten.add.Tensor`. Every room but the reference interpreter takes its facts from
here. Which dtypes operators take is measured, and lies in `measured/dtypes.yaml` (see `dtypes.py`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter
from torch._ops import OpOverload

from .calls import operator_name, out_operator_name
from .defined_operators import DefinedOperator
from .handles import find_out_variant, ops, underlying

Operator: TypeAlias = OpOverload | DefinedOperator

Trait = Literal[
    "accepted_in_core",  # not tagged as core by torch, but every ExecuTorch runtime knows it
    "any_dialect",  # legal as a torch overload in every dialect
    "assertion",  # asserts or constrains, and returns nothing
    "cast",  # changes the dtype
    "copy_like",  # returns the elements of its argument, in the same shape
    "creates",  # makes a tensor of one number
    "dequantize",
    "identity",  # in a functional graph, its result is its argument
    "noop_if_same_type",  # returns its argument if sizes, dtype and layout are the same
    "permute",  # reorders dims
    "pointwise",  # elementwise, of several tensors
    "quantize",
    "reductions",
    "reshape",  # the same elements in the same order, with other sizes
    "returns_number",  # the runtime has it under its own name; it needs no out variant
    "same_dtypes",  # kernels of small runtimes want both operands in one dtype
    "training_only",  # does nothing without training
    "unary_pointwise",
    "undefined_for_empty",  # results for tensors without elements contradict torch's own formulas
    "views",  # views and copies of what views show
]

GeneratorFamily = Literal[
    "binary", "scalar", "choose", "create", "cast", "layout", "quantize", "index", "product", "convolution", "pool",
    "normalize", "resample", "gate", "reduce", "place", "several", "running", "shape", "pad", "join", "cut", "unary",
    "clamp", "softmax",
]  # fmt: skip
"""Families of operators that generated programs call, in the order in which the generator lists them."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Commutes(_Entry):
    """Two arguments that may be exchanged; with `when`, only if other arguments have those values."""

    arguments: tuple[str, str]
    when: dict[str, int | float | bool] = {}


class Cost(_Entry):
    """How much work a call does, beyond one step for each element of the result.

    Attributes:
        elements: Whether elements of the result or of the largest input are counted.
        macs: How multiplications are counted.
        runs: How pieces of memory are counted that are handled one by one.
        window: Argument with the sizes of the window that is read for each element.
    """

    elements: Literal["result", "input"] = "result"
    macs: Literal["product", "convolution"] | None = None
    runs: Literal["batch", "expand", "joined", "permute", "rows", "select", "slice"] | None = None
    window: str | None = None


class OperatorFacts(_Entry):
    """What is known of one operator.

    Attributes:
        traits: Classes that it belongs to; see `Trait`.
        copy_variant: For a view: the operator that copies what the view shows.
        dim_order_variant: The operator that takes a dim order where this one takes a memory format.
        commutes: Arguments that may be exchanged.
        dims: Arguments that count dims of the first tensor.
        result_dims: Arguments that count dims of the result, which has one more than the first tensor.
        pairs: Lists in which one element [k] stands for [k, k].
        defaults: What an argument means that has its default: the value of another argument (stride: kernel_size),
            "dtype of input", "dtype of sum" (int64 for integers), "dtype of number" (of the fill value), "default
            dtype", "all dims" (whose order has no meaning), "one", "nothing" (it makes no difference), "root of last
            size" (one over the root of the last size).
        in_place: Arguments that the kernel of the out variant may overwrite with its result: it reads each element
            before it writes the one in that place, and never again. A mapping names the results of operators with
            several.
        cost: How much work a call does.
        advice: What to do about an operator that is not core, where torch has no decomposition.
        generate: How generated programs call it, each with `family`, and options of that family. `dtypes` are those of
            the main operand, `weight` how often it is proposed against 1; `portable: false` if the official runtime
            has no portable kernel for what it is lowered to, `unsupported: true` if our own lowering rejects it.
    """

    traits: frozenset[Trait] = frozenset()
    copy_variant: str | None = None
    dim_order_variant: str | None = None
    commutes: Commutes | None = None
    dims: tuple[str, ...] = ()
    result_dims: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    defaults: dict[str, str] = {}
    in_place: tuple[str, ...] | dict[str, tuple[str, ...]] = ()
    cost: Cost = Cost()
    advice: str | None = None
    generate: tuple[dict[str, Any], ...] = ()

    @cached_property
    def overwrites(self) -> Mapping[str, tuple[str, ...]]:
        """Arguments that may be overwritten, by the `out` argument of the out variant."""
        if isinstance(self.in_place, dict):
            return self.in_place
        return {"out": self.in_place} if self.in_place else {}


_NOTHING = OperatorFacts()
_FACTS: dict[Any, OperatorFacts] = {}


@cache
def catalogue() -> Mapping[str, OperatorFacts]:
    """Return all entries, by names such as `aten.add.Tensor`."""
    entries: dict[str, Any] = {}
    folder = files(__package__).joinpath("entries")
    for file in sorted(folder.iterdir(), key=lambda one: one.name):
        entries |= load_yaml(file.read_text(encoding="utf-8"))
    return TypeAdapter(dict[str, OperatorFacts]).validate_python(entries)


def load_yaml(text: str) -> Any:
    """Return the content of a YAML file of the package, read by libyaml where PyYAML has it."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@cache
def operator_named(name: str) -> Operator:
    """Return the operator of a name of the catalogue.

    Raises:
        UnknownOperatorError: EK101, there is none.
    """
    namespace, packet, overload = name.split(".")
    if namespace == "quantized_decomposed":
        importlib.import_module("torch.ao.quantization.fx._decomposed")
    found: Operator = underlying(getattr(getattr(getattr(ops.edge, namespace), packet), overload))
    return found


def facts_of(target: Any) -> OperatorFacts:
    """Return what is known of an operator, or of the one behind a handle; an empty entry if nothing is."""
    found = _FACTS.get(target)
    if found is None:
        found = _FACTS[target] = catalogue().get(operator_name(target), _NOTHING)
    return found


def has_trait(target: Any, trait: Trait) -> bool:
    """Return whether the operator behind a graph target belongs to a class of operators."""
    return trait in facts_of(target).traits


@cache
def operators_with(trait: str) -> tuple[Operator, ...]:
    """Return the operators of a class, by name.

    Raises:
        LookupError: There is no such class.
    """
    found = tuple(operator_named(name) for name, facts in sorted(catalogue().items()) if trait in facts.traits)
    if not found:
        raise LookupError(f"the operator catalogue has no trait {trait!r}")
    return found


def copy_variant(target: Any) -> Operator | None:
    """Return the operator that copies what a view shows, `aten.permute_copy` for `aten.permute`, or None."""
    name = facts_of(target).copy_variant
    return None if name is None else operator_named(name)


def generator_entries() -> Sequence[tuple[GeneratorFamily, str, Mapping[str, Any]]]:
    """Return how generated programs call operators: family, name of the operator, options; in a fixed order.

    The option `copy` is the name of the operator's copy variant.
    """
    found: dict[Any, list[tuple[Any, str, dict[str, Any]]]] = {family: [] for family in GeneratorFamily.__args__}  # type: ignore[attr-defined]
    for name, facts in catalogue().items():
        for row in facts.generate:
            options = {key: value for key, value in row.items() if key != "family"}
            if options.get("copy"):
                options["copy"] = facts.copy_variant
            found[row["family"]].append((row["family"], name, options))
    return [row for rows in found.values() for row in rows]


@cache
def in_place_operators() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return, for out variants such as `aten::add.out`, the arguments that each result may overwrite."""
    found = {}
    for name, facts in catalogue().items():
        if facts.in_place:
            out = find_out_variant(operator_named(name))
            assert out is not None, f"{name} has no out variant"
            found[out_operator_name(out)] = facts.overwrites
    return found


def overwritable_arguments(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return, for each result of an out variant, the arguments that it may overwrite.

    Args:
        name: Such as `aten::add.out`.
    """
    return in_place_operators().get(name, {})
