"""The end of a method: what it returns, and how it is called."""

from __future__ import annotations

from dataclasses import replace

import torch

from exirkit.fuzz.programs import Argument, Call, Contents, Ref, Run, Size

from .building import Building
from .guards import number_for
from .scope import Scope
from .values import Value

_MOST_OUTPUTS = 12


def outputs_of(scope: Scope) -> tuple[Argument, ...]:
    """Return what a method returns: all unused results, and unusual things at times."""
    choices, building = scope.choices, scope.building
    loose = [value for value in scope.values if value.source == "result" and not value.uses]
    if building.requests("unused_result"):
        loose = _without_unused(scope, loose)
    while len(loose) > _MOST_OUTPUTS:
        loose.pop(choices.integer(0, len(loose) - 2))
    if not loose:
        loose = _something(scope)
    written: list[Argument] = [Ref(value.name) for value in loose]
    if building.requests("output_used_later"):
        inner = [value for value in scope.values if value.source == "result" and value.uses and value not in loose]
        if not inner:
            made = scope.call("aten.clone.default", (loose[0],), loose[0].fact)
            inner, written[0] = [loose[0]], Ref(made.name)
        written.insert(choices.integer(0, len(written)), Ref(choices.pick(inner).name))
    if building.requests("odd_outputs"):
        _add_odd(scope, written)
    for value in loose:
        value.uses += 1
    return tuple(written)


def _something(scope: Scope) -> list[Value]:
    results = [value for value in scope.values if value.source == "result"]
    if results:
        return results[-1:]
    value = scope.values[-1]
    return [scope.call("aten.clone.default", (value,), value.fact)]


def _without_unused(scope: Scope, loose: list[Value]) -> list[Value]:
    """Leave out one result of a call that has several."""
    names = {value.name for value in loose}
    for step in reversed(scope.steps):
        if len(step.results) > 1:
            unused = [name for name in step.results if name in names]
            if unused and len(loose) > 1:
                gone = scope.choices.pick(unused)
                return [value for value in loose if value.name != gone]
    return loose


def _add_odd(scope: Scope, written: list[Argument]) -> None:
    building, choices = scope.building, scope.choices
    kinds = [
        feature
        for feature in ("input_returned", "stored_returned", "same_output_twice", "none_returned", "size_returned")
        if building.requests(feature)
    ]
    if not kinds:
        kinds = [choices.pick(("same_output_twice", "input_returned", "none_returned"))]
    for kind in kinds:
        extra = _odd(scope, kind, written)
        if extra is not _NOTHING:
            written.insert(choices.integer(0, len(written)), extra)  # type: ignore[arg-type]


_NOTHING = object()


def _odd(scope: Scope, kind: str, written: list[Argument]) -> object:
    building = scope.building
    if kind == "input_returned":
        return Ref(scope.inputs[0].name) if scope.inputs else _NOTHING
    if kind == "stored_returned":
        kept = [each for each in building.stored if each.name not in building.written]
        return Ref(kept[0].name) if kept else _NOTHING
    if kind == "same_output_twice":
        return written[0]
    if kind == "none_returned":
        return None
    sizes = [size for each in scope.inputs for size in each.type.sizes if isinstance(size, str)]
    return Size(scope.choices.pick(sizes)) if sizes else _NOTHING


def trimmed_steps(scope: Scope, used: set[str]) -> tuple[Call, ...]:
    """Return the calls of a method; results that nothing refers to have no names.

    Args:
        scope: The method.
        used: Names that calls, outputs or updates refer to.
    """
    steps: list[Call] = []
    for step in scope.steps:
        names = tuple(name if name in used else None for name in step.results)
        steps.append(step if None not in names or len(names) == 1 else replace(step, results=names))
    return tuple(steps)


def use_remaining(scope: Scope) -> None:
    """Use the values that should have been used and were not."""
    for value in list(scope.must_use):
        if value.uses and value not in scope.must_use_again:
            continue
        if value.dtype == torch.bool:
            scope.call("aten.logical_not.default", (value,), value.fact._replace(low=0, high=1))
        elif value.dtype == torch.uint8 or value.magnitude > 2.0**30:
            scope.call("aten.clone.default", (value,), value.fact)
        else:
            number = number_for(value.dtype, 1)
            fact = value.fact._replace(low=-value.fact.high, high=-value.fact.low)
            if abs(value.fact.low) < 64:
                scope.call("aten.neg.default", (value,), fact)
            else:
                scope.call(
                    "aten.eq.Scalar", (value, number), value.fact._replace(dtype=torch.bool, low=0, high=1, bits=0)
                )
    scope.must_use.clear()


def runs_of(building: Building, methods: dict[str, Scope]) -> tuple[Run, ...]:
    """Return the calls of a program: more of them if it has state, and least, greatest and other sizes in turn."""
    choices = building.choices
    count = choices.integer(3, 6) if building.written else choices.integer(1, 3)
    if building.symbols and count < 3:
        count = 3
    if len(methods) > 1:
        count = max(count, 3)
    names = list(methods)
    order = choices.integer(0, 2)
    runs: list[Run] = []
    for number in range(count):
        name = names[number % len(names)] if number < len(names) else choices.pick(names)
        sizes = {
            symbol.name: _size(symbol.low, symbol.high, number, order, at) for at, symbol in enumerate(building.symbols)
        }
        scope = methods[name]
        contents: dict[str, Contents] = {}
        for each in scope.inputs:
            base = scope.contents[each.name]
            contents[each.name] = (
                base if base.kind == "numbers" else replace(base, seed=(base.seed + 101 * number) % 1000)
            )
        runs.append(Run(name, sizes, contents))
    return tuple(runs)


def _size(low: int, high: int, number: int, order: int, at: int) -> int:
    """Return the value of a symbol in one of several runs: low, high, between, low + 1, high, or in another order."""
    between = (low + high) // 2
    schedules = (
        (low, high, between, min(low + 1, high), high, low),
        (between, low, high, high, min(low + 1, high), low),
        (high, low, min(low + 1, high), between, high, low),
    )
    return schedules[(order + at) % 3][number % 6]
