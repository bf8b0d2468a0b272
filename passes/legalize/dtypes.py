"""Dtypes that operators compute in, as data, and the pass that casts their arguments."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir import (
    DefinedOperator,
    Diagnostic,
    DocumentCodes,
    EdgeOpOverload,
    GraphEditor,
    ModelError,
    OpOverload,
    UsageError,
    YamlPath,
    YamlSource,
    as_constant,
    dim_order_from_stride,
    has_trait,
    ops,
    read_document,
    read_text,
    same_argument,
    underlying,
)
from exirkit.passes.analysis import StoredValues
from exirkit.passes.contract import ReportingPass
from exirkit.patterns import FAMILIES, OperatorTable, UnknownNameError, operators_with

Operator = OpOverload | DefinedOperator

DTYPES: Mapping[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32,
        torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    )
}  # fmt: skip
"""Dtypes by the names that policies use."""


def _known(name: str) -> str:
    if name not in DTYPES:
        raise ValueError(f"{name!r} is not a dtype; it is one of {', '.join(DTYPES)}")
    return name


DtypeName = Annotated[str, AfterValidator(_known)]


class DtypeEntry(BaseModel):
    """What holds for one operator or one family of operators.

    Attributes:
        op: `aten.native_layer_norm.default`, or a family such as `pointwise`.
        arguments: Dtype of tensor arguments by name, whatever they have been.
        compute_in: For each dtype of other tensor arguments, the one that takes its place: `{float16: float32}`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    op: str
    arguments: dict[str, DtypeName] = Field(default_factory=dict)
    compute_in: dict[DtypeName, DtypeName] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _settles(self) -> DtypeEntry:
        if not self.arguments and not self.compute_in:
            raise ValueError("an entry has `arguments` or `compute_in`")
        chained = [name for name in self.compute_in.values() if name in self.compute_in]
        if chained:
            raise ValueError(f"`compute_in` leads to {chained[0]}, and on from there")
        return self


class DtypePolicy(BaseModel):
    """Dtypes by operator; of several entries that name an operator the first one counts.

    Attributes:
        dtype_policy: Version of the form: 1.
        entries: The entries.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dtype_policy: int = Field(default=1, ge=1, le=1)
    entries: tuple[DtypeEntry, ...]


@dataclass(frozen=True, slots=True)
class Treatment:
    """What a policy asks of one operator.

    Attributes:
        arguments: Dtypes of tensor arguments by name.
        compute_in: For each dtype of the others, the one that takes its place.
    """

    arguments: Mapping[str, torch.dtype]
    compute_in: Mapping[torch.dtype, torch.dtype]

    def wanted(self, argument: str, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype that an argument is to have."""
        return self.arguments.get(argument) or self.compute_in.get(dtype, dtype)


def read_dtype_policy(path: str | Path) -> DtypePolicy:
    """Read a policy from a YAML file.

    Raises:
        ModelError: EK441, the file is not a policy; EK442, it names operators or arguments that do not exist.
        OSError: It cannot be read.
    """
    return parse_dtype_policy(read_text(path, "EK441"), str(path))


def parse_dtype_policy(text: str, file: str = "<policy>") -> DtypePolicy:
    """Read a policy from its text.

    Raises:
        ModelError: As `read_dtype_policy`.
    """
    found = read_document(text, DtypePolicy, DocumentCodes(syntax="EK441", form="EK441"), file=file)
    _, findings = _resolved(found.model, found.source)
    if findings:
        raise ModelError(findings)
    return found.model


def treatments(policy: DtypePolicy) -> dict[Operator, Treatment]:
    """Return what a policy asks of each operator.

    Raises:
        UsageError: EK442, it names operators or arguments that do not exist.
    """
    found, findings = _resolved(policy, None)
    if findings:
        raise UsageError(findings)
    return found


def _resolved(policy: DtypePolicy, source: YamlSource | None) -> tuple[dict[Operator, Treatment], list[Diagnostic]]:
    found: dict[Operator, Treatment] = {}
    findings: list[Diagnostic] = []
    for index, entry in enumerate(policy.entries):
        path: YamlPath = ("entries", index)
        try:
            operators = _operators(entry)
        except UnknownNameError as error:
            findings.append(_finding(error.message, error.hint, source, (*path, "op"), entry.op))
            continue
        for name in entry.arguments:
            if not any(name in _tensor_arguments(op) for op in operators):
                known = ", ".join(dict.fromkeys(each for op in operators for each in _tensor_arguments(op)))
                message = f"{entry.op} has no tensor argument {name!r}"
                findings.append(_finding(message, f"it has {known}", source, (*path, "arguments", name), name))
        treatment = Treatment(
            {name: DTYPES[dtype] for name, dtype in entry.arguments.items()},
            {DTYPES[left]: DTYPES[right] for left, right in entry.compute_in.items()},
        )
        for op in operators:
            found.setdefault(op, treatment)
    return found, findings


