"""A pattern with values for its variables, ready to be run, and programs made of it, on which the rule must fire."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import DefinedOperator, GraphEditor, copy_program
from exirkit.patterns.checking.pattern_execution import CannotRunError, PatternRun, Shape, mark_of, raw_name
from exirkit.patterns.checking.trials.attributes import attribute_of
from exirkit.patterns.checking.trials.grids import from_integers, integers_of, known_grids
from exirkit.patterns.checking.trials.rule_trials import RuleTrials, Trial
from exirkit.patterns.engine.meanings import with_meanings
from exirkit.patterns.engine.report import RewriteReport
from exirkit.patterns.engine.rewriting import RuleEngine
from exirkit.patterns.functions.ranges import range_of_elements
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.propagation.fixpoint import tell_ranges
from exirkit.patterns.syntax.attributes import Attribute, attributed_terms
from exirkit.patterns.syntax.programs import Builder
from exirkit.patterns.syntax.terms import EveryUser, Variable
from exirkit.patterns.syntax.value_roots import root_name
from exirkit.patterns.types.tensors import TensorVariable

Kind = Literal["input", "parameter", "buffer", "constant"]


@dataclass(frozen=True)
class PatternInstance:
    """Values for the variables of a rule, and one way through its pattern.

    Attributes:
        rule: The rule.
        names: Values of variables and sizes.
        shape: The way through the pattern.
        kinds: What each variable that is a tensor stands for in a program.
        changed: Literals that others take the place of, by identity.
        split: Values for the second and later occurrences of variables.
        lists: Names of the elements of variables that are lists of tensors; the elements are in `names` and `kinds`.
    """

    rule: CompiledRule
    names: Mapping[str, Any]
    shape: Shape
    kinds: Mapping[str, Kind]
    changed: Mapping[int, Any] = field(default_factory=dict)
    split: Mapping[str, Any] = field(default_factory=dict)
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def run(self, builder: Builder, values: Mapping[str, Any]) -> list[Any] | None:
        """Run the pattern.

        Args:
            builder: Meaning of calls.
            values: What stands for the tensors of `kinds`, by name.

        Returns:
            The values of the roots; None if the pattern leaves something open, or has nothing of what is to be changed.
        """
        given = {**self.names, **values}
        given.update({name: [given[one] for one in elements] for name, elements in self.lists.items()})
        # A second value for an occurrence of a tensor is a tensor of the program too.
        split = {name: values.get(second_name(name), value) for name, value in self.split.items()}
        run = PatternRun(self.rule.pattern, given, self.shape, builder, changed=self.changed, split=split)
        try:
            results = run.run()
        except CannotRunError:
            return None
        # The way through the pattern may not come by what was to be changed.
        return None if (self.changed or self.split) and not run.was_changed else results


def second_name(name: str) -> str:
    """Return the name under which an instance has the value of the second occurrence of a variable."""
    return f"{name} again"


def instance_of(trials: RuleTrials, trial: Trial) -> PatternInstance:
    """Return the values of a trial as an instance of the pattern."""
    named = trials.rule.pattern.named
    names = {key: value for key, value in trial.names.items() if key not in named}
    kinds: dict[str, Kind] = {}
    for name, variable in trials.rule.variables.items():
        value = names.get(name)
        if isinstance(variable, TensorVariable) and isinstance(value, torch.Tensor):
            is_stored = trials.rule.pattern.kind == "stored" and name == root_name(trials.rule.pattern)
            kinds[name] = "buffer" if is_stored else _kind(variable, value)
    return PatternInstance(trials.rule, names, trial.shape, kinds)


def for_program(instance: PatternInstance) -> PatternInstance:
    """Return an instance as programs can have it.

    Tensors of lists have names of their own, and tensors of which the pattern demands an attribute are without what
    it means: the program has a call for that.
    """
    names = dict(instance.names)
    for term in attributed_terms(instance.rule.pattern.terms):
        if not isinstance(term.inner, Variable):
            continue
        name = term.inner.name
        if names.pop(mark_of(name, term.attribute.name), None):
            names[name] = names.pop(raw_name(name), names[name])
    return _with_elements(replace(instance, names=names))


def _with_elements(instance: PatternInstance) -> PatternInstance:
    names, kinds = dict(instance.names), dict(instance.kinds)
    lists: dict[str, list[str]] = {}
    for name, value in instance.names.items():
        if isinstance(value, list) and _are_tensors(value):
            lists[name] = [f"{name}[{place}]" for place in range(len(value))]
            variable = getattr(instance.rule.variables.get(name), "element", None)
            kind = _kind(variable, value[0]) if isinstance(variable, TensorVariable) else "input"
            names.update(zip(lists[name], value, strict=True))
            kinds.update(dict.fromkeys(lists[name], kind))
            del names[name]
    return replace(instance, names=names, kinds=kinds, lists=lists) if lists else instance


def _kind(variable: TensorVariable, value: torch.Tensor) -> Kind:
    if "param" in variable.qualifiers and value.is_floating_point():
        return "parameter"
    if "buffer" in variable.qualifiers:
        return "buffer"
    return "constant" if {"const", "param"} & set(variable.qualifiers) else "input"


@dataclass(frozen=True)
class Mark:
    """An attribute of the n-th call of a program.

    Attributes:
        number: Of the call, from 0.
        op: Its operator.
        attribute: The attribute.
        fields: Its fields.
    """

    number: int
    op: Any
    attribute: Attribute
    fields: Mapping[str, Any]


Beside: TypeAlias = tuple[EveryUser, Any]
"""All users of a value, and the operator of one that is of another form."""


class _Noted:
    """What the last run of a pattern noted."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []


