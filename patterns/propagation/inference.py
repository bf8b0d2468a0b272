"""Analyses that infer: from a file to rows that say what follows for the results of a call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from exirkit.ir import Diagnostic, ModelError, SourceText, YamlPath, YamlSource, is_static, value_of
from exirkit.patterns.functions.grids import Elements, Grid
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import ExpressionError
from exirkit.patterns.syntax.terms import Operator

from .compilation import DeclarationCompiler, DrawnCall, Expression
from .domains import DOMAINS, Constant, Domain
from .draws import FAILURES
from .fitting import called, slots_of, with_tensors
from .model import ClaimRow, InferenceModel

_READ = re.compile(r"\belements\(\s*(\w+)\s*\)")


class Answers:
    """Answers what is known of tensors, or nodes, to the words of rows.

    Args:
        known: Facts by identity.
        otherwise: Returns the fact of a tensor that is not among them.
    """

    def __init__(self, known: Mapping[int, Any], otherwise: Callable[[Any], Any] | None = None) -> None:
        self._known = known
        self._otherwise = otherwise

    def value_range(self, x: Any) -> Any:
        """Return the fact of a tensor.

        Raises:
            TypeError: Nothing is known of it.
        """
        if id(x) in self._known:
            return self._known[id(x)]
        if self._otherwise is None:
            raise TypeError("nothing is known of tensors here: say under `uses` which analysis knows it")
        return self._otherwise(x)

    def grid(self, x: Any) -> Any:
        """Return the grid of a tensor.

        Raises:
            TypeError: None is known.
        """
        found = self.value_range(x)
        if not isinstance(found, Grid):
            raise TypeError("no grid is known of the tensor")
        return found

    def elements(self, x: Any) -> list[Any]:
        """Return the elements of a stored tensor.

        Raises:
            TypeError: They are not known.
        """
        found = self.value_range(x)
        if not isinstance(found, Elements):
            raise TypeError("the elements of the tensor are not known")
        return list(found.numbers)


@dataclass(frozen=True)
class Claim:
    """A compiled row.

    Attributes:
        model: As it was written.
        number: Its place in the file, from 1.
        text: What diagnostics about it point at.
        ops: Its operators.
        where: Conditions over arguments and `result`.
        result: What is known of the results.
        nan: Condition under which results may be not a number although no argument is.
    """

    model: ClaimRow
    number: int
    text: SourceText
    ops: tuple[Operator, ...]
    where: tuple[Expression, ...]
    result: tuple[Expression, ...]
    nan: Expression | None

    def place(self) -> str:
        """Return where it stands: `FILE:LINE`."""
        at = self.text.location()
        return f"{at.file}:{at.line}"


@dataclass
class Inference:
    """An analysis that infers, whose names are known and whose expressions are compiled.

    Attributes:
        model: As it was written.
        source: The file and its places.
        domain: What can be known.
        rows: Its rows.
        draws: How trials make calls, by operator.
        found: What is wrong.
    """

    model: InferenceModel
    source: YamlSource
    found: list[Diagnostic] = field(default_factory=list)
    rows: list[Claim] = field(default_factory=list)
    draws: dict[Operator, DrawnCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows_of: dict[Operator, list[Claim]] = {}

    @cached_property
    def domain(self) -> Domain:
        """What can be known."""
        return DOMAINS[self.model.values]

    @property
    def elements(self) -> None:
        """Nothing: trials of claims make elements of all calls, drawn as they may be."""
        return None

    def reads_elements(self, op: Operator) -> set[str]:
        """Return the arguments of which rows ask for each element, as for the scales of channels."""
        texts = (one.text.value for row in self.rows_of.get(op, ()) for one in (*row.where, *row.result))
        return {name for text in texts for name in _READ.findall(text)}

    def covers(self, x: Any) -> bool:
        """Whether something can be known of a tensor."""
        return isinstance(value_of(x), torch.Tensor)

    def require_valid(self) -> Inference:
        """Return the analysis itself.

        Raises:
            ModelError: All that is wrong.
        """
        if self.found:
            raise ModelError(self.found)
        return self

    def row_for(self, op: Operator, names: Mapping[str, Any]) -> Claim | None:
        """Return the first row that fits a call, or None."""
        return next((row for row in self.rows_of.get(op, ()) if all(one.holds(names) for one in row.where)), None)

    def infer(
        self, op: Operator, named: Mapping[str, Any], results: Sequence[Any], known: Mapping[int, Any]
    ) -> tuple[Claim | None, list[Any]]:
        """Return the row of a call, and what is known of its results.

        Args:
            op: Operator.
            named: All arguments by name: tensors, or nodes.
            results: What the call gives: tensors, real or without contents; None for what is not a tensor.
            known: Facts of the tensors among the arguments, by identity.
        """
        facts = [None if one is None else self.domain.unknown(one) for one in results]
        if not any(one is not None for one in results):
            return None, facts
        names = {**named, "result": results[0], FACTS: Answers(known)}
        row = self.row_for(op, names)
        if row is None:
            return None, facts
        if self.model.values == "constants":
            return row, self._computed(op, named, results, known, row) or facts
        may_be_nan = self.domain.is_lost(list(known.values())) or (
            row.nan is not None and not _is_false(row.nan, names)
        )
        # One expression speaks of every tensor of a list.
        claims = row.result * len(results) if str(op._schema.returns[0].type) == "List[Tensor]" else row.result
        for at, (one, expression) in enumerate(zip(results, claims, strict=False)):
            if one is None:
                continue
            try:
                facts[at] = self.domain.of_result(expression.value(names), one, may_be_nan=may_be_nan)
            except (ExpressionError, TypeError, ValueError, ArithmeticError):
                # Nothing follows where an expression has no value, as for sizes that vary.
                continue
        return row, facts

    def _computed(
        self, op: Operator, named: Mapping[str, Any], results: Sequence[Any], known: Mapping[int, Any], row: Claim
    ) -> list[Any] | None:
        """Return the results of a call whose arguments are known, as far as they decide; None if they are not."""
        if (
            any(one is None or not is_static(one) for one in results)
            or self._nbytes(results) > self.model.stored_nbytes
        ):
            return None
        tensors: dict[tuple[str, int | None], torch.Tensor] = {}
        for slot in slots_of(op, named):
            fact, value = known.get(id(slot.tensor)), value_of(slot.tensor)
            decides = row.model.given is None or slot.name in row.model.given
            if fact is None and (decides or not is_static(value)):
                return None
            # What does not decide may be anything of that form.
            form = torch.zeros(value.shape, dtype=value.dtype) if fact is None or not decides else fact.tensor
            tensors[slot.name, slot.index] = form
        try:
            made = called(op, with_tensors(named, tensors))
        except FAILURES:
            return None
        return [Constant(one) for one in (made if isinstance(made, list | tuple) else (made,))]

    @staticmethod
    def _nbytes(values: Sequence[torch.Tensor]) -> int:
        return sum(one.numel() * one.element_size() for one in values)


def _is_false(condition: Expression, names: Mapping[str, Any]) -> bool:
    try:
        return condition.value(names) is False
    except (ExpressionError, TypeError):
        return False


def compile_inference(model: InferenceModel, source: YamlSource) -> Inference:
    """Compile an analysis; what is wrong with it is in `found`."""
    made = Inference(model, source)
    compiler = DeclarationCompiler(source, made.found)
    compiler.define_operators(model.ops)
    for number, row in enumerate(model.transfer):
        _row(made, compiler, number, row)
    for name, draw in model.draw.items():
        drawn = compiler.draw(name, draw)
        if drawn is not None:
            made.draws[drawn[0]] = drawn[1]
    compiler.in_order()
    return made


def _row(made: Inference, compiler: DeclarationCompiler, number: int, row: ClaimRow) -> None:
    path: YamlPath = ("transfer", number)
    before = len(made.found)
    ops = compiler.operators(path, row.ops, row.family)
    if ops is None:
        return
    each = [{one.name for one in op._schema.arguments} for op in ops]
    names = [one.name for one in ops[0]._schema.arguments if all(one.name in other for other in each)] + ["result"]
    where = [compiler.expression(place, text, names) for place, text in _placed(path, "where", row.where)]
    result = [compiler.expression(place, text, names) for place, text in _placed(path, "result", row.result)]
    nan = None if row.nan is None else compiler.expression((*path, "nan"), row.nan, names)
    _check_kind(made, compiler, path, row, ops)
    if len(made.found) > before:
        return
    compiled = Claim(
        row,
        number + 1,
        compiler.source.text(path),
        ops,
        tuple(one for one in where if one is not None),
        tuple(one for one in result if one is not None),
        nan,
    )
    made.rows.append(compiled)
    for op in ops:
        made.rows_of.setdefault(op, []).append(compiled)


def _check_kind(
    made: Inference, compiler: DeclarationCompiler, path: YamlPath, row: ClaimRow, ops: Sequence[Operator]
) -> None:
    """Complain of what a row says that has no meaning for its kind of facts."""
    is_computed = made.model.values == "constants"
    if is_computed == bool(row.result):
        message = "constants are computed: leave out `result`" if is_computed else "a row says what is known: `result`"
        compiler.complain((*path, "result") if row.result else path, "EK291", message)
    if row.given is not None and not is_computed:
        compiler.complain((*path, "given"), "EK291", "`given` is for constants", is_key=True)
    for name in row.given or ():
        if not all(any(one.name == name for one in op._schema.arguments) for op in ops):
            compiler.complain((*path, "given"), "EK291", f"there is no argument {name!r}", is_key=True)
    for op in ops if is_computed else ():
        if op._schema.is_mutable:
            compiler.complain(path, "EK291", f"{name_of(op)} writes to an argument, and computes nothing")


def _placed(path: YamlPath, key: str, texts: Sequence[str]) -> list[tuple[YamlPath, str]]:
    """Return texts with their places: a list of one may be written without brackets."""
    return [((*path, key) if len(texts) == 1 else (*path, key, at), text) for at, text in enumerate(texts)]
