"""From a file to a propagation that can be tried and solved: names looked up, expressions compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import Any

import torch

from exirkit.ir import (
    Diagnostic,
    ModelError,
    SourceText,
    YamlPath,
    YamlSource,
    did_you_mean,
)
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import ExpressionError
from exirkit.patterns.syntax.programs import Program
from exirkit.patterns.syntax.terms import Operator

from .compilation import DeclarationCompiler, DrawnCall, Expression, holds_tensors, is_plain
from .inference import Answers, Inference
from .model import SAME, PropagationModel, TransferRow, WrittenAttribute


@dataclass(frozen=True)
class Transfer:
    """A compiled row.

    Attributes:
        model: As it was written.
        number: Its place in the file, from 1.
        text: What diagnostics about it point at.
        ops: Its operators.
        where: Conditions over arguments and `result`.
        adapt: New values of arguments, by name.
        call: Program that makes the call; None for the operator itself.
        cost: Cost of the call by value.
    """

    model: TransferRow
    number: int
    text: SourceText
    ops: tuple[Operator, ...]
    where: tuple[Expression, ...]
    adapt: Mapping[str, Expression]
    call: Program | None
    cost: Mapping[str, Expression]

    @property
    def is_choice(self) -> bool:
        """Whether the solver chooses a value for each call."""
        return SAME in self.written()

    def written(self) -> Iterator[str]:
        """Yield the values that the row names, and `same`."""
        args = self.model.args
        yield from (args,) if isinstance(args, str) else args.values()
        if self.model.result is not None:
            yield self.model.result

    def of_argument(self, name: str, first: str) -> str:
        """Return what the row says of a tensor argument: a value, or `same`."""
        args = self.model.args
        return args if isinstance(args, str) else args.get(name, first)

    def place(self) -> str:
        """Return where it stands: `FILE:LINE`."""
        at = self.text.location()
        return f"{at.file}:{at.line}"


@dataclass
class Propagation:
    """A propagation whose names are known and whose expressions are compiled.

    Attributes:
        model: As it was written.
        source: The file and its places.
        names: Values, the first one first.
        of: Which tensors can have another value.
        neutral: Which tensors are the same under every value.
        recorded: Conditions by value.
        rows: Transfer rows.
        draws: How trials make calls, by operator.
        conversions: Programs by pair of values.
        cost: Cost of converting `x`.
        found: What is wrong.
        delegates: Rows of calls of delegates.
        uses: The analysis that infers what is asked of tensors.
        fields: Fields of the attribute that is written.
        facts: Returns what is known of a tensor, or of a node of the graph that is solved.
    """

    model: PropagationModel
    source: YamlSource
    names: tuple[str, ...]
    found: list[Diagnostic] = field(default_factory=list)
    of: Expression | None = None
    neutral: Expression | None = None
    recorded: dict[str, Expression] = field(default_factory=dict)
    rows: list[Transfer] = field(default_factory=list)
    draws: dict[Operator, DrawnCall] = field(default_factory=dict)
    conversions: dict[tuple[str, str], Program] = field(default_factory=dict)
    cost: Expression | None = None
    delegates: list[Transfer] = field(default_factory=list)
    uses: Inference | None = None
    fields: dict[str, Expression] = field(default_factory=dict)
    facts: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        self.rows_of: dict[Operator, list[Transfer]] = {}

    @property
    def first(self) -> str:
        """The value of tensors as they are."""
        return self.names[0]

    @property
    def is_valid(self) -> bool:
        """Whether nothing is wrong with its form; trials are another matter."""
        return not self.found

    def require_valid(self) -> Propagation:
        """Return the propagation itself.

        Raises:
            ModelError: All that is wrong.
        """
        if self.found:
            raise ModelError(self.found)
        return self

    def constants(self, value: str) -> dict[str, Any]:
        """Return the constants of a value, and its name as `value`."""
        return {**self.model.values[value], "value": value}

    @property
    def elements(self) -> Callable[[torch.Tensor, Random], torch.Tensor] | None:
        """What makes elements for trials of which something is known."""
        return None if self.uses is None else self.uses.domain.drawn

    @cached_property
    def lies_as_recorded(self) -> bool:
        """Whether tensors of a converted program are recorded to lie in memory as their values say."""
        return self.model.compare != "elements" and not any(row.model.compare for row in self.rows)

    def extend(self, base: Propagation) -> None:
        """Add rows and draws of the propagation that this one is based on, behind its own."""
        # A row without conditions leaves no calls of its operators to those of the base.
        taken = {op for row in self.rows if not row.where for op in row.ops}
        for row in base.rows:
            ops = tuple(op for op in row.ops if op not in taken)
            if ops:
                self.rows.append(replace(row, ops=ops))
                for op in ops:
                    self.rows_of.setdefault(op, []).append(self.rows[-1])
        self.delegates += base.delegates
        self.draws = {**base.draws, **self.draws}

    def knowing(self, facts: Callable[[Any], Any] | None) -> Propagation:
        """Return the propagation with other facts of tensors."""
        made = copy(self)
        made.facts = facts
        return made

    def answered(self, names: Mapping[str, Any], known: Mapping[int, Any] | None = None) -> dict[str, Any]:
        """Return names for expressions, with what is known of tensors; of some by identity, where it is given."""
        return {**names, FACTS: Answers(known or {}, self.facts)}

    def fact(self, x: Any) -> Any:
        """Return what is known of a tensor, or a node; None where nothing is inferred."""
        return None if self.facts is None else self.facts(x)

    def covers(self, x: Any) -> bool:
        """Whether a tensor, or a node, can have a value other than the first."""
        return self.of is not None and self.of.holds(self.answered({"x": x}))

    def is_neutral(self, x: Any) -> bool:
        """Whether a tensor, or a node, is the same under every value."""
        return self.neutral is not None and self.neutral.holds(self.answered({"x": x}))

    def recorded_value(self, x: Any) -> str:
        """Return the value that a tensor of the program has before anything is converted."""
        return next((value for value, one in self.recorded.items() if one.holds(self.answered({"x": x}))), self.first)

    def written(self, value: str) -> dict[str, Any] | None:
        """Return the fields of the attribute that a tensor at a value gets; None if it gets none."""
        if value == self.first or not self.fields:
            return None
        return {name: one.value(self.constants(value)) for name, one in self.fields.items()}

    def way(self, one: str, other: str) -> list[Program]:
        """Return the programs that convert from one value to another; through the first value if it must be."""
        if one == other:
            return []
        direct = self.conversions.get((one, other))
        if direct is not None:
            return [direct]
        return [self.conversions[one, self.first], self.conversions[self.first, other]]


def compile_propagation(model: PropagationModel, source: YamlSource, base: Propagation | None = None) -> Propagation:
    """Compile a propagation; what is wrong beyond its form is in `found`.

    Args:
        model: As it was written, with what it leaves out as in `base`.
        source: The file and its places.
        base: The propagation that it is based on: its rows and draws come behind those of the model.
    """
    made = Propagation(model, source, tuple(model.values))
    _Compiler(made).compile()
    if base is not None:
        made.extend(base)
    return made


class _Compiler:
    def __init__(self, made: Propagation) -> None:
        self._made = made
        self._model = made.model
        self._source = made.source
        self._of = DeclarationCompiler(made.source, made.found)
        self._constants = {name for one in made.model.values.values() for name in one} | {"value"}

    def compile(self) -> None:
        made, model = self._made, self._model
        self._of.define_operators(model.ops)
        made.of = self._of.expression(("of",), model.of, {"x"})
        if model.neutral is not None:
            made.neutral = self._of.expression(("neutral",), model.neutral, {"x"})
        made.cost = self._of.expression(("cost",), model.cost, {"x"})
        for value, text in model.recorded.items():
            self._known_value(("recorded", value), value, is_key=True)
            compiled = self._of.expression(("recorded", value), text, {"x"})
            if compiled is not None:
                made.recorded[value] = compiled
        self._conversions()
        for number, row in enumerate(model.transfer):
            self._row(number, row)
        for name, draw in model.draw.items():
            drawn = self._of.draw(name, draw)
            if drawn is not None:
                made.draws[drawn[0]] = drawn[1]
        if model.write is not None:
            self._written(model.write)
        if model.solve == "cut" and len(made.names) != 2:
            count = len(made.names)
            message = f"`solve: cut` chooses between two values, and there are {count}"
            self._of.complain(("solve",), "EK296", message, "write `solve: forward`, `backward` or `local`")
        self._of.in_order()

    def _known_value(self, path: YamlPath, value: str, *, is_key: bool = False, may_be_same: bool = False) -> bool:
        known = (*self._made.names, SAME) if may_be_same else self._made.names
        if value in known:
            return True
        hint = did_you_mean(value, known) or f"values are {', '.join(known)}"
        self._of.complain(path, "EK291", f"{value!r} is not a value", hint, is_key=is_key)
        return False

    # Materialisation

    def _conversions(self) -> None:
        made = self._made
        for direction, written in self._model.materialise.items():
            one, other = direction.split(" -> ")
            path = ("materialise", direction)
            is_known = [self._known_value(path, value, is_key=True) for value in (one, other)]
            if one == other:
                self._of.complain(path, "EK291", f"nothing converts from {one} to itself", is_key=True)
            program = self._of.program(path, written, {"x"})
            if program is not None and all(is_known):
                made.conversions[one, other] = program
        for value in made.names[1:]:
            for pair in ((made.first, value), (value, made.first)):
                if pair not in made.conversions and f"{pair[0]} -> {pair[1]}" not in self._model.materialise:
                    message = f"there is no way from {pair[0]} to {pair[1]}"
                    hint = f'add "{pair[0]} -> {pair[1]}: return ..."'
                    self._of.complain(("materialise",), "EK291", message, hint, is_key=True)

    def _written(self, write: WrittenAttribute) -> None:
        for name, text in write.fields.items():
            path = ("write", "fields", name)
            compiled = self._of.expression(path, text, self._constants)
            if compiled is None:
                continue
            self._made.fields[name] = compiled
            for value in self._made.names[1:]:
                try:
                    problem = None if is_plain(compiled.value(self._made.constants(value))) else "is not plain data"
                except (ExpressionError, TypeError) as error:
                    problem = f"cannot be computed: {error}"
                if problem is not None:
                    self._of.complain(path, "EK259", f"field {name} at {value} {problem}")

    # Rows

    def _row(self, number: int, row: TransferRow) -> None:
        path = ("transfer", number)
        if row.delegates:
            self._delegates(path, number, row)
            return
        ops = self._of.operators(path, row.ops, row.family)
        if ops is None:
            return
        arguments = self._arguments(path, row, ops)
        before = len(self._made.found)
        self._check_values(path, row, arguments)
        names = {*arguments, "result"}
        where = [
            self._of.expression((*path, "where") if len(row.where) == 1 else (*path, "where", at), text, names)
            for at, text in enumerate(row.where)
        ]
        own = {*arguments, *self._constants}
        adapt = {name: self._of.expression((*path, "adapt", name), text, own) for name, text in row.adapt.items()}
        cost = {name: self._of.expression((*path, "cost", name), text, names) for name, text in row.cost.items()}
        call = None if row.call is None else self._of.program((*path, "call"), row.call, own)
        if len(self._made.found) > before:
            return
        compiled = Transfer(
            row,
            number + 1,
            self._source.text(path),
            ops,
            tuple(one for one in where if one is not None),
            {name: one for name, one in adapt.items() if one is not None},
            call,
            {name: one for name, one in cost.items() if one is not None},
        )
        self._made.rows.append(compiled)
        for op in ops:
            self._made.rows_of.setdefault(op, []).append(compiled)

    def _delegates(self, path: YamlPath, number: int, row: TransferRow) -> None:
        if self._model.compare != "places":
            message = "what a delegate computes cannot be tried: rows of delegates are for `compare: places`"
            self._of.complain((*path, "delegates"), "EK291", message, is_key=True)
        self._check_values(path, row, {})
        text = self._source.text(path)
        self._made.delegates.append(Transfer(row, number + 1, text, (), (), {}, None, {}))

    def _arguments(self, path: YamlPath, row: TransferRow, ops: tuple[Operator, ...]) -> dict[str, bool]:
        """Return which arguments all operators of a row have, and whether they are tensors."""
        each = [{one.name: holds_tensors(one) for one in op._schema.arguments} for op in ops]
        shared = {name: kind for name, kind in each[0].items() if all(name in one for one in each)}
        args = {} if isinstance(row.args, str) else row.args
        for key, names in (("args", args), ("adapt", row.adapt)):
            for name in names:
                if name not in shared:
                    lacking = next(name_of(op) for op, one in zip(ops, each, strict=True) if name not in one)
                    hint = did_you_mean(name, shared) or f"there are {', '.join(shared)}"
                    self._of.complain(
                        (*path, key, name), "EK291", f"{lacking} has no argument {name!r}", hint, is_key=True
                    )
                elif shared[name] == (key == "adapt"):
                    what = "is a tensor, which conversions adapt" if key == "adapt" else "is not a tensor"
                    self._of.complain((*path, key, name), "EK291", f"argument {name!r} {what}", is_key=True)
        return shared

    def _check_values(self, path: YamlPath, row: TransferRow, arguments: Mapping[str, bool]) -> None:
        if isinstance(row.args, str):
            self._known_value((*path, "args"), row.args, may_be_same=True)
        else:
            for name, value in row.args.items():
                self._known_value((*path, "args", name), value, may_be_same=True)
        if row.result is not None:
            self._known_value((*path, "result"), row.result, may_be_same=True)
        args = (row.args,) if isinstance(row.args, str) else tuple(row.args.values())
        for name in row.cost:
            self._known_value((*path, "cost", name), name, is_key=True)
        if row.cost and SAME not in (*args, row.result):
            self._of.complain((*path, "cost"), "EK291", "costs are for rows with `same`", is_key=True)
        if row.call is not None and row.adapt:
            self._of.complain((*path, "adapt"), "EK291", "`call` says all of the call; leave out `adapt`", is_key=True)