class _MarkingBuilder(TensorBuilder):
    """Runs calls without what their attributes mean, and remembers those."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.marks: list[Mark] = []

    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several."""
        result = super().call(_known_to_torch(op) if isinstance(op, DefinedOperator) else op, args, kwargs)
        self.calls.append(op)
        return result

    def put_attribute(self, value: Any, attribute: Attribute, fields: Mapping[str, Any]) -> Any:
        """Note an attribute of the last call."""
        self.marks.append(Mark(len(self.calls) - 1, self.calls[-1], attribute, dict(fields)))
        return value


_KNOWN_TO_TORCH: dict[Any, DefinedOperator] = {}
_LIBRARY = torch.library.Library("exirkit_traced", "FRAGMENT")


@cache
def _known_to_torch(op: DefinedOperator) -> Any:
    """Return an operator of the same meaning, which torch.export keeps as a call instead of what it computes."""
    # The number keeps apart what differs in its separators only.
    name = op.name().replace("::", "_").replace(".", "_") + f"_{len(_KNOWN_TO_TORCH)}"
    schema = str(op._schema)
    _LIBRARY.define(name + schema[schema.index("(") :])
    for key in ("CompositeExplicitAutograd", "Meta"):
        _LIBRARY.impl(name, op, key)
    traced = getattr(torch.ops.exirkit_traced, name).default
    _KNOWN_TO_TORCH[traced] = op
    return traced


