"""Which dtypes each operator takes and returns, as recorded in `measured/dtypes.yaml`.

The file is made by running the operators (`python -m tools.dtypes.measure`). A line of it is a rule such as
`T T -> T; T: floating`: what stands before the arrow are dtypes of arguments, what stands behind it dtypes of results.
`T` is one dtype wherever it stands in a line; other words are dtypes, names of sets, or several of them between `|`;
`none` is an argument that is not given. A call is legal if one line admits it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from .catalogue import load_yaml

_SETS: Mapping[str, tuple[str, ...]] = {
    "integer": ("uint8", "int8", "int16", "int32", "int64"),
    "index": ("int32", "int64"),
    "floating": ("float16", "bfloat16", "float32", "float64"),
}
"""Names of sets in rules; `any` and `number` are made of them."""

ALL_DTYPES: tuple[str, ...] = ("bool", *_SETS["integer"], *_SETS["floating"])
"""Every dtype that was tried, in the order of promotion."""

AS_TORCH = "as torch"
"""Stands in the file where the runtime takes and returns what torch does."""

_NAMED: Mapping[str, tuple[str, ...]] = {**_SETS, "any": ALL_DTYPES, "number": ALL_DTYPES[1:]}

Dtypes = tuple[str, ...]


@dataclass(frozen=True)
class OperatorDtypes:
    """What one operator takes and returns.

    Attributes:
        arguments: Names of the arguments that have, or are, a dtype.
        rules: Lines of the file.
        is_sampled: Not all combinations were tried, only those in which at most one argument differs from the others.
    """

    arguments: tuple[str, ...]
    rules: tuple[str, ...]
    is_sampled: bool = False

    @cached_property
    def results(self) -> Mapping[Dtypes, frozenset[Dtypes]]:
        """Dtypes that may be returned, by those of the arguments."""
        found: dict[Dtypes, set[Dtypes]] = {}
        for rule in self.rules:
            for given, returned in expand_rule(rule):
                found.setdefault(given, set()).add(returned)
        return {given: frozenset(returned) for given, returned in found.items()}

    def is_known(self, given: Dtypes) -> bool:
        """Return whether it was tried what the operator makes of arguments of these dtypes."""
        present = [one for one in given if one != "none"]
        if any(one not in ALL_DTYPES for one in present):
            return False
        most = max((present.count(one) for one in present), default=0)
        return not self.is_sampled or most >= len(present) - 1


def dtype_arguments(op: Any) -> tuple[str, ...]:
    """Return the arguments of an operator that have a dtype, or are one, in the order of its schema."""
    return tuple(
        argument.name
        for argument in op._schema.arguments
        if "Tensor" in str(argument.real_type) or "ScalarType" in str(argument.real_type)
    )


def expand_rule(rule: str) -> Iterator[tuple[Dtypes, Dtypes]]:
    """Yield the combinations that a rule admits: dtypes of arguments, dtypes of results."""
    body, _, bound = rule.partition(";")
    left, _, right = body.partition("->")
    given, returned = left.split(), right.split()
    words = [*given, *returned]
    variable = bound.partition(":")[2].strip()
    for value in dtypes_named(variable) if variable else ("",):
        choices = [(value,) if word == "T" else dtypes_named(word) for word in words]
        for each in itertools.product(*choices):
            yield each[: len(given)], each[len(given) :]


def dtypes_named(word: str) -> Dtypes:
    """Return the dtypes that a word of a rule stands for."""
    return tuple(dtype for part in word.split("|") for dtype in _NAMED.get(part, (part,)))


def word_for(dtypes: Sequence[str]) -> str:
    """Return the shortest word of a rule that stands for these dtypes."""
    wanted = set(dtypes)
    for name in ("any", "number", "integer", "floating", "index"):
        if wanted == set(_NAMED[name]):
            return name
    words = []
    for name in ("number", "integer", "floating"):
        if wanted >= set(_NAMED[name]):
            words.append(name)
            wanted -= set(_NAMED[name])
    return "|".join([*(one for one in (*ALL_DTYPES, "none") if one in wanted), *words])


@cache
def known_dtypes(runtime: bool = False) -> Mapping[str, OperatorDtypes]:
    """Return the catalogue, by names such as `aten.add.Tensor`.

    Args:
        runtime: What the kernels of the ExecuTorch runtime take, instead of what those of torch take.
    """
    text = files(__package__).joinpath("measured", "dtypes.yaml").read_text(encoding="utf-8")
    entries: dict[str, Any] = load_yaml(text)
    column = "runtime" if runtime else "torch"
    return {
        name: OperatorDtypes(
            tuple(entry["arguments"]),
            tuple(entry["torch" if entry[column] == AS_TORCH else column]),
            bool(entry.get("sampled") or (runtime and entry.get("runtime-sampled"))),
        )
        for name, entry in entries["operators"].items()
        if column in entry
    }
