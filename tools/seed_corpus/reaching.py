"""What reaches a function: the operators and features of programs with which its rare outcomes come together."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from rich.progress import track

import exirkit
from exirkit.fuzz.compilers import ExirkitCompiler, drawn_choices, unusual_choices
from exirkit.fuzz.generation import CHOICE, CONTROL_FLOW, FLOORS, Policy, SeededChoices, features_of, shipped_operators
from exirkit.fuzz.generation.operators.samples import sampled_operators
from exirkit.fuzz.generation.policy import MISTAKEN, REPLACED, draw_plan
from exirkit.fuzz.programs import parse_program

from .entries import Entry, number_of
from .probes import COMPILER, outcomes_of

_COMMON = 0.3
"""Share of programs from which on what they reach needs no help."""
_LEAST_PROGRAMS = 2
_MOST_FEATURES, _MOST_SEEDS = 12, 8
_LEAST_GAIN = 2.0
"""How many times as likely a program with a feature is to reach something as any program, at least."""
_ROWS = 2000

Function = tuple[str, str]
"""Module and qualified name."""


def reach_text(pool: Sequence[Entry], corpus: Sequence[Entry]) -> str:
    """Return what is written: features, and by module and function places of these and seeds of the corpus."""
    functions = _functions()
    found = [_features(one) for one in track(pool, "reading programs")]
    names = sorted(frozenset[str]().union(*found))
    column = {name: place for place, name in enumerate(names)}
    has = torch.zeros(len(pool), len(names))
    for row, features in enumerate(found):
        has[row, [column[one] for one in features]] = 1

    scores: dict[Function, dict[int, float]] = {
        functions[number]: defaultdict(float) for one in pool for number in one.reached if number in functions
    }
    for number, feature, score in _likeliest(pool, functions, has):
        scores[functions[number]][feature] += score
    seeds = _seeds(corpus, functions)
    chosen = {one: _greatest(each)[:_MOST_FEATURES] for one, each in scores.items()}
    used = sorted({place for each in chosen.values() for place in each})
    renumbered = {place: index for index, place in enumerate(used)}
    modules: dict[str, dict[str, list[list[int]]]] = defaultdict(dict)
    for one in sorted(chosen):
        modules[one[0]][one[1]] = [[renumbered[place] for place in chosen[one]], seeds.get(one, [])]
    lines = [f"{json.dumps(module)}:{json.dumps(each, separators=(',', ':'))}" for module, each in modules.items()]
    features_text = json.dumps([names[place] for place in used], separators=(",", ":"))
    return f'{{"features":{features_text},\n"functions":{{\n' + ",\n".join(lines) + "\n}}\n"


def _functions() -> dict[int, Function]:
    """Return the function of each outcome that may be recorded, by number."""
    found: dict[int, Function] = {}
    root = Path(exirkit.__file__).parent
    for package in COMPILER:
        folder = root / package.removeprefix("exirkit.")
        for path in sorted(folder.rglob("*.py")):
            module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            for function, outcomes in outcomes_of(path, module).items():
                found.update((number_of(one), (module, function)) for one in outcomes)
    return found


def _features(entry: Entry) -> frozenset[str]:
    """Return what can be asked of a program that has what a program has."""
    program = parse_program(entry.program)
    asked = draw_plan(SeededChoices(entry.seed), Policy()).requests
    read = features_of(program)
    known = {*FLOORS, *CONTROL_FLOW, *MISTAKEN, *REPLACED}
    operators = {f"op:{name}" for name in (*sampled_operators(), *(one.name for one in shipped_operators()))}
    choices = unusual_choices(drawn_choices(ExirkitCompiler(), entry.seed))
    return (asked & known) | (read & (known | operators)) | {f"{CHOICE}{name}" for name in choices}


def _likeliest(
    pool: Sequence[Entry], functions: Mapping[int, Function], has: torch.Tensor
) -> Iterator[tuple[int, int, float]]:
    """Yield of each outcome that is rare the feature that makes it likeliest, and how likely."""
    rows: dict[int, list[int]] = defaultdict(list)
    for row, one in enumerate(pool):
        for number in one.reached:
            rows[number].append(row)
    rare = [
        number
        for number, each in rows.items()
        if number in functions and _LEAST_PROGRAMS <= len(each) < _COMMON * len(pool)
    ]
    support = has.sum(0)
    for first in track(range(0, len(rare), _ROWS), "counting"):
        numbers = rare[first : first + _ROWS]
        reached = torch.zeros(len(numbers), len(pool))
        for row, number in enumerate(numbers):
            reached[row, rows[number]] = 1
        together = reached @ has
        # The lower end of Wilson's interval for a share: a feature of few programs says little.
        share = together / support
        spread = (share * (1 - share) / support + 1 / (4 * support**2)).sqrt()
        lower = (share + 1 / (2 * support) - spread) / (1 + 1 / support)
        usual = reached.mean(1, keepdim=True)
        lower[(together < _LEAST_PROGRAMS) | (share < _LEAST_GAIN * usual)] = 0
        best = lower.max(1)
        yield from (
            (number, int(place), float(score))
            for number, place, score in zip(numbers, best.indices, best.values, strict=True)
            if score > 0
        )


def _seeds(corpus: Sequence[Entry], functions: Mapping[int, Function]) -> dict[Function, list[int]]:
    """Return the programs of the corpus that reach the most of a function that few others reach."""
    counts = Counter(number for one in corpus for number in one.reached)
    found: dict[Function, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for one in corpus:
        for number in one.reached:
            if number in functions and counts[number] < _COMMON * len(corpus):
                found[functions[number]][one.seed] += 1 / counts[number]
    return {function: _greatest(each)[:_MOST_SEEDS] for function, each in found.items()}


def _greatest(scores: Mapping[int, float]) -> list[int]:
    """Return numbers by falling score; the lesser first of two with the same."""
    return sorted(scores, key=lambda one: (-scores[one], one))
