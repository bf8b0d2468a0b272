"""The programs of this folder as a campaign.

`exirkit fuzz --bench tests/fuzz/official/corpus.py:Corpus --target official`
"""

from __future__ import annotations

from pathlib import Path

from exirkit.fuzz.campaigns import Case
from exirkit.fuzz.campaigns.standard import StandardBench
from exirkit.fuzz.generation import features_of
from exirkit.fuzz.programs import Program, parse_program

FILES = sorted(Path(__file__).parent.glob("*.txt"))


class Corpus(StandardBench):
    """The programs, by number instead of by seed."""

    def make(self, seed: int) -> Case[Program]:
        """Read a program; after the last one the first comes again."""
        file = FILES[seed % len(FILES)]
        text = file.read_text(encoding="utf-8")
        program = parse_program(text, file=file.name)
        steps = sum(len(method.steps) for method in program.methods)
        return Case(seed, program, text, steps, frozenset(features_of(program)))
