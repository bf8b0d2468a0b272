"""The operator catalogue: what exirkit knows of operators beyond their schemas, read from `entries/*.yaml`.

One entry per operator, under its name `aten.add.Tensor`. Every room but the reference interpreter takes its facts from
here. Which dtypes operators take is measured, and lies in `measured/dtypes.yaml`.

The file is made by running the operators (`python -m tools.dtypes.measure`). A line of it is a rule such as
`T T -> T; T: floating`: what stands before the arrow are dtypes of arguments, what stands behind it dtypes of results.
`T` is one dtype wherever it stands in a line; other words are dtypes, names of sets, or several of them between `|`;
`none` is an argument that is not given. A call is legal if one line admits it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal, TypeAlias

import torch
import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter
from torch.fx import Node

from exirkit.ir.torch_internals import OpOverload, register_quantized_decomposed

from .handles import DefinedOperator, defined_operator, find_out_variant, ops, underlying

_TENSOR_OPTIONS = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format"})
"""Arguments of operators that make tensors; an `out` tensor carries them already."""


def operator_name(target: Any) -> str:
    """Return the name of the operator behind a graph target, `aten.add.Tensor`; empty if there is none."""
    schema = getattr(underlying(target), "_schema", None)
    if schema is None:
        return ""
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


def out_operator_name(target: object) -> str:
    """Return the name of the operator behind a graph target, such as `aten::add.out`; empty if there is none."""
    schema = getattr(underlying(target), "_schema", None)
    if not isinstance(schema, torch.FunctionSchema):
        return ""
    return f"{schema.name}.{schema.overload_name}"


def named_arguments(node: Node, schema: torch.FunctionSchema | None = None) -> dict[str, Any]:
    """Return the arguments that a call gives, by the names that its schema has for them; empty without a schema.

    Args:
        node: A call.
        schema: Schema of its operator, if the caller has it.
    """
    names = _positional(underlying(node.target)) if schema is None else (one.name for one in schema.arguments)
    return {} if names is None else {**dict(zip(names, node.args, strict=False)), **node.kwargs}


@cache
def _positional(op: Any) -> tuple[str, ...] | None:
    schema = getattr(op, "_schema", None)
    return None if schema is None else tuple(one.name for one in schema.arguments if not one.kwarg_only)


def written_by_position(
    op: OpOverload | DefinedOperator, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Write a call as torch.export does: what may be given by position is, with defaults before it where it must be.

    Args:
        op: The operator.
        args: Arguments by position.
        kwargs: Arguments by name.
    """
    places = [one for one in op._schema.arguments if not one.kwarg_only]
    last = max((place for place, one in enumerate(places) if one.name in kwargs), default=-1)
    named = dict(kwargs)
    values = [named.pop(one.name) if one.name in named else one.default_value for one in places[len(args) : last + 1]]
    return (*args, *values), named


def split_arguments(op: Any, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call by position and by name; what is left out stays left out.

    Args:
        op: The operator.
        given: Values by name of the argument; names that the operator does not have are left out.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for place, argument in enumerate(op._schema.arguments):
        if argument.name not in given:
            continue
        # Behind one that is left out, an argument can only go by name.
        if argument.kwarg_only or len(args) < place:
            kwargs[argument.name] = given[argument.name]
        else:
            args.append(given[argument.name])
    return tuple(args), kwargs


@cache
def is_out_variant(op: Any) -> bool:
    """Return whether an operator writes its results into given tensors."""
    return any(argument.is_out for argument in op._schema.arguments)


@cache
def find_in_place_variant(op: Any) -> OpOverload | None:
    """Return the operator that does what an operator does in the memory of its first argument; None if none does.

    It is found by name and types: `aten.relu_.default` for `aten.relu.default`, `aten.pow_.Scalar` for
    `aten.pow.Tensor_Scalar`.
    """
    schema = underlying(op)._schema
    namespace, _, name = schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), f"{name}_", None)
    wanted = [str(one.type) for one in schema.arguments]
    for overload in packet.overloads() if packet is not None else ():
        found: OpOverload = getattr(packet, overload)
        if [str(one.type) for one in found._schema.arguments] == wanted and writes_in_place(found):
            return found
    return None


