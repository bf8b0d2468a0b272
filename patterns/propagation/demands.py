"""Analyses that demand: what of a tensor makes a difference for its users, from the results backwards.

What is needed of a tensor is a range: numbers beyond it may as well be its limits. Two tensors that are equal when they
are cut to the range are the same for all users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch

from exirkit.ir import Diagnostic, ModelError, SourceText, YamlPath, YamlSource, did_you_mean, value_of
from exirkit.patterns.functions.ranges import Range, widest
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import ExpressionError
from exirkit.patterns.syntax.programs import Program
from exirkit.patterns.syntax.terms import Operator

from .compilation import DeclarationCompiler, DrawnCall, Expression, holds_tensors
from .domains import RANGES
from .fitting import slots_of
from .inference import Answers
from .model import DemandModel, NeedRow, ShorterCall

NEED = "need"
"""What rows call that which is needed of the result."""


@dataclass(frozen=True)
class Need:
    """A compiled row.

    Attributes:
        model: As it was written.
        number: Its place in the file, from 1.
        text: What diagnostics about it point at.
        ops: Its operators.
        where: Conditions over arguments, `result` and `need`.
        needs: What is needed of arguments, by name.
    """

    model: NeedRow
    number: int
    text: SourceText
    ops: tuple[Operator, ...]
    where: tuple[Expression, ...]
    needs: Mapping[str, Expression]

    def place(self) -> str:
        """Return where it stands: `FILE:LINE`."""
        at = self.text.location()
        return f"{at.file}:{at.line}"


@dataclass(frozen=True)
class Shorter:
    """What calls can be replaced by, compiled.

    Attributes:
        model: As it was written.
        number: Its place in the file, behind the rows.
        text: What diagnostics about it point at.
        ops: Its operators.
        where: Conditions over arguments, `result` and `need`.
        call: Program that makes what the call is replaced by.
    """

    model: ShorterCall
    number: int
    text: SourceText
    ops: tuple[Operator, ...]
    where: tuple[Expression, ...]
    call: Program

    def place(self) -> str:
        """Return where it stands: `FILE:LINE`."""
        at = self.text.location()
        return f"{at.file}:{at.line}"


@dataclass
class Demands:
    """An analysis that demands, whose names are known and whose expressions are compiled.

    Attributes:
        model: As it was written.
        source: The file and its places.
        found: What is wrong.
        rows: What calls need.
        shorter: What calls can be replaced by.
        draws: How trials make calls, by operator.
    """

    model: DemandModel
    source: YamlSource
    found: list[Diagnostic] = field(default_factory=list)
    rows: list[Need] = field(default_factory=list)
    shorter: list[Shorter] = field(default_factory=list)
    draws: dict[Operator, DrawnCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows_of: dict[Operator, list[Need]] = {}
        self.shorter_of: dict[Operator, list[Shorter]] = {}

    @property
    def elements(self) -> Callable[[torch.Tensor, Random], torch.Tensor]:
        """What makes elements for trials."""
        return RANGES.drawn

    def covers(self, x: Any) -> bool:
        """Whether something can be needed of a tensor."""
        return isinstance(value_of(x), torch.Tensor)

    def require_valid(self) -> Demands:
        """Return the analysis itself.

        Raises:
            ModelError: All that is wrong.
        """
        if self.found:
            raise ModelError(self.found)
        return self

    def needs(
        self, op: Operator, named: Mapping[str, Any], result: Any, need: Range
    ) -> tuple[Need | None, dict[tuple[str, int | None], Range]]:
        """Return the row of a call, and what it needs of its tensor arguments, by name and place in a list.

        Args:
            op: Operator.
            named: All arguments by name: tensors, or nodes.
            result: What the call gives: a tensor, or a node; the first one of several.
            need: What is needed of it.
        """
        slots = {(one.name, one.index): value_of(one.tensor) for one in slots_of(op, named)}
        found = {key: widest(value.dtype) for key, value in slots.items()}
        names = {**named, "result": result, NEED: need, FACTS: Answers({})}
        row = next((one for one in self.rows_of.get(op, ()) if all(each.holds(names) for each in one.where)), None)
        for key, value in slots.items() if row is not None else ():
            expression = row.needs.get(key[0]) if row is not None else None
            if expression is None or value.dtype.is_complex:
                continue
            try:
                found[key] = RANGES.of_result(expression.value(names), value, may_be_nan=True)
            except (ExpressionError, TypeError, ValueError, ArithmeticError):
                # Where an expression has no value, as for sizes that vary, everything is needed.
                continue
        return row, found

    def shorter_call(self, op: Operator, named: Mapping[str, Any], result: Any, need: Range) -> Shorter | None:
        """Return what a call can be replaced by, or None."""
        names = {**named, "result": result, NEED: need, FACTS: Answers({})}
        fitting = (one for one in self.shorter_of.get(op, ()) if all(each.holds(names) for each in one.where))
        return next(fitting, None)


def cut(tensor: torch.Tensor, need: Range) -> torch.Tensor:
    """Return a tensor with what is needed of it: numbers beyond the range are its limits."""
    if tensor.dtype.is_complex or tensor.dtype == torch.bool:
        return tensor
    return torch.clamp(tensor, need.lo, need.hi)


def compile_demands(model: DemandModel, source: YamlSource) -> Demands:
    """Compile an analysis that demands; what is wrong with it is in `found`."""
    made = Demands(model, source)
    compiler = DeclarationCompiler(source, made.found)
    compiler.define_operators(model.ops)
    for number, row in enumerate(model.transfer):
        _row(made, compiler, number, row)
    for number, one in enumerate(model.shorten):
        _shorter(made, compiler, number, one)
    for name, draw in model.draw.items():
        drawn = compiler.draw(name, draw)
        if drawn is not None:
            made.draws[drawn[0]] = drawn[1]
    compiler.in_order()
    return made


def _row(made: Demands, compiler: DeclarationCompiler, number: int, row: NeedRow) -> None:
    path: YamlPath = ("transfer", number)
    before = len(made.found)
    ops = compiler.operators(path, row.ops, row.family)
    if ops is None:
        return
    shared = _shared(ops)
    names = {*shared, "result", NEED}
    where = _conditions(compiler, path, row.where, names)
    needs = {}
    for name, text in row.needs.items():
        if not shared.get(name):
            what = "is not a tensor" if name in shared else f"is not one of {name_of(ops[0])}"
            hint = did_you_mean(name, [one for one, is_tensor in shared.items() if is_tensor])
            compiler.complain((*path, "needs", name), "EK291", f"argument {name!r} {what}", hint, is_key=True)
        needs[name] = compiler.expression((*path, "needs", name), text, names)
    if len(made.found) > before:
        return
    found = {name: one for name, one in needs.items() if one is not None}
    compiled = Need(row, number + 1, compiler.source.text(path), ops, where, found)
    made.rows.append(compiled)
    for op in ops:
        made.rows_of.setdefault(op, []).append(compiled)


def _shorter(made: Demands, compiler: DeclarationCompiler, number: int, one: ShorterCall) -> None:
    path: YamlPath = ("shorten", number)
    before = len(made.found)
    ops = compiler.operators(path, one.ops, ())
    if ops is None:
        return
    shared = _shared(ops)
    where = _conditions(compiler, path, one.where, {*shared, "result", NEED})
    program = compiler.program((*path, "call"), one.call, set(shared))
    for op in ops:
        if [str(each.type) for each in op._schema.returns] != ["Tensor"] or op._schema.is_mutable:
            compiler.complain((*path, "ops"), "EK291", f"{name_of(op)} does not just give one tensor")
    if len(made.found) > before or program is None:
        return
    number += len(made.model.transfer) + 1
    compiled = Shorter(one, number, compiler.source.text(path), ops, where, program)
    made.shorter.append(compiled)
    for op in ops:
        made.shorter_of.setdefault(op, []).append(compiled)


def _shared(ops: Sequence[Operator]) -> dict[str, bool]:
    """Return which arguments all operators have, and whether they are tensors."""
    each = [{one.name: holds_tensors(one) for one in op._schema.arguments} for op in ops]
    return {name: kind for name, kind in each[0].items() if all(name in one for one in each)}


def _conditions(
    compiler: DeclarationCompiler, path: YamlPath, texts: Sequence[str], names: set[str]
) -> tuple[Expression, ...]:
    places = [(*path, "where") if len(texts) == 1 else (*path, "where", at) for at in range(len(texts))]
    found = (compiler.expression(place, text, names) for place, text in zip(places, texts, strict=True))
    return tuple(one for one in found if one is not None)
