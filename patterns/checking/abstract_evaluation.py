"""Evaluating a rule without values: results of pattern and replacement must agree in number, dtype and sizes.

Both are evaluated on tensors without values, for every dtype and rank in turn and once with sizes that vary. What
differs there is sought on real values for the same choices, so that a condition about values is never overlooked.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    _ShapeEnvGuardError,
)

from exirkit.ir import Diagnostic, SourceText, infer_value, no_torch_logs
from exirkit.patterns.matching.compiled_rule import CompiledCase, CompiledRule
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.syntax.expression_syntax import ExpressionError, parse_statements
from exirkit.patterns.syntax.program_compiler import FACTS, Builder
from exirkit.patterns.syntax.terms import Operator
from exirkit.patterns.syntax.undecided import UndecidedError, surely_true, truth

from .abstract_instances import chosen_case
from .abstract_sampling import Assignment, AssignmentMaker, shown_assignment, shown_sizes, with_names
from .pattern_execution import CannotRunError, PatternRun, Shape
from .trial_facts import TrialFacts
from .trials import RAISED

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
            case = chosen_case(rule.cases, names)
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
    if isinstance(cause, _ShapeEnvGuardError):
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
