"""Patterns and models are in the programs that are made around them, in every way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import find, settings

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.generation import (
    WAYS,
    ModelPatterns,
    PatternSource,
    Policy,
    RulePatterns,
    SeededChoices,
    generate_with_pattern,
    programs,
    sources_of,
)
from exirkit.fuzz.generation.method.building import Building
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.patterns.insertion import Insertion
from exirkit.fuzz.generation.policy import draw_plan
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import Program, parse_program, program_text, run_eagerly
from exirkit.ir import DiagnosticError
from exirkit.patterns import Builder, load_book

DOUBLE = {"vars": {"x": "f32 [*S]"}, "match": "return aten.neg.default(aten.neg.default(x))"}
FUSED = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 2), torch.nn.BatchNorm2d(3)).eval()
IMAGE = torch.randn(1, 2, 4, 4)


def calls(program: Program) -> Counter[str]:
    return Counter(step.op for method in program.methods for step in method.steps)


def test_every_way_is_taken_and_gives_programs_that_run() -> None:
    rule = load_book("algebra").rule("simplify.mul-one-remove")
    ways: Counter[str | None] = Counter()
    for seed in range(16):
        made = generate_with_pattern(seed, [RulePatterns(rule)])
        ways[made.way] += 1
        assert parse_program(program_text(made.program)) == made.program
        run_eagerly(made.program)
        assert made == generate_with_pattern(seed, [RulePatterns(rule)])
        if made.is_whole and made.way != "special":
            fired = check(made.program, compiler=ExirkitCompiler(level=0, rules=[rule]), oracles=("lowering",)).fired
            assert bool(fired) or made.way == "shared"
    assert set(ways) == set(WAYS)


def test_sources_take_turns() -> None:
    sources: list[PatternSource] = sources_of(DOUBLE, [(FUSED, (IMAGE,))])
    found = Counter(generate_with_pattern(seed, sources).source for seed in range(8))
    assert found == {"pattern.1": 4, "Sequential": 4}


def test_a_model_is_there_whole_and_changed_in_one_place() -> None:
    source = ModelPatterns(FUSED, (IMAGE,))
    kinds: Counter[str | None] = Counter()
    for seed in range(8):
        made = generate_with_pattern(seed, [source])
        run_eagerly(made.program)
        kinds[made.way] += 1
        if made.is_whole:
            assert calls(made.program)["aten.conv2d.default"] == calls(made.program)["aten.batch_norm.default"] == 1
        if made.way == "near":
            assert " = " in made.what or "swapped" in made.what
    assert kinds["near"] >= 3
    assert kinds["match"] >= 2


def test_functions_and_inplace_calls_are_models_too() -> None:
    source = ModelPatterns(lambda x: torch.relu_(x + 1).split(1), (torch.randn(2, 3),))
    assert "aten.relu.default" in calls(generate_with_pattern(0, [source]).program)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"pattern": {"vars": {"x": "f32 [N]"}, "match": "return aten.no_such.default(x)"}}, "EK213"),
        ({"pattern": {"vars": {}, "match": "return 1"}}, "EK876"),
        ({"pattern": lambda x: torch.relu(x)}, "EK876"),
        ({"pattern": "return aten.relu.default(x)"}, "EK876"),
        ({"examples": [FUSED]}, "EK876"),
        ({"examples": [(torch.nn.BatchNorm1d(2), (torch.ones(3, 2),))]}, "EK875"),
        ({"examples": [(lambda x: x.tolist(), (torch.ones(3),))]}, "EK875"),
    ],
)
def test_what_cannot_be_inserted_is_reported(given: dict[str, object], code: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        sources_of(**given)  # type: ignore[arg-type]
    assert caught.value.diagnostics[0].code == code


def test_the_strategy_shrinks_to_the_pattern_alone() -> None:
    strategy = programs(pattern=DOUBLE)
    found = find(
        strategy,
        lambda one: calls(one)["aten.neg.default"] >= 2,
        settings=settings(max_examples=60, deadline=None, database=None, derandomize=True),
    )
    assert sum(calls(found).values()) <= 5


class AbsoluteSum:
    """A pattern whose second input is read by its second call."""

    names: Mapping[str, Any] = {"x": torch.tensor([1.0, -2.0]), "y": torch.tensor([3.0, 4.0])}
    kinds: Mapping[str, Any] = {"x": "input", "y": "input"}

    def run(self, builder: Builder, values: Mapping[str, Any]) -> list[Any]:
        first = builder.call(torch.ops.aten.abs.default, (values["x"],), {})
        return [builder.call(torch.ops.aten.add.Tensor, (first, values["y"]), {})]


@pytest.mark.parametrize("late", [(), ("y",)])
def test_inputs_are_computed_behind_the_first_calls_of_a_pattern(late: tuple[str, ...]) -> None:
    """What takes the place of a match has to stand behind inputs that are not there when the match begins."""
    choices = SeededChoices(1)
    scope = Scope(Building(choices, draw_plan(choices, Policy(shares={"dynamic": 0.0}))))
    insertion = Insertion(scope, AbsoluteSum(), computed=("y",), late=late)
    insertion.insert()
    assert not insertion.failed
    calls = ["aten.abs.default", "aten.neg.default"] if late else ["aten.neg.default", "aten.abs.default"]
    assert [step.op for step in scope.steps] == [*calls, "aten.add.Tensor"]


class Pinned:
    """Pins what has no elements, which eager torch does and no program can."""

    names: Mapping[str, Any] = {"x": torch.zeros(0)}
    kinds: Mapping[str, Any] = {"x": "input"}
    pins = True

    def run(self, builder: Builder, values: Mapping[str, Any]) -> list[Any]:
        kwargs = {"dtype": torch.float64, "pin_memory": self.pins}
        return [builder.call(torch.ops.aten._to_copy.default, (values["x"],), kwargs)]


def test_no_program_pins_memory() -> None:
    choices = SeededChoices(1)
    scope = Scope(Building(choices, draw_plan(choices, Policy())))
    instance = Pinned()
    assert not Insertion(scope, instance).is_possible()
    instance.pins = False
    assert Insertion(scope, instance).is_possible()


class Quotient:
    """A quotient whose divisor has as many numbers as is said."""

    kinds: Mapping[str, Any] = {"x": "input", "y": "input"}

    def __init__(self, numbers: int) -> None:
        self.names: Mapping[str, Any] = {"x": torch.ones(3, 2), "y": torch.ones(numbers)}

    def run(self, builder: Builder, values: Mapping[str, Any]) -> list[Any]:
        return [builder.call(torch.ops.aten.div.Tensor, (values["x"], values["y"]), {})]


@pytest.mark.parametrize("special", [(), ("y",)])
def test_denormals_are_not_given_to_a_kernel_that_inverts_its_divisor(special: tuple[str, ...]) -> None:
    choices = SeededChoices(1)
    scope = Scope(Building(choices, draw_plan(choices, Policy())))
    assert Insertion(scope, Quotient(2), special=special).is_possible()
    assert Insertion(scope, Quotient(1), special=special).is_possible() == (not special)


def test_what_a_rule_leaves_out_is_given_first_in_every_fourth() -> None:
    source = RulePatterns(load_book("algebra").rule("simplify.sub-neg-to-add"))
    first = {number: next(source.candidates("near", number)).what for number in (*range(0, 40, 4), *range(2, 40, 4))}
    given = {number for number, what in first.items() if what.startswith("aten.sub.Tensor: alpha = ")}
    assert given >= set(range(0, 40, 4))
    assert not given >= set(range(2, 40, 4))
