"""Programs that campaigns start with: of many generated ones those that together reach most of the compiler.

A random program in a hundred reaches what a few conditions of the compiler are about, and most of a short campaign
repeats what others have reached. `python -m tools.seed_corpus` has checked thousands of programs, and kept of those
that add something what adds it: outcomes of conditions, rules and passes that change something, and operators with the
kinds of their arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from exirkit.fuzz.programs import Program, parse_program

from .generating import generate

FILE = Path(__file__).with_name("seed_corpus.txt")


@cache
def corpus() -> tuple[tuple[int, str], ...]:
    """Return the seed that each program was generated from, and its text; those that add the most come first."""
    parts = re.split(r"^# seed (\d+)\n", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return tuple((int(seed), text) for seed, text in zip(parts[1::2], parts[2::2], strict=True))


def corpus_text(programs: Iterable[tuple[int, str]]) -> str:
    """Return what the file says that has these programs."""
    return "".join(f"# seed {seed}\n{text}" for seed, text in programs)


def program_of(seed: int) -> Program:
    """Return the program of a seed of a campaign: the first ones are the corpus.

    Args:
        seed: Not negative.
    """
    return parse_program(corpus()[seed][1]) if is_of_corpus(seed) else generate(seed)


def is_of_corpus(seed: int) -> bool:
    """Return whether the program of a seed of a campaign is one of the corpus."""
    return seed < len(corpus())


def seed_of_choices(seed: int) -> int:
    """Return the seed that decides with which choices of the chain the program of a seed is compiled.

    Programs of the corpus keep those with which they reached what they are there for.
    """
    return corpus()[seed][0] if is_of_corpus(seed) else seed
