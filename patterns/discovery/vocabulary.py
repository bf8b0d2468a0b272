"""Vocabularies: of which variables, operators and literals graphs are enumerated."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, Field, model_validator

from exirkit.ir import DocumentCodes, ModelError, OpOverload, UsageError, read_document, read_text
from exirkit.patterns.books.model import Strict
from exirkit.patterns.operators.table import OperatorTable, UnknownNameError

_FOLDER = "discovery/vocabularies"
_CODES = DocumentCodes("EK283", "EK283")
_TYPE = re.compile(r"f32(\+?) \[([\w*, ]*)\]")
_MOST_SAMPLED = 1 << 16
_MOST_MEASURED = 1 << 24
_HOLE = "_"
# Results do not depend on the order of the first two arguments.
_COMMUTATIVE = {"aten.add.Tensor", "aten.mul.Tensor", "aten.maximum.default", "aten.minimum.default"}
# Arguments that say which elements are taken; other integers are dims, which say how shapes depend on each other.
_PLACES = ("index", "start", "end")
Size = Annotated[int, Field(ge=1)]
Sizes = tuple[Size, ...]
Literal = tuple[str, float | int]
"""Type and value of a number in a call."""


@dataclass(frozen=True)
class Template:
    """A call whose tensors are left open: `aten.amax.default(_, [0], True)`.

    Attributes:
        text: As it was written.
        name: Of the operator.
        op: The operator.
        args: Its arguments; `_` where a tensor is left open.
    """

    text: str
    name: str
    op: OpOverload
    args: tuple[Any, ...]

    @cached_property
    def arity(self) -> int:
        """How many tensors are left open."""
        return self.args.count(_HOLE)

    @cached_property
    def is_commutative(self) -> bool:
        """Whether the order of its two tensors does not matter."""
        return self.name in _COMMUTATIVE and self.args == (_HOLE, _HOLE)

    @cached_property
    def literals(self) -> Mapping[int, Literal]:
        """By place, the numbers that rules may leave open: floats, and where a slice begins and ends."""
        names = [one.name for one in self.op._schema.arguments]
        return {
            place: (type(one).__name__, one)
            for place, one in enumerate(self.args)
            if isinstance(one, float) or (names[place] in _PLACES and type(one) is int)
        }

    def filled(self, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with tensors in the open places."""
        given = iter(tensors)
        return tuple(next(given) if one == _HOLE else one for one in self.args)

    def __hash__(self) -> int:
        return hash(self.text)


def _template(text: str) -> Template:
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} is not a call") from error
    if not isinstance(call, ast.Call) or call.keywords:
        raise ValueError(f"{text!r} is not a call with arguments by position")
    name = ast.unparse(call.func)
    op = _operator(name)
    count = len(op._schema.arguments)
    if len(call.args) > count:
        raise ValueError(f"{text!r} has more arguments than {name}, which has {count}")
    args: list[Any] = []
    for one in call.args:
        if isinstance(one, ast.Name) and one.id == _HOLE:
            args.append(_HOLE)
            continue
        try:
            args.append(ast.literal_eval(one))
        except ValueError as error:
            raise ValueError(f"{ast.unparse(one)} of {text!r} is neither `_` nor a literal") from error
    made = Template(text, name, op, tuple(args))
    if made.arity not in (1, 2):
        raise ValueError(f"{text!r} leaves {made.arity} tensors open: one or two `_` are meant")
    return made


def _operator(name: str) -> OpOverload:
    """Return an operator that graphs may call: it gives one tensor, and does nothing else."""
    try:
        op = OperatorTable().find(name)
    except UnknownNameError as error:
        raise ValueError(error.message) from error
    if not isinstance(op, OpOverload) or op._schema.is_mutable or torch.Tag.nondeterministic_seeded in op.tags:
        raise ValueError(f"{name} writes, draws random numbers, or is control flow")
    if [str(one.type) for one in op._schema.returns] != ["Tensor"]:
        raise ValueError(f"{name} does not return one tensor")
    return op


def _checked(text: str) -> str:
    """Return the text of a call that graphs may have."""
    _template(text)
    return text


def _named(name: str) -> str:
    """Return the name of a variable."""
    # Intermediate results and numbers of the rules that are found have such names.
    if not name.isidentifier() or re.fullmatch(r"[tfi]\d+|_", name):
        raise ValueError(f"{name!r} cannot be the name of a variable")
    return name