def _operators(entry: DtypeEntry) -> tuple[Any, ...]:
    if entry.op in FAMILIES:
        return operators_with(entry.op)
    op = OperatorTable().find(entry.op)
    if has_trait(op, "cast"):
        raise UnknownNameError(f"{entry.op} is a cast itself", "name the operators that use its result")
    if op._schema.is_mutable:
        raise UnknownNameError(f"{entry.op} writes to its arguments", "name the operator that returns its result")
    return (op,)


def _tensor_arguments(op: Operator) -> list[str]:
    return [argument.name for argument in op._schema.arguments if "Tensor" in str(argument.type)]


def _finding(message: str, hint: str | None, source: YamlSource | None, path: YamlPath, written: str) -> Diagnostic:
    if source is None:
        return Diagnostic.of(code="EK442", message=message, hint=hint)
    text = source.key(path) if path[-2] == "arguments" else source.text(path)
    return text.diagnostic("EK442", message, length=len(written), hint=hint)


@dataclass(frozen=True, slots=True)
class LegalizeReport:
    """What legalising one program did.

    Attributes:
        legalized: Names of the operators whose arguments have other dtypes now, as they were called before.
        casts: How many casts there are more, not counting those that were dropped again.
        constants: Names of stored tensors that were cast.
    """

    legalized: tuple[str, ...]
    casts: int
    constants: tuple[str, ...]


def _read(given: Any, info: ValidationInfo) -> Any:
    """Read the file that a string names, beside the pipeline."""
    if not isinstance(given, str):
        return given
    try:
        return read_dtype_policy(Path((info.context or {}).get("folder", ".")) / given)
    except OSError as error:
        raise ValueError(f"{given} cannot be read: {(error.strerror or str(error)).lower()}") from None


@dataclass(eq=False)
class LegalizeDtypes(ReportingPass[LegalizeReport]):
    """Cast arguments of operators to the dtypes that a policy asks for, and results back to what they have been.

    Users and the signature of the program see the dtypes that they saw before. Stored tensors are cast now, everything
    else when the program runs. Of two casts in a row the pair is dropped if it changes nothing: int32 to int64 and
    back, but not float32 to float16 and back. Left alone are operators whose result another operator writes to.

    Args:
        policy: Dtypes by operator.

    Before: `%y = aten.gelu.default(%x_f16)`
    After: `%c = aten._to_copy.default(%x_f16, dtype=torch.float32)`; `%g = aten.gelu.default(%c)`;
        `%y = aten._to_copy.default(%g, dtype=torch.float16)`

    Raises:
        UsageError: EK442, the policy names operators or arguments that do not exist.
    """

    name = "legalize-dtypes"

    policy: Annotated[DtypePolicy, BeforeValidator(_read)]

    def __post_init__(self) -> None:
        self._treatments = treatments(self.policy)

    def edit(self, editor: GraphEditor) -> None:
        """Insert the casts.

        Raises:
            ModelError: EK111, an operator does not take the dtypes that the policy asks for.
        """
        casting = _Casting(editor)
        for node in list(editor.graph.nodes):
            if node.op == "call_function":
                treatment = self._treatments.get(underlying(node.target))
                if treatment is not None:
                    casting.legalize(node, treatment)
        self.reports.append(casting.finish())


