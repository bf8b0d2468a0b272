"""Evaluating a rule without values: results of pattern and replacement must agree in number, dtype and sizes."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from exirkit.ir import (
    DataDependentOutputException,
    Diagnostic,
    DynamicOutputShapeException,
    FakeTensorMode,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    ShapeEnvGuardError,
    SourceText,
    UnsupportedOperatorException,
    infer_value,
    no_torch_logs,
    operators_with,
)
from exirkit.patterns.checking.pattern_execution import CannotRunError, PatternRun, Shape, shapes_of
from exirkit.patterns.checking.trials.rule_trials import RAISED, is_undefined
from exirkit.patterns.checking.trials.trial_facts import TrialFacts
from exirkit.patterns.matching.compiled_rule import CompiledCase, CompiledRule
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import ExpressionError, UndecidedError, parse_statements, surely_true, truth
from exirkit.patterns.syntax.programs import Builder
from exirkit.patterns.syntax.terms import Operator
from exirkit.patterns.types.conditions import condition
from exirkit.patterns.types.sampling import MAX_ELEMENTS, Cell, Draw, Sample, Sampler, SamplingError
from exirkit.patterns.types.scalars import OperatorVariable
from exirkit.patterns.types.sizes import Size
from exirkit.patterns.types.symbolic import symbolic_sample
from exirkit.patterns.types.tensors import TensorVariable

_CELLS = 11
_CELLS_OF_WAY = 2
_MOST_TRIES = 12


@dataclass(frozen=True)
class Assignment:
    """Values for the variables of a rule; tensors have none.

    Attributes:
        names: Values of variables and sizes.
        cell: Dtypes, ranks and choices.
        shape: Way through the pattern.
        mode: Mode of the tensors if sizes vary; otherwise they are on the meta device.
    """

    names: dict[str, Any]
    cell: Cell
    shape: Shape
    mode: FakeTensorMode | None = None


class AssignmentMaker:
    """Makes assignments for one rule.

    Args:
        rule: A compiled rule.
        seed: Of all random choices.
    """

    def __init__(self, rule: CompiledRule, seed: int = 0) -> None:
        self.rule = rule
        self.rng = random.Random(f"{rule.id}:{seed}:abstract")
        self.shapes = list(shapes_of(rule.pattern))
        self.sampler = Sampler(rule.variables, gen=_conditions(rule))

    def assignments(self) -> Iterator[Assignment]:
        """Yield assignments with plain sizes, then one with sizes that vary if sizes matter."""
        least = _CELLS_OF_WAY * len(self.shapes)
        cells = list(self.sampler.sample_instantiations(max(_CELLS, least)))
        for number in range(max(_CELLS, least, len(cells)) if cells else 0):
            cell, shape = cells[number % len(cells)], self.shapes[number % len(self.shapes)]
            sample = self._plain(cell)
            if sample is not None and not is_undefined(self.rule, sample.values.values()):
                yield Assignment(self._names(sample), sample.cell, shape)
        if not _sees_no_sizes(self.rule):
            found = self._symbolic(cells)
            if found is not None:
                yield Assignment(self._names(found[0]), found[0].cell, self.shapes[0], found[1])

    def real(self, cell: Cell) -> dict[str, Any] | None:
        """Return real values for the same choices, or None."""
        try:
            return self._names(self.sampler.sample(self.rng, "normal", cell))
        except SamplingError:
            return None

    def _names(self, sample: Sample) -> dict[str, Any]:
        names: dict[str, Any] = {**sample.symbols, **sample.values, **self.rule.tunings[0]}
        for name, variable in self.rule.variables.items():
            if isinstance(variable, OperatorVariable):
                names[name] = self.rng.choice(variable.operators())
        return names

    def _plain(self, cell: Cell) -> Sample | None:
        for _ in range(_MOST_TRIES):
            draw = Draw(self.sampler.ordered, self.sampler.problem, self.rng, "normal", MAX_ELEMENTS)
            draw.may_alias = draw.has_values = False
            sample = self.sampler.drawn(draw, cell, _on_meta)
            if sample is not None:
                return sample
        return None

    def _symbolic(self, cells: list[Cell]) -> tuple[Sample, FakeTensorMode] | None:
        mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
        # Nothing is computed twice here, and what is remembered for that costs as much as what is computed.
        mode.cache_enabled = False
        dims = [one.dims for one in self.rule.variables.values() if isinstance(one, TensorVariable) and one.dims]
        wanted = 1 if any(len(one) > 1 for one in dims) else 2
        for cell in sorted(cells, key=lambda one: _distance(one, wanted))[:1]:
            try:
                return symbolic_sample(self.sampler, cell, mode, self.rng), mode
            except SamplingError:
                continue
        return None


def _on_meta(_: TensorVariable, dtype: torch.dtype, sizes: tuple[Size, ...]) -> torch.Tensor:
    return torch.empty([int(size) for size in sizes], dtype=dtype, device="meta")


def _sees_no_sizes(rule: CompiledRule) -> bool:
    """Whether a rule consists of pointwise operators, and nothing else in it speaks of sizes."""
    mentioned = {name for case in rule.cases for name in case.replace.uses}
    mentioned |= {name for guard in rule.guards for name in guard.needs} | (rule.let.uses if rule.let else set())
    sizes = {name for variable in rule.variables.values() for name in variable.binds}
    words = ("shape", "rank", "numel", "ndim", "sizes")
    texts = [case.replace for case in rule.rule.cases] + ([rule.rule.let] if rule.rule.let else [])
    return (
        all(torch.Tag.pointwise in op.tags or op in operators_with("creates") for op in rule.operators)
        and not sizes & mentioned
        and not any(word in text for word in words for text in texts)
    )


def _distance(cell: Cell, wanted: int) -> tuple[int, int]:
    """Order cells by how far their ranks are from those that show something and cost little."""
    return sum(abs(length - wanted) for length in cell.lengths.values()), len(cell.absent)


def _conditions(rule: CompiledRule) -> list[str]:
    """Return `gen`, and the guards that speak of sizes only."""
    texts = [rule.rule.gen] if rule.rule.gen else []
    for guard in rule.guards:
        try:
            condition(guard.text)
        except ExpressionError:
            continue
        texts.append(guard.text)
    return texts


def shown_assignment(rule: CompiledRule, names: Mapping[str, Any]) -> list[str]:
    """Return a line for each variable: dtype and sizes of a tensor, the value of anything else."""
    return [f"{name}: {_shown(names[name])}" for name in rule.variables if name in names]


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{shown_sizes(value.shape)}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, torch.SymInt):
        return shown_size(value)
    return str(value)


def shown_sizes(sizes: Any) -> str:
    """Return sizes as text; those that vary by the names of the rule."""
    return f"[{', '.join(map(shown_size, sizes))}]"


def shown_size(size: Any) -> str:
    """Return a size as text."""
    if not isinstance(size, torch.SymInt):
        return str(size)
    return _named(size.node.shape_env, str(size.node.expr))


def with_names(mode: FakeTensorMode | None, text: str) -> str:
    """Return a text in which sizes that vary have the names of the rule."""
    return text if mode is None or mode.shape_env is None else _named(mode.shape_env, text)


def _named(env: ShapeEnv, text: str) -> str:
    names: dict[str, str] = {}
    for symbol, sources in env.var_to_sources.items():
        # `size_K_5`: the name in the rule, and an example.
        names[str(symbol)] = "_".join(sources[0].name.split("_")[1:-1]) if sources else str(symbol)
    return re.sub(r"\bs\d+\b", lambda found: names.get(found[0], found[0]), text)


# Evaluating a rule without values: results of pattern and replacement must agree in number, dtype and sizes


_CONFIRMATIONS = 25
_UNKNOWN = (
    NotImplementedError,
    UnsupportedOperatorException,
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    UndecidedError,
)


@dataclass(frozen=True)
class Mismatch:
    """What does not agree.

    Attributes:
        text: In words.
        case: The replacement.
        result: Which of its results; None for all of them.
        fixes_sizes: Results agree, but only for some of the sizes.
    """

    text: str
    case: CompiledCase
    result: int | None = None
    fixes_sizes: bool = False


class FakeBuilder:
    """Runs calls of operators on fake tensors whose sizes vary; if `is_strict`, what would fix one is an error."""

    def __init__(self, mode: FakeTensorMode, *, is_strict: bool) -> None:
        self.mode = mode
        self.is_strict = is_strict

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several."""
        if self.is_strict:
            result = infer_value(self.mode, op, args, kwargs)
        else:
            with self.mode, torch.no_grad():
                result = op(*args, **kwargs)
        return list(result) if isinstance(result, tuple | list) else result