def _with_marks(program: ExportedProgram, module: PatternModule) -> ExportedProgram:
    """Give calls and inputs of a program their attributes.

    Raises:
        CannotRunError: torch made other calls than the pattern has.
    """
    calls = [node for node in program.graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
    for mark in module.noted.marks:
        if mark.number >= len(calls) or calls[mark.number].target is not mark.op:
            raise CannotRunError("torch.export makes other calls of the pattern, so that attributes have no place")
        mark.attribute.write(calls[mark.number], mark.fields, _set_meta)
    inputs = dict(zip(module.inputs, _inputs_of(program), strict=False))
    for term in attributed_terms(module.trials.rule.pattern.terms):
        if not isinstance(term.inner, Variable):
            continue
        name = term.inner.name
        if module.trial.names.get(mark_of(name, term.attribute.name)):
            if name not in inputs:
                raise CannotRunError(f"{name} is stored, and has no attribute there")
            fields = attribute_of(module.trials.rule, module.trial.shape, module.trial.names, name, term.attribute)
            term.attribute.write(inputs[name], fields or {}, _set_meta)
    return program


def _set_meta(node: Node, key: str, value: Any) -> None:
    node.meta[key] = value


def _inputs_of(program: ExportedProgram) -> list[Node]:
    given = set(program.graph_signature.user_inputs)
    return [node for node in program.graph.nodes if node.op == "placeholder" and node.name in given]


def _are_tensors(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(one, torch.Tensor) for one in values)


class PatternModule(torch.nn.Module):
    """Computes a pattern; constants of the rule are stored, its other tensors are inputs."""

    def __init__(
        self, trials: RuleTrials, trial: Trial, also: Sequence[str] = (), beside: Beside | None = None
    ) -> None:
        super().__init__()
        self.also = tuple(also)
        self.beside = beside
        # torch.export takes back what a module assigns to itself, so this is an object of its own.
        self.noted = _Noted()
        self.trials = trials
        self.trial = trial
        kinds = instance_of(trials, trial).kinds
        self.inputs = [name for name, kind in kinds.items() if kind == "input"]
        self.stored = {name: f"stored_{name}" for name, kind in kinds.items() if kind != "input"}
        self.grids = known_grids(trial.names, self.inputs) if trials.asks_for_grids else {}
        self.channels: dict[str, list[str]] = {}
        for name, grid in self.grids.items():
            parameters = () if grid.axis is None else grid.tensors()
            self.channels[name] = [f"grid_{name}_{place}" for place in range(len(parameters))]
            for key, value in zip(self.channels[name], parameters, strict=True):
                self.register_buffer(key, value)
        for name, attribute in self.stored.items():
            value = trial.names[name]
            if kinds[name] == "parameter":
                self.register_parameter(attribute, torch.nn.Parameter(value, requires_grad=False))
            else:
                self.register_buffer(attribute, value)
        # Tensors that a module holds without a name are lifted by torch.export, which mixes up their order.
        named = {*kinds, *trials.rule.pattern.named}
        lists = {name: value for name, value in trial.names.items() if isinstance(value, list) and name not in named}
        self.lists = {name: len(value) for name, value in lists.items() if _are_tensors(value)}
        for name in self.lists:
            for place, value in enumerate(lists[name]):
                self.register_buffer(f"item_{name}_{place}", value)

    def given(self, values: Sequence[torch.Tensor]) -> dict[str, Any]:
        """Return what the variables and sizes of the rule stand for."""
        named = self.trials.rule.pattern.named
        names = {key: value for key, value in self.trial.names.items() if key not in named}
        names.update(zip(self.inputs, values, strict=True))
        # A graph knows the grid of what is dequantized in it.
        for name, grid in self.grids.items():
            names[name] = from_integers(names[name], grid, [getattr(self, one) for one in self.channels[name]])
        names.update({name: getattr(self, attribute) for name, attribute in self.stored.items()})
        for name, length in self.lists.items():
            names[name] = [getattr(self, f"item_{name}_{place}") for place in range(length)]
        return names

    def forward(self, *values: torch.Tensor) -> tuple[Any, ...]:
        """Compute the roots."""
        names = self.given(values)
        builder = _MarkingBuilder()
        run = PatternRun(self.trials.rule.pattern, names, self.trial.shape, builder)
        results = run.run()
        self.noted.marks = builder.marks
        if self.beside is not None:
            term, op = self.beside
            results = [*results, builder.call(op, (run.value(term.of),), {})]
        return (*results, *(names[name] for name in self.also))


def program_of(
    trials: RuleTrials, trial: Trial, *, also: Sequence[str] = (), beside: Beside | None = None
) -> tuple[ExportedProgram, tuple[torch.Tensor, ...]]:
    """Return a program that computes the pattern of a rule, and the inputs for which it was made.

    Args:
        trials: Of the rule.
        trial: Values, and a way through the pattern.
        also: Names of values inside the pattern that the program returns as well.
        beside: A call on the value whose users the pattern is about, which the program makes and returns as well.
    """
    module = PatternModule(trials, trial, also, beside)
    grids = module.grids
    inputs = tuple(
        integers_of(trial.names[name], grids[name]) if name in grids else trial.names[name] for name in module.inputs
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, inputs, strict=False)
    for node in program.graph.nodes:
        node.target = _KNOWN_TO_TORCH.get(node.target, node.target)
    if any("range(" in guard.text for guard in trials.rule.guards):
        # What the trial draws is what a graph would have to know.
        tell_ranges(program, [range_of_elements(one) for one in inputs])
    return (_with_marks(program, module) if trials.rule.uses_attributes else program), inputs


def fire(trials: RuleTrials, trial: Trial) -> tuple[RewriteReport, str | None]:
    """Let a rule rewrite a program made from itself.

    Returns:
        What the engine did, and how the rewritten program differs from the pattern, or None.
    """
    program, inputs = program_of(trials, trial)
    editor = GraphEditor(copy_program(program))
    # Whether it gains anything is not asked here.
    rule = replace(trials.rule, rule=trials.rule.rule.model_copy(update={"choose": "always"}))
    report = RuleEngine([rule]).run(editor)
    runs = with_meanings(editor.program, rule.attributes.values()) if rule.uses_attributes else editor.program
    results = runs.module()(*inputs)
    return report, trials.compared(trial, list(results))
