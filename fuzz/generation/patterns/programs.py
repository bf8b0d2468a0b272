"""Programs around something that is planted: the patterns of rules under test, and models that passes look for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exirkit.fuzz.generation.choices import Choices, SeededChoices
from exirkit.fuzz.generation.generating import fill_method, finished, generate_from
from exirkit.fuzz.generation.method.building import Building
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.policy import Policy, draw_plan
from exirkit.fuzz.programs import Program

from .insertion import Planted
from .sources import POSITIVE, Plant, PlantSource, Way

SURROUNDINGS = Policy(
    least_calls=0,
    most_calls=5,
    shares={"two_symbols": 0.1, "several_methods": 0.02, "mutable_buffer": 0.15, "stored": 0.3, "quantized": 0.05},
    rule_patterns=0.0,
)
"""What is around a plant by default."""


@dataclass(frozen=True)
class PlantedProgram:
    """A program, and what is planted in it.

    Attributes:
        program: The program.
        source: Name of the rule, pattern or model; None if nothing is planted.
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


def generate_planted(seed: int, sources: Sequence[PlantSource], policy: Policy | None = None) -> PlantedProgram:
    """Return the program of a seed, in which one of several sources is planted.

    Sources take turns, and for each of them the ways: the pattern, and what is nearly one. Now and then nothing is
    planted.

    Args:
        seed: Not negative.
        sources: What to plant; nothing if there are none.
        policy: What is around it.
    """
    choices = SeededChoices(seed)
    if not sources:
        return PlantedProgram(generate_from(choices, policy or Policy()))
    turn, at = divmod(seed, len(sources))
    return planted_from(choices, sources[at], sources[at].ways[turn % len(sources[at].ways)], turn, policy)


def planted_from(
    choices: Choices, source: PlantSource, way: Way | None, number: int, policy: Policy | None = None
) -> PlantedProgram:
    """Return the program that some choices make around a source.

    Args:
        choices: Of the program around it.
        source: What to plant.
        way: In which way; where that cannot be had, the whole pattern is planted.
        number: Of the values.
        policy: What is around it.
    """
    ways: tuple[Way, ...] = () if way is None else (way, "near", "match") if way == "special" else (way, "match")
    for one in ways:
        for plant in source.plants(one, number):
            program = around(choices, plant, policy)
            if program is not None:
                return PlantedProgram(program, source.name, plant.way, plant.what)
    return PlantedProgram(generate_from(choices, policy or Policy()))


def around(choices: Choices, plant: Plant, policy: Policy | None = None) -> Program | None:
    """Return a random program around a plant, or None if programs do not have such operators or values."""
    building = Building(choices, draw_plan(choices, policy or SURROUNDINGS))
    scope = Scope(building)
    planted = Planted(scope, plant.instance, exposed=plant.way == "shared", special=plant.special, varied=True)
    if not planted.is_possible():
        return None
    method = fill_method(scope, "forward", is_first=True, extra=(planted.plant,))
    return None if planted.failed else finished(building, {"forward": scope}, [method])