def writes_in_place(target: Any) -> bool:
    """Return whether an operator writes into its first argument, which is not an `out`, and returns it."""
    schema = getattr(underlying(target), "_schema", None)
    if not isinstance(schema, torch.FunctionSchema) or not schema.arguments or len(schema.returns) != 1:
        return False
    first, result = schema.arguments[0], schema.returns[0]
    if first.is_out or first.alias_info is None or not first.alias_info.is_write or result.alias_info is None:
        return False
    return bool(first.alias_info.before_set & result.alias_info.before_set)


def written_in_place(node: Node) -> Node | None:
    """Return the node whose memory a call writes to and returns: its first argument, or what that was written to."""
    found = node
    while found.op == "call_function" and writes_in_place(found.target) and isinstance(found.args[0], Node):
        found = found.args[0]
    return found if found is not node else None


@cache
def returns_view(target: Any) -> bool:
    """Return whether an operator returns a tensor in the memory of an argument, without writing to it."""
    aliases = [result.alias_info for result in underlying(target)._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


@cache
def functional_variant(op: Any) -> Any:
    """Return the operator that computes what an out variant writes, or None.

    It takes the same arguments, except the out arguments and what these carry, and returns as many results.
    """
    if isinstance(op, DefinedOperator):
        return op.functional or defined_operator(op._schema.name)
    wanted, results = _kinds(op), len(op._schema.returns)
    for name in op.overloadpacket.overloads():
        one = getattr(op.overloadpacket, name)
        # Variants that fill a list of tensors return nothing.
        if one._schema.is_mutable or is_out_variant(one) or (results and len(one._schema.returns) != results):
            continue
        found = _kinds(one)
        if found.items() >= wanted.items() and found.keys() - wanted.keys() <= _TENSOR_OPTIONS:
            return one
    return None


def functional_call(node: Node) -> tuple[Any, tuple[Any, ...], dict[str, Any], bool]:
    """Return what to run to infer the value of a call: operator, arguments, and whether its dtype can be trusted.

    The operator is None for an out variant without a functional variant.
    """
    op = underlying(node.target)
    if not isinstance(op, OpOverload | DefinedOperator) or not is_out_variant(op):
        return node.target, node.args, dict(node.kwargs), True
    functional = functional_variant(op)
    if functional is None:
        return None, (), {}, False
    args, kwargs = split_arguments(functional, named_arguments(node))
    lost = _kinds(functional).keys() - {argument.name for argument in op._schema.arguments}
    return functional, args, kwargs, "dtype" not in lost


def _kinds(op: Any) -> dict[str, str]:
    return {one.name: str(one.real_type) for one in op._schema.arguments if not one.is_out}


Operator: TypeAlias = OpOverload | DefinedOperator

Trait = Literal[
    "accepted_in_core",  # not tagged as core by torch, but every ExecuTorch runtime knows it
    "any_dialect",  # legal as a torch overload in every dialect
    "any_layouts",  # kernels take arguments and results of different layouts
    "assertion",  # asserts or constrains, and returns nothing
    "cast",  # changes the dtype
    "channels_last",  # kernels take the first argument and the results row-major, or both channels-last
    "copy_like",  # returns the elements of its argument, in the same shape
    "creates",  # makes a tensor of one number
    "dequantize",
    "identity",  # in a functional graph, its result is its argument
    "noop_if_same_type",  # returns its argument if sizes, dtype and layout are the same
    "one_layout",  # kernels take any layout, if all tensors have the same one and the same shape
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

BandKind = Literal[
    "channels", "elementwise", "expanded", "joined", "layer_norm", "looked_up", "nearest", "other_dims", "padded",
    "permuted", "product", "reduced", "reshaped", "selected", "shuffled", "sliced", "window",
]  # fmt: skip
"""How a part of a result along one dim depends on parts of the arguments; see `exirkit.passes.optimize.tiling`."""


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
        bands: How a part of the result along one dim is computed from parts of the arguments; it is not written for
            elementwise operators that have such a trait.
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
    bands: BandKind | None = None
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
        register_quantized_decomposed()
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


_SETS: Mapping[str, tuple[str, ...]] = {
    "integer": ("uint8", "int8", "int16", "int32", "int64"),
    "index": ("int32", "int64"),
    "floating": ("float16", "bfloat16", "float32", "float64"),
}
"""Names of sets in rules; `any` and `number` are made of them."""

ALL_DTYPES: tuple[str, ...] = ("bool", *_SETS["integer"], *_SETS["floating"])
"""Every dtype that was tried, in the order of promotion."""

AS_TORCH = "as torch"
"""Stands in the file where the runtime takes and returns what torch does."""

_NAMED: Mapping[str, tuple[str, ...]] = {**_SETS, "any": ALL_DTYPES, "number": ALL_DTYPES[1:]}

Dtypes = tuple[str, ...]


@dataclass(frozen=True)
class OperatorDtypes:
    """What one operator takes and returns.

    Attributes:
        arguments: Names of the arguments that have, or are, a dtype.
        rules: Lines of the file.
        is_sampled: Not all combinations were tried, only those in which at most one argument differs from the others.
    """

    arguments: tuple[str, ...]
    rules: tuple[str, ...]
    is_sampled: bool = False

    @cached_property
    def results(self) -> Mapping[Dtypes, frozenset[Dtypes]]:
        """Dtypes that may be returned, by those of the arguments."""
        found: dict[Dtypes, set[Dtypes]] = {}
        for rule in self.rules:
            for given, returned in expand_rule(rule):
                found.setdefault(given, set()).add(returned)
        return {given: frozenset(returned) for given, returned in found.items()}

    def is_known(self, given: Dtypes) -> bool:
        """Return whether it was tried what the operator makes of arguments of these dtypes."""
        present = [one for one in given if one != "none"]
        if any(one not in ALL_DTYPES for one in present):
            return False
        most = max((present.count(one) for one in present), default=0)
        return not self.is_sampled or most >= len(present) - 1


def dtype_arguments(op: Any) -> tuple[str, ...]:
    """Return the arguments of an operator that have a dtype, or are one, in the order of its schema."""
    return tuple(
        argument.name
        for argument in op._schema.arguments
        if "Tensor" in str(argument.real_type) or "ScalarType" in str(argument.real_type)
    )


def expand_rule(rule: str) -> Iterator[tuple[Dtypes, Dtypes]]:
    """Yield the combinations that a rule admits: dtypes of arguments, dtypes of results."""
    body, _, bound = rule.partition(";")
    left, _, right = body.partition("->")
    given, returned = left.split(), right.split()
    words = [*given, *returned]
    variable = bound.partition(":")[2].strip()
    for value in dtypes_named(variable) if variable else ("",):
        choices = [(value,) if word == "T" else dtypes_named(word) for word in words]
        for each in itertools.product(*choices):
            yield each[: len(given)], each[len(given) :]


def dtypes_named(word: str) -> Dtypes:
    """Return the dtypes that a word of a rule stands for."""
    return tuple(dtype for part in word.split("|") for dtype in _NAMED.get(part, (part,)))


def word_for(dtypes: Sequence[str]) -> str:
    """Return the shortest word of a rule that stands for these dtypes."""
    wanted = set(dtypes)
    for name in ("any", "number", "integer", "floating", "index"):
        if wanted == set(_NAMED[name]):
            return name
    words = []
    for name in ("number", "integer", "floating"):
        if wanted >= set(_NAMED[name]):
            words.append(name)
            wanted -= set(_NAMED[name])
    return "|".join([*(one for one in (*ALL_DTYPES, "none") if one in wanted), *words])


@cache
def known_dtypes(runtime: bool = False) -> Mapping[str, OperatorDtypes]:
    """Return the catalogue, by names such as `aten.add.Tensor`.

    Args:
        runtime: What the kernels of the ExecuTorch runtime take, instead of what those of torch take.
    """
    text = files(__package__).joinpath("measured", "dtypes.yaml").read_text(encoding="utf-8")
    entries: dict[str, Any] = load_yaml(text)
    column = "runtime" if runtime else "torch"
    return {
        name: OperatorDtypes(
            tuple(entry["arguments"]),
            tuple(entry["torch" if entry[column] == AS_TORCH else column]),
            bool(entry.get("sampled") or (runtime and entry.get("runtime-sampled"))),
        )
        for name, entry in entries["operators"].items()
        if column in entry
    }
