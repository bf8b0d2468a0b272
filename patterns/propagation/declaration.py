"""From a file to a propagation that can be tried and solved: names looked up, expressions compiled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from exirkit.ir import (
    Diagnostic,
    DocumentCodes,
    ModelError,
    SourceText,
    YamlPath,
    YamlSource,
    did_you_mean,
    read_document,
    read_text,
)
from exirkit.patterns.functions.words import WORDS
from exirkit.patterns.matching.compiled_rule import variables_of
from exirkit.patterns.operators.defined import define_operator
from exirkit.patterns.operators.table import FAMILIES, OperatorTable, UnknownNameError, name_of
from exirkit.patterns.syntax.expressions import Compiled, ExpressionCompiler, ExpressionError, parse_expression, truth
from exirkit.patterns.syntax.programs import Program, ProgramCalls, Scope, compile_program
from exirkit.patterns.syntax.terms import Operator
from exirkit.patterns.types.scalars import family_members

from .model import SAME, Draw, PropagationModel, TransferRow

SHIPPED = "propagations"


@dataclass(frozen=True)
class Expression:
    """A compiled expression.

    Attributes:
        text: As it was written, with its place.
        compute: Evaluates it over names.
    """

    text: SourceText
    compute: Compiled

    def value(self, names: Mapping[str, Any]) -> Any:
        """Return its value.

        Raises:
            ExpressionError: It has none for these names.
        """
        return self.compute(names)

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Return whether it is true as a condition; one that sizes leave open, or that has no value, is not."""
        try:
            return truth(self.compute(names)) is True
        except (ExpressionError, TypeError):
            return False


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


@dataclass(frozen=True)
class DrawnCall:
    """How trials make calls of an operator.

    Attributes:
        variables: Types by name.
        call: Program that makes the call.
        gen: Condition on the values.
    """

    variables: Mapping[str, Any]
    call: Program
    gen: str | None


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

    def covers(self, x: Any) -> bool:
        """Whether a tensor, or a node, can have a value other than the first."""
        return self.of is not None and self.of.holds({"x": x})

    def is_neutral(self, x: Any) -> bool:
        """Whether a tensor, or a node, is the same under every value."""
        return self.neutral is not None and self.neutral.holds({"x": x})

    def recorded_value(self, x: Any) -> str:
        """Return the value that a tensor of the program has before anything is converted."""
        return next((value for value, one in self.recorded.items() if one.holds({"x": x})), self.first)

    def way(self, one: str, other: str) -> list[Program]:
        """Return the programs that convert from one value to another; through the first value if it must be."""
        if one == other:
            return []
        direct = self.conversions.get((one, other))
        if direct is not None:
            return [direct]
        return [self.conversions[one, self.first], self.conversions[self.first, other]]


def shipped_propagations() -> tuple[str, ...]:
    """Return the names of the propagations that come with exirkit."""
    folder = files("exirkit.patterns").joinpath(SHIPPED)
    return tuple(sorted(one.name.removesuffix(".yaml") for one in folder.iterdir() if one.name.endswith(".yaml")))


@cache
def _shipped(name: str) -> Propagation:
    resource = files("exirkit.patterns").joinpath(SHIPPED, f"{name}.yaml")
    return parse_propagation(resource.read_text(encoding="utf-8"), f"{SHIPPED}/{name}.yaml")


def load_propagation(path: str | Path) -> Propagation:
    """Read a propagation.

    Args:
        path: YAML file, or a name as in `shipped_propagations()`.

    Raises:
        ModelError: EK290, it is not the YAML of a propagation.
        OSError: It cannot be read.
    """
    if str(path) in shipped_propagations():
        return _shipped(str(path))
    return parse_propagation(read_text(path, "EK290"), str(path))


def parse_propagation(text: str, file: str = "<propagation>") -> Propagation:
    """Read a propagation from text; what is wrong beyond its form is in `found`.

    Raises:
        ModelError: EK290, it is not the YAML of a propagation.
    """
    document = read_document(text, PropagationModel, DocumentCodes("EK290", "EK290"), file=file)
    made = Propagation(document.model, document.source, tuple(document.model.values))
    _Compiler(made).compile()
    return made


