"""Rules fire in the programs that are made from them."""

from __future__ import annotations

from dataclasses import replace

from tests.patterns.rule_files import book

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.examination import Examination
from exirkit.fuzz.generation import Policy, from_rule, generate, near_misses
from exirkit.fuzz.programs import Program, build, parse_program, program_text, run_eagerly
from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns import CompiledRule, RuleEngine, shipped_books


def fires(rule: CompiledRule, program: Program) -> bool:
    editor = GraphEditor(copy_program(build(program)["forward"]))
    always = replace(rule, rule=rule.rule.model_copy(update={"choose": "always"}))
    return bool(RuleEngine([always]).run(editor).journal)


def rules_of(books: tuple[str, ...]) -> list[CompiledRule]:
    return [rule for name in books for rule in book(name).rules]


def test_rules_fire_in_programs_made_from_them() -> None:
    rules = rules_of(shipped_books()[:2])[:10]
    made = [(rule, program) for rule in rules if (program := from_rule(rule, 1)) is not None]
    assert len(made) >= 0.9 * len(rules)
    for _, program in made:
        assert parse_program(program_text(program)) == program
        run_eagerly(program)
    fired = [rule.id for rule, program in made if fires(rule, program)]
    assert len(fired) >= 0.9 * len(made)


def test_nearly_all_shipped_rules_fire_in_one_of_three_programs() -> None:
    rules = rules_of(shipped_books())
    dead = [rule.id for rule in rules if not any(_fires_with(rule, seed) for seed in range(3))]
    assert len(dead) <= 0.04 * len(rules), dead


def _fires_with(rule: CompiledRule, seed: int) -> bool:
    program = from_rule(rule, seed)
    return program is not None and fires(rule, program)


def test_near_misses_run() -> None:
    made = 0
    for rule in rules_of(shipped_books()[:1])[:4]:
        for part, program in near_misses(rule, 2):
            assert part
            run_eagerly(program)
            made += 1
    assert made >= 5


def test_patterns_of_shipped_rules_are_in_generated_programs() -> None:
    policy = Policy(rule_patterns=1.0)
    applied = 0
    for seed in range(12):
        examination = Examination(generate(seed, policy), ExirkitCompiler(), seed)
        assert examination.lowering.data
        applied += bool(examination.trace.applied)
    assert applied >= 8