def abstract_findings(rule: CompiledRule, *, seed: int = 0) -> list[Diagnostic]:
    """Return what is wrong with a rule whatever the values are.

    Args:
        rule: A compiled rule.
        seed: Of the sizes and numbers.

    Returns:
        At most one diagnostic, EK219: an error, or a warning if only a condition on sizes that vary is missing.
    """
    maker = AssignmentMaker(rule, seed)
    for assignment in maker.assignments():
        mismatch = _mismatch(rule, assignment)
        if mismatch is None:
            continue
        if mismatch.fixes_sizes:
            return [_diagnostic(rule, mismatch, assignment).model_copy(update={"severity": "warning"})]
        if _is_confirmed(rule, maker, assignment):
            return [_diagnostic(rule, mismatch, assignment)]
    return []


def _mismatch(rule: CompiledRule, assignment: Assignment) -> Mismatch | None:
    """Return how the results differ for an assignment, or None; also where it cannot be said."""
    if assignment.mode is not None:
        return _symbolic_mismatch(rule, assignment, assignment.mode)
    # Small tensors of ones are computed faster than none; conditions see that they have no values.
    names = {name: _with_ones(value) for name, value in assignment.names.items()}
    expected = _pattern_results(rule, names, assignment.shape, TensorBuilder())
    if expected is None:
        return None
    known = {name: _without_values(value) for name, value in names.items()} | assignment.names
    known[FACTS] = TrialFacts(rule, known, assignment.shape)
    return _compared(rule, names, expected, TensorBuilder()) if _may_match(rule, known) else None


