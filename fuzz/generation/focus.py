"""Programs that reach a part of the compiler: which do is known by function, from what thousands have reached.

A function that one program in a hundred calls is called by most that have some operator or feature. The file
`reach.json` says which, and which programs of the seed corpus have outcomes of its conditions that few others have:
`python -m tools.seed_corpus reach` has written it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from exirkit.fuzz.programs import Program, parse_program
from exirkit.ir import Diagnostic, UsageError, did_you_mean
from exirkit.passes import beyond_core
from exirkit.patterns import ELEMENT_RANGES, load_analysis, name_of, shipped_propagations

from .choices import SeededChoices
from .generating import generate
from .patterns.shipped_rules import shipped_rules
from .policy import ANALYSED, OPERATOR, RULE, Policy
from .seed_corpus import corpus

FILE = Path(__file__).with_name("reach.json")
_PACKAGE = "exirkit."
CHOICE = "choice:"
"""How features begin that are choices of the chain."""

_TURN = 2


@dataclass(frozen=True)
class Reach:
    """What reaches a function.

    Attributes:
        features: Of programs, as `Policy.focus` has them, and choices of the chain; the likeliest come first. Those
            that only help together are joined by a blank.
        seeds: Of programs of the seed corpus that reach what few others reach of it.
    """

    features: tuple[str, ...]
    seeds: tuple[int, ...]


class Focus:
    """Programs for a part of the compiler: those of the seed corpus that reach it in turn with generated ones.

    What is not known to need anything is reached by most programs: for it these are the usual ones.

    Args:
        names: Packages, modules, classes and functions of modules below `exirkit`, such as `passes.legalize` or
            `passes.optimize.fold_constants:KnownValues.values`, shipped rules, `rule:ID`, and what analyses know of
            operators, `analysis:ID:OPERATOR`.

    Raises:
        UsageError: EK847, an unknown name, or one that no program reaches.
    """

    def __init__(self, names: Sequence[str]) -> None:
        found = [one for name in names for one in _reach_of(name)]
        # The first of each before the second of any.
        self.features = tuple(dict.fromkeys(_in_turn([one.features for one in found])))
        seeds = dict.fromkeys(_in_turn([one.seeds for one in found]))
        places = {seed: place for place, (seed, _) in enumerate(corpus())}
        first = [places[seed] for seed in seeds if seed in places]
        self._places = tuple(dict.fromkeys((*first, *places.values())))

    def program_of(self, seed: int) -> Program:
        """Return the program of a seed of a campaign.

        Args:
            seed: Not negative.
        """
        if self._is_of_corpus(seed):
            return parse_program(corpus()[self._places[seed // _TURN]][1])
        return generate(seed, Policy(focus=frozenset(self._chosen(seed))))

    def choices_of(self, seed: int) -> tuple[int, frozenset[str]]:
        """Return the seed of the choices of the chain, and the names of those that are not to be the usual ones."""
        if self._is_of_corpus(seed):
            return corpus()[self._places[seed // _TURN]][0], frozenset()
        chosen = (one for one in self._chosen(seed) if one.startswith(CHOICE))
        return seed, frozenset(one.removeprefix(CHOICE) for one in chosen)

    def _is_of_corpus(self, seed: int) -> bool:
        return seed % _TURN == 0 and seed // _TURN < len(self._places)

    def _chosen(self, seed: int) -> list[str]:
        """Return one or two features, the first ones oftener."""
        if not self.features:
            return []
        choices = SeededChoices(seed)
        drawn = [choices.integer(0, choices.integer(0, len(self.features) - 1)) for _ in range(2)]
        return [one for place in drawn[: choices.integer(1, 2)] for one in self.features[place].split()]


def focusable() -> Collection[str]:
    """Return what a focus can name: functions that programs are known to reach, rules, and rows of analyses."""
    return {*_table(), *_decomposed(), *_analysed(), *(f"{RULE}{one.id}" for one in shipped_rules())}


def _reach_of(name: str) -> list[Reach]:
    table = _table()
    for known in (table, _decomposed(), _analysed()):
        if name in known:
            return [known[name]]
    if found := [one for key, one in table.items() if key.startswith((f"{name}:", f"{name}."))]:
        return found
    rules = [f"{RULE}{one.id}" for one in shipped_rules()] if name.startswith(RULE) else []
    if name in rules:
        return [Reach((name,), ())]
    raise UsageError(
        Diagnostic(
            code="EK847",
            message=f"no generated program is known to reach {name!r}",
            expected="a module, function or rule, such as passes.legalize or rule:simplify.relu-of-sigmoid-drop",
            hint=did_you_mean(name, rules or table),
        )
    )


@cache
def _decomposed() -> dict[str, Reach]:
    """Return what reaches our decompositions, measured or not: calls of their operators."""
    found: dict[str, list[str]] = {}
    for op, function in beyond_core().items():
        module = getattr(function, "__module__", "")
        if module.startswith(_PACKAGE):
            name = f"{module.removeprefix(_PACKAGE)}:{function.__qualname__}"
            found.setdefault(name, []).append(f"{OPERATOR}{name_of(op)}")
    return {name: Reach(tuple(operators), ()) for name, operators in found.items()}


@cache
def _analysed() -> dict[str, Reach]:
    """Return what reaches the rows of analyses: calls of their operators, on bounded values for the one of ranges."""
    found = {}
    for analysis in shipped_propagations():
        model = load_analysis(analysis).model
        for op in sorted({op for row in getattr(model, "transfer", ()) for op in row.ops}):
            # Programs call what the Edge dialect has copies of.
            feature = f"{OPERATOR}{op.replace('_copy.', '.')}"
            features = [f"{ANALYSED} {feature}", feature] if analysis == ELEMENT_RANGES else [feature]
            found[f"analysis:{analysis}:{op}"] = Reach(tuple(features), ())
    return found


def _in_turn(lists: Sequence[Sequence[Any]]) -> list[Any]:
    longest = max(map(len, lists), default=0)
    return [one[place] for place in range(longest) for one in lists if place < len(one)]


@cache
def _table() -> dict[str, Reach]:
    read = json.loads(FILE.read_text(encoding="utf-8"))
    names = read["features"]
    return {
        f"{module}:{function}": Reach(tuple(names[one] for one in features), tuple(seeds))
        for module, entries in read["functions"].items()
        for function, (features, seeds) in entries.items()
    }
