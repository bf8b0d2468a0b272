"""Tensors without values for a rule: of every dtype, rank and choice in turn, and once with sizes that vary."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.facts import operators_with
from exirkit.patterns.syntax.expression_syntax import ExpressionError
from exirkit.patterns.syntax.terms import Call, walk
from exirkit.patterns.types.cells import Cell
from exirkit.patterns.types.conditions import condition
from exirkit.patterns.types.sampling import MAX_ELEMENTS, Draw, Sample, Sampler, SamplingError
from exirkit.patterns.types.scalars import OperatorVariable
from exirkit.patterns.types.sizes import Size
from exirkit.patterns.types.symbolic import symbolic_sample
from exirkit.patterns.types.tensors import TensorVariable
from exirkit.patterns.types.value_maker import UnsolvedError

from .empty_operands import is_undefined
from .pattern_execution import Shape, shapes_of

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
            draw.may_alias = False
            try:
                draft = draw.draft(cell, _on_meta)
            except UnsolvedError:
                continue
            for equation in self.sampler.equations:
                equation.apply(draft.values, draft.names)
            if all(holds(draft.names) for holds in self.sampler.conditions):
                return self.sampler.finished(draft)
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
    called = [one.op for root in rule.pattern.roots for one in walk(root) if isinstance(one, Call)]
    called += [op for case in rule.cases for op in case.replace.operators]
    mentioned = {name for case in rule.cases for name in case.replace.uses}
    mentioned |= {name for guard in rule.guards for name in guard.needs} | (rule.let.uses if rule.let else set())
    sizes = {name for variable in rule.variables.values() for name in variable.binds}
    words = ("shape", "rank", "numel", "ndim", "sizes")
    texts = [case.replace for case in rule.rule.cases] + ([rule.rule.let] if rule.rule.let else [])
    return (
        all(torch.Tag.pointwise in op.tags or op in operators_with("creates") for op in called)
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