def _symbolic_mismatch(rule: CompiledRule, assignment: Assignment, mode: FakeTensorMode) -> Mismatch | None:
    names = dict(assignment.names)
    with no_torch_logs():
        expected = _pattern_results(rule, names, assignment.shape, FakeBuilder(mode, is_strict=False))
        if expected is None or not _may_match(rule, names):
            return None
        return _compared(rule, names, expected, FakeBuilder(mode, is_strict=True), mode)


def _with_ones(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.ones(value.shape, dtype=value.dtype)
    return [_with_ones(one) for one in value] if isinstance(value, list) else value


def _without_values(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_like(value, device="meta")
    return [_without_values(one) for one in value] if isinstance(value, list) else value


def _pattern_results(rule: CompiledRule, names: dict[str, Any], shape: Shape, builder: Builder) -> list[Any] | None:
    try:
        with torch.no_grad():
            results = PatternRun(rule.pattern, names, shape, builder).run()
    except (CannotRunError, *_UNKNOWN, *RAISED):
        return None
    names[FACTS] = TrialFacts(rule, names, shape)
    return results


def _may_match(rule: CompiledRule, names: Mapping[str, Any], *, is_certain: bool = False) -> bool:
    """Whether the guards hold; those that ask for values may, unless it must be certain."""
    for guard in rule.guards:
        try:
            if truth(guard.compiled(names)) is not True:
                return False
        except (ExpressionError, UndecidedError, *_UNKNOWN, *RAISED):
            if is_certain:
                return False
    return True


def _compared(
    rule: CompiledRule, names: dict[str, Any], expected: Sequence[Any], builder: Builder, mode: Any = None
) -> Mismatch | None:
    """Run the replacement and compare; `let` creates its tensors under `mode`."""
    case = rule.cases[0]
    try:
        with torch.no_grad(), nullcontext() if mode is None else mode:
            if rule.let is not None:
                names.update(rule.let.assigned(names))
            case = rule.case_for(names)
            if case.let is not None:
                names.update(case.let.assigned(names))
        with torch.no_grad():
            found = case.replace.run(names, builder)
    except _UNKNOWN:
        return None
    except ExpressionError as error:
        return _raised(error.__cause__ or error, error.message, case)
    except RAISED as error:
        return _raised(error, str(error), case)
    return _disagreement(expected, found, case)


def _raised(cause: BaseException, message: str, case: CompiledCase) -> Mismatch | None:
    if isinstance(cause, _UNKNOWN):
        return None
    if isinstance(cause, ShapeEnvGuardError):
        condition = str(cause).partition(": ")[2].splitlines()
        text = condition[0] if condition else str(cause)
        return Mismatch(f"the replacement needs {text}", case, fixes_sizes=True)
    return Mismatch(f"the replacement fails: {message.splitlines()[0] if message else type(cause).__name__}", case)


def _disagreement(expected: Sequence[Any], found: Sequence[Any], case: CompiledCase) -> Mismatch | None:
    if len(expected) != len(found):
        return Mismatch(f"{len(found)} results in place of {len(expected)}", case)
    for index, (one, other) in enumerate(zip(expected, found, strict=True)):
        if not isinstance(one, torch.Tensor) or isinstance(other, int | float | bool):
            continue
        text = _different(one, other)
        if text is not None:
            return Mismatch(text if len(expected) == 1 else f"result {index}: {text}", case, index)
    return None


def _different(expected: torch.Tensor, found: Any) -> str | None:
    if not isinstance(found, torch.Tensor):
        return f"a {type(found).__name__} in place of a tensor"
    if expected.dtype != found.dtype:
        return f"dtype {_dtype(found)} in place of {_dtype(expected)}"
    pairs = list(zip(expected.shape, found.shape, strict=False))
    if len(expected.shape) != len(found.shape) or not all(_same_size(one, other) for one, other in pairs):
        return f"sizes {shown_sizes(found.shape)} in place of {shown_sizes(expected.shape)}"
    return None


def _same_size(one: Any, other: Any) -> bool:
    if type(one) is int and type(other) is int:
        return one == other
    if surely_true(one == other):
        return True
    # What torch cannot show to be equal may be equal all the same; the examples that sizes stand for tell.
    return bool(_example(one) == _example(other))


def _example(size: Any) -> Any:
    return size.node.hint if isinstance(size, torch.SymInt) else size


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _is_confirmed(rule: CompiledRule, maker: AssignmentMaker, assignment: Assignment) -> bool:
    """Whether results differ in the same way for real values, for which all guards hold."""
    for _ in range(_CONFIRMATIONS):
        names = maker.real(assignment.cell)
        if names is None:
            return False
        expected = _pattern_results(rule, names, assignment.shape, TensorBuilder())
        if expected is None or not _may_match(rule, names, is_certain=True):
            continue
        if _compared(rule, names, expected, TensorBuilder()) is not None:
            return True
    return False


def _diagnostic(rule: CompiledRule, mismatch: Mismatch, assignment: Assignment) -> Diagnostic:
    index = next(at for at, case in enumerate(rule.cases) if case is mismatch.case)
    text = rule.texts.cases[index][2]
    line, offset, length = _place(text, mismatch.result)
    said, hint = f"rule {rule.id} is wrong for any values", "add the guard that is missing, or narrow the types"
    if mismatch.fixes_sizes:
        said = f"rule {rule.id} is not applied where these sizes vary"
        hint = "compute sizes from those of the pattern, or say by `static(...)` which must be known"
    way = [f"on the way {assignment.shape.text}"] if assignment.shape.text else []
    return text.diagnostic(
        "EK219",
        f"{said}: {with_names(assignment.mode, mismatch.text)}",
        line=line,
        offset=offset,
        length=length,
        notes=(f"in rule {rule.id}", *shown_assignment(rule, assignment.names), *way),
        hint=hint,
    )


def _place(text: SourceText, result: int | None) -> tuple[int, int, int]:
    """Return line, offset and length of what a replacement returns, or of one of its results."""
    try:
        returned = next(one for one in parse_statements(text.value) if isinstance(one, ast.Return))
    except (ExpressionError, StopIteration):
        return 1, 0, 1
    node = returned.value
    if node is None:
        return returned.lineno, returned.col_offset, len("return")
    if isinstance(node, ast.Tuple) and not any(isinstance(one, ast.Starred) for one in node.elts):
        node = node.elts[result] if result is not None and result < len(node.elts) else node
    line = text.value.splitlines()[node.lineno - 1]
    end = node.end_col_offset if node.end_lineno == node.lineno and node.end_col_offset is not None else len(line)
    return node.lineno, node.col_offset, max(1, end - node.col_offset)
