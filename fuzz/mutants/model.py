"""Mutants as data: `passes.yaml`, `planner.yaml`, `emitter.yaml`, `interpreter.yaml`, `verifiers.yaml`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from exirkit.ir import Diagnostic, UsageError

TABLES = ("passes", "planner", "emitter", "interpreter", "verifiers")

Part = Literal["pass", "rules", "planner", "emitter", "interpreter", "verifier"]


class Mutant(BaseModel):
    """One mutant: one piece of the source of one function reads differently.

    Attributes:
        id: Its name.
        part: Kind of the part of the compiler that is changed.
        culprits: What fault localization may name; any of these is right.
        doc: What goes wrong, in one sentence.
        module: Module of the function, below `exirkit`.
        function: Qualified name of the function.
        old: Text that the function has exactly once.
        new: Text instead of it.
        caches: `MODULE:FUNCTION` below `exirkit` whose memory depends on the function, beside those of its module.
        together: Other mutants that are applied with this one: a blind checker needs something to be blind to.
        compiler: Choices of `ExirkitCompiler` without which it cannot show.
        program: A program, as text, in which it changes something.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    part: Part
    culprits: tuple[str, ...]
    doc: str
    module: str
    function: str
    old: str
    new: str
    caches: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    compiler: dict[str, bool | int | str] = {}
    program: str


@cache
def shipped_mutants() -> tuple[Mutant, ...]:
    """Return all mutants, in the order of the tables."""
    found: list[Mutant] = []
    for name in TABLES:
        text = files(__package__ or "exirkit.fuzz.mutants").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
        found += [Mutant.model_validate(entry) for entry in yaml.safe_load(text)]
    return tuple(found)


def mutant(name: str) -> Mutant:
    """Return a mutant by its id.

    Raises:
        UsageError: EK880, there is no such mutant.
    """
    return named(name, shipped_mutants())


def named(name: str, mutants: Sequence[Mutant]) -> Mutant:
    """Return one of several mutants by its id (raises `UsageError` EK880)."""
    for one in mutants:
        if one.id == name:
            return one
    known = ", ".join(one.id for one in mutants)
    raise UsageError(Diagnostic(code="EK880", message=f"there is no mutant {name!r}", expected=f"one of {known}"))