@dataclass
class _Casting:
    """Casts made in one program, each once."""

    editor: GraphEditor
    made: dict[tuple[Node, torch.dtype], Node] = field(default_factory=dict)
    legalized: list[str] = field(default_factory=list)
    constants: dict[Node, None] = field(default_factory=dict)
    passed: dict[Node, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stored = StoredValues(self.editor.program)

    def legalize(self, node: Node, treatment: Treatment) -> None:
        """Cast the arguments of a call, and its results back."""
        value = node.meta.get("val")
        is_list = isinstance(value, list | tuple)
        if self.stored.is_written(node) or (
            is_list and any(user.target is not operator.getitem for user in node.users)
        ):
            return
        names = [argument.name for argument in underlying(node.target)._schema.arguments]
        args = tuple(self._argument(one, name, treatment, node) for one, name in zip(node.args, names, strict=False))
        kwargs = {name: self._argument(one, name, treatment, node) for name, one in node.kwargs.items()}
        if same_argument(args, node.args) and same_argument(kwargs, dict(node.kwargs)):
            return
        self.legalized.append(node.name)
        target: Any = node.target
        new = self.editor.call(target, args, kwargs, before=node, origins=node)
        for old, result in self._results(node, new):
            self._put(old, result, node)
        if is_list:
            self.editor.erase(node)

    def finish(self) -> LegalizeReport:
        """Take out what nothing uses any more, and report."""
        for node in self.passed:
            if not node._erased:
                self.editor.erase_unused(node)
        names = tuple(node.name for node in self.constants)
        self.editor.remove_inputs([node for node in self.constants if not node.users])
        casts = sum(node.op == "call_function" and not node._erased for node in self.made.values())
        return LegalizeReport(tuple(self.legalized), casts, names)

    def _argument(self, argument: Any, name: str, treatment: Treatment, before: Node) -> Any:
        def cast(node: Node) -> Node:
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                return node
            return self.cast(node, treatment.wanted(name, value.dtype), before)

        return map_arg(argument, cast)

    def cast(self, source: Node, dtype: torch.dtype, before: Node) -> Node:
        """Return a node with the value of `source` in a dtype."""
        value = source.meta["val"]
        if value.dtype == dtype:
            return source
        is_written = self.stored.is_written(source)
        known = self.made.get((source, dtype))
        if known is not None and not is_written:
            return known
        inner = None if is_written else self._behind(source, dtype)
        if inner is not None:
            self.passed[source] = None
            return self.cast(inner, dtype, before)
        made = self._stored_cast(source, dtype) or self._call(source, dtype, before)
        self.made[source, dtype] = made
        return made

    def _behind(self, source: Node, dtype: torch.dtype) -> Node | None:
        """Return what a cast was made from, if casting that gives the same as casting the cast."""
        if source.op != "call_function" or not has_trait(source.target, "cast"):
            return None
        inner, value = source.all_input_nodes[0], source.meta["val"]
        before = inner.meta["val"]
        is_same = same_argument(before.stride(), value.stride()) and not self.stored.is_written(inner)
        return inner if is_same and holds(value.dtype, before.dtype) and holds(dtype, before.dtype) else None

    def _stored_cast(self, source: Node, dtype: torch.dtype) -> Node | None:
        tensor = self.stored.tensor(source)
        if tensor is None:
            return None
        self.constants[source] = None
        name = f"{source.name}_{str(dtype).removeprefix('torch.')}"
        made = as_constant(tensor.detach().to(dtype), source.meta["val"])
        return self.editor.add_constant(made, name=name, origins=source)

    def _call(self, source: Node, dtype: torch.dtype, before: Node) -> Node:
        target, options = _cast_call(before, source.meta["val"])
        kwargs = {"dtype": dtype, **options}
        return self.editor.call(target, (source,), kwargs, before=before, origins=before)

    def _results(self, node: Node, new: Node) -> list[tuple[Node, Node]]:
        """Return the old results and the new ones, one by one."""
        if isinstance(node.meta["val"], torch.Tensor):
            return [(node, new)]
        return [
            (user, self.editor.call(operator.getitem, (new, user.args[1]), before=user, origins=user))
            for user in list(node.users)
        ]

    def _put(self, old: Node, new: Node, call: Node) -> None:
        value = old.meta["val"]
        if new.meta["val"].dtype != value.dtype:
            target, options = _cast_call(call, value)
            made = self.editor.call(target, (new,), {"dtype": value.dtype, **options}, before=old, origins=old)
            self.made[new, value.dtype] = new = made
        self.editor.replace(old, new)
        self.editor.erase(old)


def _cast_call(call: Node, value: torch.Tensor) -> tuple[Any, dict[str, Any]]:
    """Return the operator that casts in the dialect of a call, and the arguments that give the layout of a value."""
    if isinstance(call.target, EdgeOpOverload):
        order = list(dim_order_from_stride(value.stride(), value.shape))
        return ops.edge.dim_order_ops._to_dim_order_copy.default, {"dim_order": order}
    return torch.ops.aten._to_copy.default, {}


@cache
def holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Whether every value of one dtype survives a cast to another and back."""
    if wide == narrow:
        return True
    if not {wide, narrow} <= set(DTYPES.values()) or wide is torch.bool:
        return False
    if narrow is torch.bool:
        return True
    if narrow.is_complex and not wide.is_complex:
        return False
    wide, narrow = wide.to_real(), narrow.to_real()
    if narrow.is_floating_point:
        return wide.is_floating_point and _float_holds(torch.finfo(wide), torch.finfo(narrow))
    limits = torch.iinfo(narrow)
    if not wide.is_floating_point:
        return torch.iinfo(wide).min <= limits.min and limits.max <= torch.iinfo(wide).max
    # Whole numbers are exact as far as the significand reaches.
    return max(-limits.min, limits.max) <= 2 / torch.finfo(wide).eps


def _float_holds(wide: torch.finfo, narrow: torch.finfo) -> bool:
    return wide.eps <= narrow.eps and wide.max >= narrow.max and wide.tiny * wide.eps <= narrow.tiny * narrow.eps
