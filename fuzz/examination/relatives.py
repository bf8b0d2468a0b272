"""Programs that must compute the same as another one, because they say the same in other words or in another order."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch

from exirkit.fuzz.programs import (
    Argument,
    Body,
    Call,
    Contents,
    Input,
    Method,
    Program,
    Ref,
    Run,
    TensorType,
    mapped,
    names_in,
)

Relative: TypeAlias = "Callable[[Program, int], tuple[Program, str]]"
"""Makes a program that must compute the same of a program and a seed, and says what was done; no text: nothing."""

_MOST_ELEMENTS = 4096


# Other names


def renamed(program: Program, seed: int) -> tuple[Program, str]:
    """Give all values, stored tensors and bodies other names, whose alphabetical order is another one too."""
    names = sorted(_all_names(program))
    numbers = random.Random(seed).sample(range(len(names)), len(names))
    new = {name: f"n{number}" for name, number in zip(names, numbers, strict=True)}
    stored = tuple(replace(one, name=new[one.name]) for one in program.stored)
    methods = tuple(_renamed_method(one, new) for one in program.methods)
    runs = tuple(
        replace(run, inputs={new[name]: contents for name, contents in run.inputs.items()}) for run in program.runs
    )
    inexact = frozenset(new[one] for one in program.inexact)
    undecided = frozenset(new[one] for one in program.undecided)
    changed = replace(program, stored=stored, methods=methods, runs=runs, inexact=inexact, undecided=undecided)
    return changed, "other names"


def _all_names(program: Program) -> set[str]:
    found = {one.name for one in program.stored}
    for method in program.methods:
        found |= {one.name for one in method.inputs} | _names_of(method.steps)
    return found


def _names_of(steps: Sequence[Call]) -> set[str]:
    found = {name for step in steps for name in step.results if name is not None}
    for body in (body for step in steps for body in step.bodies):
        found |= {body.name, *body.inputs} | _names_of(body.steps)
    return found


def _renamed_method(method: Method, new: Mapping[str, str]) -> Method:
    return replace(
        method,
        inputs=tuple(replace(one, name=new[one.name]) for one in method.inputs),
        steps=_renamed_steps(method.steps, new),
        outputs=mapped(method.outputs, _renaming(new)),
        updates=tuple((new[target], Ref(new[source.name])) for target, source in method.updates),
    )


def _renaming(new: Mapping[str, str]) -> Callable[[Argument], Argument]:
    return lambda one: Ref(new.get(one.name, one.name)) if isinstance(one, Ref) else one


def _renamed_steps(steps: Sequence[Call], new: Mapping[str, str]) -> tuple[Call, ...]:
    return tuple(
        replace(
            step.with_arguments(_renaming(new)),
            results=tuple(None if name is None else new.get(name, name) for name in step.results),
            bodies=tuple(_renamed_body(body, new) for body in step.bodies),
        )
        for step in steps
    )


def _renamed_body(body: Body, new: Mapping[str, str]) -> Body:
    return Body(
        new.get(body.name, body.name),
        tuple(new.get(name, name) for name in body.inputs),
        _renamed_steps(body.steps, new),
        mapped(body.outputs, _renaming(new)),
    )


# Another order


def reordered(program: Program, seed: int) -> tuple[Program, str]:
    """Make the calls of every method in another order in which everything is there before it is used."""
    chooser = random.Random(seed)
    methods = tuple(replace(one, steps=_shuffled(one.steps, chooser)) for one in program.methods)
    if methods == program.methods:
        return program, ""
    return replace(program, methods=methods), "another order of independent calls"


def _shuffled(steps: Sequence[Call], chooser: random.Random) -> tuple[Call, ...]:
    made = {name: at for at, step in enumerate(steps) for name in step.results if name is not None}
    waits = {at: {made[name] for name in names_in(step.arguments) if name in made} for at, step in enumerate(steps)}
    order: list[int] = []
    while waits:
        ready = [at for at, needed in waits.items() if not needed]
        chosen = chooser.choice(ready)
        del waits[chosen]
        for needed in waits.values():
            needed.discard(chosen)
        order.append(chosen)
    return tuple(steps[at] for at in order)


# Dead code


def with_dead_code(program: Program, seed: int) -> tuple[Program, str]:
    """Make some calls twice, under other names, in a chain of which nothing uses the end."""
    chooser = random.Random(seed)
    methods, count = [], 0
    inexact, undecided = program.inexact, program.undecided
    for method in program.methods:
        copied = {at for at in range(len(method.steps)) if chooser.random() < 0.5}
        names = _names_of([step for at, step in enumerate(method.steps) if at in copied])
        new = {name: f"dead_{name}" for name in names}
        steps: list[Call] = []
        for at, step in enumerate(method.steps):
            steps.append(step)
            if at in copied:
                steps += _renamed_steps([step], new)
        methods.append(replace(method, steps=tuple(steps)))
        inexact |= {new[name] for name in names & inexact}
        undecided |= {new[name] for name in names & undecided}
        count += len(copied)
    changed = replace(program, methods=tuple(methods), inexact=inexact, undecided=undecided)
    return changed, f"{count} calls made twice" if count else ""


# In two parts


def halves(
    program: Program, method: Method, run: Run, values: Mapping[str, Any], seed: int
) -> tuple[Program, Callable[[Sequence[Any]], Program]] | None:
    """Cut a method in two.

    Args:
        program: The program.
        method: One of its methods, without sizes that vary.
        run: A run of it, the only one of both parts.
        values: All values of the method in that run, by name.
        seed: Decides where.

    Returns:
        The first part, which returns what the second one needs, and what makes the second part of what the first one
        returned; None if there is no place to cut.
    """
    places = list(range(1, len(method.steps)))
    random.Random(seed).shuffle(places)
    given = {one.name for one in method.inputs} | {one.name for one in program.stored}
    for place in places:
        rest = replace(method, steps=method.steps[place:])
        made = {name for step in method.steps[:place] for name in step.results if name is not None}
        crossing = sorted((rest.names_read & made) - given)
        if crossing and all(_is_small(values.get(name)) for name in crossing):
            outputs = tuple(Ref(name) for name in crossing)
            first = replace(method, steps=method.steps[:place], outputs=outputs, updates=())
            return _alone(program, first, run), partial(_second, program, rest, run, crossing)
    return None


def _second(program: Program, rest: Method, run: Run, crossing: Sequence[str], found: Sequence[Any]) -> Program:
    inputs = list(rest.inputs)
    contents = dict(run.inputs)
    for name, value in zip(crossing, found, strict=True):
        inputs.append(Input(name, TensorType(value.dtype, tuple(value.shape))))
        contents[name] = Contents("numbers", numbers=tuple(value.reshape(-1).tolist()))
    return _alone(program, replace(rest, inputs=tuple(inputs)), replace(run, inputs=contents))


def _alone(program: Program, method: Method, run: Run) -> Program:
    names = _names_of(method.steps) | {one.name for one in method.inputs} | {one.name for one in program.stored}
    return replace(
        program, methods=(method,), runs=(run,), inexact=program.inexact & names, undecided=program.undecided & names
    )


def _is_small(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and 0 < value.numel() <= _MOST_ELEMENTS
        and value.dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
    )
