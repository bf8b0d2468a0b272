"""Programs made from rules: a rule's pattern inside a random program, or something that lacks one part of it."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.generation.choices import SeededChoices
from exirkit.fuzz.generation.generating import fill_method, finished
from exirkit.fuzz.generation.method.building import Building
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.policy import Policy, draw_plan
from exirkit.fuzz.programs import Program
from exirkit.patterns import (
    CompiledRule,
    PatternInstance,
    near_instances,
    pattern_instance,
)

from .insertion import Insertion

_TRIES = 12

_AROUND = Policy(
    least_calls=0,
    most_calls=5,
    shares={"two_symbols": 0.1, "several_methods": 0.02, "mutable_buffer": 0.15, "stored": 0.3, "quantized": 0.05},
)


def from_rule(rule: CompiledRule, seed: int, policy: Policy | None = None) -> Program | None:
    """Return a program in which a rule has to fire.

    Args:
        rule: Any rule.
        seed: Of values, of the way through the pattern, and of the program around it.
        policy: Of the program around it.

    Returns:
        The program, or None if the pattern cannot be written as one: it needs operators that no program has, or values
        that the rule's own types and guards do not give.
    """
    for number in range(1, _TRIES):
        instance = pattern_instance(rule, seed * _TRIES + number, seed=seed % 7)
        program = None if instance is None else program_of(instance, seed, policy)
        if program is not None:
            return program
    return None


def near_misses(rule: CompiledRule, seed: int, policy: Policy | None = None) -> Iterator[tuple[str, Program]]:
    """Yield programs that lack one part of a rule each, and that part: a guard, a literal, a repeated variable.

    Structural ones come last: a value inside the pattern is returned as well.
    """
    for text, instance in near_instances(rule, seed + 1, seed=seed % 7):
        program = program_of(instance, seed, policy)
        if program is not None:
            yield text, program
    whole = pattern_instance(rule, seed + 1, seed=seed % 7)
    program = None if whole is None else program_of(whole, seed, policy, exposed=True)
    if program is not None:
        yield "values inside the pattern are used nowhere else", program


def program_of(
    instance: PatternInstance, seed: int, policy: Policy | None = None, *, exposed: bool = False
) -> Program | None:
    """Return a random program around an instance of a pattern.

    Args:
        instance: The pattern and its values.
        seed: Of the program around it.
        policy: Likewise.
        exposed: Return the values inside the pattern as well.
    """
    choices = SeededChoices(seed)
    building = Building(choices, draw_plan(choices, policy or _AROUND))
    scope = Scope(building)
    insertion = Insertion(scope, instance, exposed=exposed)
    if not insertion.is_possible():
        return None
    method = fill_method(scope, "forward", is_first=True, extra=(insertion.insert,))
    if insertion.failed:
        return None
    return finished(building, {"forward": scope}, [method])