def _typed(text: str) -> str:
    """Return the type of a variable."""
    if not _TYPE.fullmatch(text):
        raise ValueError(f"{text!r} is not a type of float32 tensors, such as `f32 [M, N]`")
    return text


VariableName = Annotated[str, AfterValidator(_named)]


class Vocabulary(Strict):
    """What graphs are made of.

    Attributes:
        vocabulary: Version of the form: 1.
        name: Name of the vocabulary, and the beginning of the ids of its rules.
        doc: What it is about.
        sizes: Three values of each name of a size, lists for `*S`: two for samples, and one for what calls cost.
        variables: Types of tensors, as in rules: `f32 [M, N]`, `f32+ [*S]`.
        operators: Calls, with `_` where a tensor is left open.
    """

    vocabulary: int = Field(ge=1, le=1)
    name: Annotated[str, Field(pattern=r"^[a-z][a-z_]*$")]
    doc: str
    sizes: dict[str, tuple[Size | Sizes, Size | Sizes, Size | Sizes]]
    variables: dict[VariableName, Annotated[str, AfterValidator(_typed)]] = Field(min_length=1)
    operators: tuple[Annotated[str, AfterValidator(_checked)], ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _is_complete(self) -> Vocabulary:
        for name in self.variables:
            for place, most in enumerate((_MOST_SAMPLED, _MOST_SAMPLED, _MOST_MEASURED)):
                if math.prod(self.shape(name, place)) > most:
                    raise ValueError(f"{name} has more than {most:,} elements in place {place} of `sizes`")
        return self

    def is_positive(self, name: str) -> bool:
        """Whether the elements of a variable are greater than zero."""
        return self._type(name)[1] == "+"

    def shape(self, name: str, place: int) -> Sizes:
        """Return the sizes of a variable: 0 and 1 for samples, 2 for what calls cost."""
        made: list[int] = []
        for dim in filter(None, (one.strip() for one in self._type(name)[2].split(","))):
            if dim.isdigit():
                made.append(int(dim))
                continue
            if dim not in self.sizes:
                raise ValueError(f"`sizes` says nothing of {dim}")
            size = self.sizes[dim][place]
            if isinstance(size, int) == dim.startswith("*"):
                raise ValueError(f"{dim} is {size}: sizes that begin with * are lists, and others numbers")
            made += [size] if isinstance(size, int) else size
        return tuple(made)

    def _type(self, name: str) -> re.Match[str]:
        found = _TYPE.fullmatch(self.variables[name])
        assert found is not None, "the form says so"
        return found

    @cached_property
    def templates(self) -> tuple[Template, ...]:
        """The calls of `operators`."""
        return tuple(map(_template, self.operators))


def shipped_vocabularies() -> tuple[str, ...]:
    """Return the names of the vocabularies that come with exirkit."""
    folder = files("exirkit.patterns").joinpath(_FOLDER)
    return tuple(sorted(each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml")))


def read_vocabulary(path: str | Path) -> Vocabulary:
    """Read a vocabulary.

    Args:
        path: YAML file, or a name as in `shipped_vocabularies()`.

    Raises:
        UsageError: EK283, it is none.
        OSError: It cannot be read.
    """
    name = str(path)
    try:
        if name in shipped_vocabularies():
            text = files("exirkit.patterns").joinpath(_FOLDER, f"{name}.yaml").read_text(encoding="utf-8")
        else:
            text = read_text(path, _CODES.syntax)
        return read_document(text, Vocabulary, _CODES, file=name).model
    except ModelError as error:
        raise UsageError(error.diagnostics) from None


def samples(vocabulary: Vocabulary, place: int, seed: int) -> Mapping[str, torch.Tensor]:
    """Return values of the variables, in double precision; zero, one and numbers of both signs are among them."""
    generator = torch.Generator().manual_seed(1000 * seed + place)
    found = {}
    for name in vocabulary.variables:
        values = 2 * torch.randn(vocabulary.shape(name, place), generator=generator, dtype=torch.float64)
        if vocabulary.is_positive(name):
            values = values.abs() + 0.01
        elif values.numel() > 2:
            values.view(-1)[0], values.view(-1)[-1] = 0.0, 1.0
        found[name] = values
    return found
