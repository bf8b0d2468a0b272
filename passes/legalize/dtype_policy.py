"""Which dtypes operators compute in, as data: a list of operators with the dtypes that their arguments are to have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from torch._ops import OpOverload

from exirkit.ir import (
    DefinedOperator,
    Diagnostic,
    DocumentCodes,
    ModelError,
    UsageError,
    YamlPath,
    YamlSource,
    has_trait,
    read_document,
    read_text,
)
from exirkit.patterns import (
    FAMILIES,
    OperatorTable,
    UnknownNameError,
    operators_with,
)

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
        ModelError: EK441, the file is no policy; EK442, it names operators or arguments that do not exist.
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
        return Diagnostic(code="EK442", message=message, hint=hint)
    text = source.key(path) if path[-2] == "arguments" else source.text(path)
    return text.diagnostic("EK442", message, length=len(written), hint=hint)