class _Compiler:
    def __init__(self, made: Propagation) -> None:
        self._made = made
        self._model = made.model
        self._source = made.source
        self._table = OperatorTable()
        self._constants = {name for one in made.model.values.values() for name in one} | {"value"}

    def compile(self) -> None:
        made, model = self._made, self._model
        self._define_operators()
        made.of = self._expression(("of",), model.of, {"x"})
        if model.neutral is not None:
            made.neutral = self._expression(("neutral",), model.neutral, {"x"})
        made.cost = self._expression(("cost",), model.cost, {"x"})
        for value, text in model.recorded.items():
            self._known_value(("recorded", value), value, is_key=True)
            compiled = self._expression(("recorded", value), text, {"x"})
            if compiled is not None:
                made.recorded[value] = compiled
        self._conversions()
        for number, row in enumerate(model.transfer):
            self._row(number, row)
        for name, draw in model.draw.items():
            self._draw(name, draw)
        if model.solve == "cut" and len(made.names) != 2:
            count = len(made.names)
            message = f"`solve: cut` chooses between two values, and there are {count}"
            self._complain(("solve",), "EK296", message, "write `solve: forward`, `backward` or `local`")
        order = {id(one): at for at, one in enumerate(made.found)}
        made.found.sort(key=lambda one: (one.location.line or 0, one.location.column or 0, order[id(one)]))

    def _define_operators(self) -> None:
        for name, definition in self._model.ops.items():
            text = self._source.text(("ops", name, "define"), definition.define)
            schema = self._source.text(("ops", name, "schema"), definition.schema_)
            scope = self._scope()
            made = define_operator(name, definition, text, schema, scope)
            if made is not None:
                self._table.defined[name] = made

    def _scope(self) -> Scope:
        return Scope(self._table, found=self._made.found)

    def _complain(
        self, path: YamlPath, code: str, message: str, hint: str | None = None, *, is_key: bool = False
    ) -> None:
        text = self._source.key(path) if is_key else self._source.text(path)
        length = len(text.value.split("\n")[0])
        self._made.found.append(text.diagnostic(code, message, length=max(1, length), hint=hint))

    def _known_value(self, path: YamlPath, value: str, *, is_key: bool = False, may_be_same: bool = False) -> bool:
        known = (*self._made.names, SAME) if may_be_same else self._made.names
        if value in known:
            return True
        hint = did_you_mean(value, known) or f"values are {', '.join(known)}"
        self._complain(path, "EK291", f"{value!r} is not a value", hint, is_key=is_key)
        return False

    def _expression(self, path: YamlPath, written: str, names: Collection[str]) -> Expression | None:
        """Compile an expression that asks nothing about the graph: trials have none."""
        text = self._source.text(path, written)
        scope = self._scope()
        calls = ProgramCalls(scope, allows_operators=False)
        compiler = ExpressionCompiler(calls)
        try:
            compiled = compiler.compile(parse_expression(written))
        except ExpressionError as error:
            scope.complain_of(text, "EK220", error)
            return None
        for name in sorted(calls.uses_words):
            if WORDS[name].needs_facts:
                message = f"{name} asks about the graph, and a row is tried without one"
                self._made.found.append(text.diagnostic("EK291", message))
                return None
        for name, node in compiler.free.items():
            if name not in names:
                hint = did_you_mean(name, names) or f"it may name {', '.join(sorted(names))}"
                scope.complain(text, "EK220", f"{name!r} has no meaning here", node, hint)
                return None
        return Expression(text, compiled)

    def _program(self, path: YamlPath, written: str, names: Collection[str]) -> Program | None:
        text = self._source.text(path, written)
        scope = self._scope()
        program = compile_program(text, scope)
        if program is None:
            return None
        for name in sorted(program.uses - set(names)):
            hint = did_you_mean(name, names) or f"it may name {', '.join(sorted(names))}"
            scope.complain(text, "EK221", f"{name!r} has no meaning here", None, hint)
            return None
        if program.opaque:
            scope.complain(text, "EK291", f"{program.opaque[0]} is registered code, which trials cannot judge", None)
            return None
        return program

    # Materialisation

    def _conversions(self) -> None:
        made = self._made
        for direction, written in self._model.materialise.items():
            one, other = direction.split(" -> ")
            path = ("materialise", direction)
            is_known = [self._known_value(path, value, is_key=True) for value in (one, other)]
            if one == other:
                self._complain(path, "EK291", f"nothing converts from {one} to itself", is_key=True)
            program = self._program(path, written, {"x"})
            if program is not None and all(is_known):
                made.conversions[one, other] = program
        for value in made.names[1:]:
            for pair in ((made.first, value), (value, made.first)):
                if pair not in made.conversions and f"{pair[0]} -> {pair[1]}" not in self._model.materialise:
                    message = f"there is no way from {pair[0]} to {pair[1]}"
                    hint = f'add "{pair[0]} -> {pair[1]}: return ..."'
                    self._complain(("materialise",), "EK291", message, hint, is_key=True)

    # Rows

    def _row(self, number: int, row: TransferRow) -> None:
        path = ("transfer", number)
        ops = self._operators(path, row)
        if ops is None:
            return
        arguments = self._arguments(path, row, ops)
        before = len(self._made.found)
        self._check_values(path, row, arguments)
        names = {*arguments, "result"}
        where = [
            self._expression((*path, "where") if len(row.where) == 1 else (*path, "where", at), text, names)
            for at, text in enumerate(row.where)
        ]
        own = {*arguments, *self._constants}
        adapt = {name: self._expression((*path, "adapt", name), text, own) for name, text in row.adapt.items()}
        cost = {name: self._expression((*path, "cost", name), text, names) for name, text in row.cost.items()}
        call = None if row.call is None else self._program((*path, "call"), row.call, own)
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

    def _operators(self, path: YamlPath, row: TransferRow) -> tuple[Operator, ...] | None:
        """Return the operators of a row; None if one of them is not known."""
        found: dict[Operator, None] = {}
        before = len(self._made.found)
        for at, name in enumerate(row.ops):
            place = (*path, "ops", at) if (*path, "ops", at) in self._source.places else (*path, "ops")
            try:
                found[self._table.find(name)] = None
            except UnknownNameError as error:
                self._complain(place, "EK291", error.message, error.hint)
        for at, name in enumerate(row.family):
            place = (*path, "family", at) if (*path, "family", at) in self._source.places else (*path, "family")
            if name not in FAMILIES:
                hint = did_you_mean(name, FAMILIES) or f"families are {', '.join(FAMILIES)}"
                self._complain(place, "EK291", f"{name!r} is not a family of operators", hint)
            else:
                found.update(dict.fromkeys(family_members((name,))))
        return None if len(self._made.found) > before else tuple(found)

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
                    self._complain(
                        (*path, key, name), "EK291", f"{lacking} has no argument {name!r}", hint, is_key=True
                    )
                elif shared[name] == (key == "adapt"):
                    what = "is a tensor, which conversions adapt" if key == "adapt" else "is not a tensor"
                    self._complain((*path, key, name), "EK291", f"argument {name!r} {what}", is_key=True)
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
            self._complain((*path, "cost"), "EK291", "costs are for rows with `same`", is_key=True)
        if row.call is not None and row.adapt:
            self._complain((*path, "adapt"), "EK291", "`call` says all of the call; leave out `adapt`", is_key=True)

    def _draw(self, name: str, draw: Draw) -> None:
        path = ("draw", name)
        try:
            op = self._table.find(name)
        except UnknownNameError as error:
            self._complain(path, "EK291", error.message, error.hint, is_key=True)
            return
        scope = self._scope()
        texts = {key: self._source.text((*path, "vars", key), written) for key, written in draw.vars.items()}
        before = len(scope.found)
        variables, symbols = variables_of(draw.vars, texts, self._source.text(path), scope)
        if len(scope.found) > before:
            return
        program = self._program((*path, "call"), draw.call, {*variables, *symbols})
        if program is None:
            return
        if program.operators[-1:] != (op,):
            self._complain((*path, "call"), "EK291", f"this does not end in a call of {name}")
            return
        self._made.draws[op] = DrawnCall(variables, program, draw.gen)


def holds_tensors(argument: Any) -> bool:
    """Whether an argument of a schema is a tensor or a list of tensors."""
    return "Tensor" in str(argument.type)


def is_covered_kind(value: Any) -> bool:
    """Whether a recorded value is a strided tensor: others have no values."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided
