"""Programs around something that is inserted: the patterns of rules under test, and models that passes look for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exirkit.fuzz.generation.choices import Choices, SeededChoices
from exirkit.fuzz.generation.generating import fill_method, finished, generate_from
from exirkit.fuzz.generation.method.building import Building
from exirkit.fuzz.generation.method.finishing import runs_of
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.policy import Policy, draw_plan
from exirkit.fuzz.programs import Program
from exirkit.patterns import CompiledRule, near_instances

from .insertion import Insertion
from .sources import POSITIVE, Candidate, PatternSource, RulePatterns, Way

SURROUNDINGS = Policy(
    least_calls=0,
    most_calls=5,
    shares={"two_symbols": 0.1, "several_methods": 0.02, "mutable_buffer": 0.15, "stored": 0.3, "quantized": 0.05},
    rule_patterns=0.0,
)
"""What is around an inserted pattern by default."""


@dataclass(frozen=True)
class ProgramWithPattern:
    """A program, and what is inserted in it.

    Attributes:
        program: The program.
        source: Name of the rule, pattern or model; None if nothing is insertion.
        way: In which way it is there.
        what: Which part is missing, or what is changed.
    """

    program: Program
    source: str | None = None
    way: Way | None = None
    what: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the whole pattern is there."""
        return self.way in POSITIVE


def generate_with_pattern(
    seed: int, sources: Sequence[PatternSource], policy: Policy | None = None
) -> ProgramWithPattern:
    """Return the program of a seed, into which a pattern of one of several sources is inserted.

    Sources take turns, and for each of them the ways: the pattern, and what is nearly one. Now and then nothing is
    insertion.

    Args:
        seed: Not negative.
        sources: What to insert; nothing if there are none.
        policy: What is around it.
    """
    choices = SeededChoices(seed)
    if not sources:
        return ProgramWithPattern(generate_from(choices, policy or Policy()))
    turn, at = divmod(seed, len(sources))
    return program_with_pattern(choices, sources[at], sources[at].ways[turn % len(sources[at].ways)], turn, policy)


def program_with_pattern(
    choices: Choices, source: PatternSource, way: Way | None, number: int, policy: Policy | None = None
) -> ProgramWithPattern:
    """Return the program that some choices make around a source.

    Args:
        choices: Of the program around it.
        source: What to candidate.
        way: In which way; where that cannot be had, the whole pattern is insertion.
        number: Of the values.
        policy: What is around it.
    """
    ways: tuple[Way, ...] = () if way is None else (way, "near", "match") if way == "special" else (way, "match")
    for one in ways:
        for candidate in source.candidates(one, number):
            program = around(choices, candidate, policy)
            if program is not None:
                return ProgramWithPattern(program, source.name, candidate.way, candidate.what)
    return ProgramWithPattern(generate_from(choices, policy or Policy()))


def around(choices: Choices, candidate: Candidate, policy: Policy | None = None) -> Program | None:
    """Return a random program around an inserted pattern, or None if programs do not have such operators or values."""
    building = Building(choices, draw_plan(choices, policy or SURROUNDINGS))
    scope = Scope(building)
    insertion = Insertion(
        scope,
        candidate.instance,
        exposed=candidate.way == "shared",
        special=candidate.special,
        varied=True,
        limited=candidate.limited,
        computed=candidate.computed,
    )
    if not insertion.is_possible():
        return None
    method = fill_method(scope, "forward", is_first=True, extra=(insertion.insert,))
    return None if insertion.failed else finished(building, runs_of(building, {"forward": scope}), [method])


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
    candidates = RulePatterns(rule).candidates("match", seed)
    programs = (around(SeededChoices(seed), one, policy) for one in candidates)
    return next((one for one in programs if one is not None), None)


def near_misses(rule: CompiledRule, seed: int, policy: Policy | None = None) -> Iterator[tuple[str, Program]]:
    """Yield programs that lack one part of a rule each, and that part: a guard, a literal, a repeated variable.

    Structural ones come last: a value inside the pattern is used by another call as well.
    """
    for text, instance in near_instances(rule, seed + 1, seed=seed % 7):
        program = around(SeededChoices(seed), Candidate(instance, "near", text), policy)
        if program is not None:
            yield text, program
    for candidate in RulePatterns(rule).candidates("shared", seed):
        program = around(SeededChoices(seed), candidate, policy)
        if program is not None:
            yield "values inside the pattern are used nowhere else", program
            return
