"""Calls with values, recorded from a model or a pattern, and the same with a change in one place."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from exirkit.ir import underlying
from exirkit.patterns import INSTANCE_ERRORS, Builder, name_of

from .insertion import Instance

Kind: TypeAlias = Literal["input", "parameter", "buffer", "constant"]

LEFT_OUT = frozenset({"device", "pin_memory"})
"""Arguments that programs do not have: where a tensor is computed is not for a program to say."""


@dataclass(frozen=True)
class Ref:
    """A use of a value: a leaf, or a result of a call."""

    name: str
    index: int | None = None


@dataclass(frozen=True)
class RecordedCall:
    """A call of an operator.

    Attributes:
        name: Of its result.
        op: The operator.
        args: With `Ref` for values.
        kwargs: By name.
    """

    name: str
    op: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class RecordedInstance:
    """Calls with values for their inputs and for what is stored.

    Attributes:
        names: Tensors by name.
        kinds: What they stand for.
        calls: In order.
        results: What it returns.
    """

    names: Mapping[str, Any]
    kinds: Mapping[str, Kind]
    calls: tuple[RecordedCall, ...]
    results: tuple[Ref, ...]

    def run(self, builder: Builder, values: Mapping[str, Any]) -> list[Any] | None:
        """Run the calls on values for the tensors; return the results."""
        known: dict[str, Any] = dict(values)

        def given(argument: Any) -> Any:
            if isinstance(argument, Ref):
                found = known[argument.name]
                return found if argument.index is None else found[argument.index]
            return [given(one) for one in argument] if isinstance(argument, list | tuple) else argument

        for call in self.calls:
            args = tuple(given(one) for one in call.args)
            known[call.name] = builder.call(call.op, args, {key: given(one) for key, one in call.kwargs.items()})
        return [given(one) for one in self.results]


class _Recorder:
    """Runs calls on tensors, and writes them down."""

    def __init__(self, names: Mapping[str, torch.Tensor]) -> None:
        self.calls: list[RecordedCall] = []
        self.refs = {id(tensor): Ref(name) for name, tensor in names.items()}
        self._alive: list[Any] = []

    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call and write it down."""
        found = op(*args, **kwargs)
        name = f"call {len(self.calls)}"
        written = tuple(self.written(one) for one in args)
        self.calls.append(RecordedCall(name, underlying(op), written, {k: self.written(v) for k, v in kwargs.items()}))
        if isinstance(found, torch.Tensor):
            self.refs[id(found)] = Ref(name)
        else:
            found = list(found)
            self.refs.update((id(one), Ref(name, at)) for at, one in enumerate(found))
        self._alive.append(found)
        return found

    def written(self, given: Any) -> Any:
        """Return an argument with references for tensors."""
        if isinstance(given, torch.Tensor):
            return self.refs[id(given)]
        return [self.written(one) for one in given] if isinstance(given, list | tuple) else given


def recorded(instance: Instance) -> RecordedInstance | None:
    """Return an instance as calls, or None if it does not run on its values."""
    # Tensors of their own, so that each has one name.
    names = {name: instance.names[name].detach().clone() for name in instance.kinds}
    recorder = _Recorder(names)
    try:
        with torch.no_grad():
            found = instance.run(recorder, names)
        if found is None:
            return None
        results = tuple(one for one in map(recorder.written, found) if isinstance(one, Ref))
    except (*INSTANCE_ERRORS, KeyError):
        return None
    return RecordedInstance(names, dict(instance.kinds), tuple(recorder.calls), results)


class Change(NamedTuple):
    """A change in one call.

    Attributes:
        text: What was changed.
        calls: All calls with it.
        is_default: An argument is given that the call leaves out.
    """

    text: str
    calls: tuple[RecordedCall, ...]
    is_default: bool


def changes(whole: RecordedInstance) -> Iterator[Change]:
    """Yield calls with another literal, without an operand, with operands swapped or one for another."""
    for at, call in enumerate(whole.calls):
        for text, changed, is_default in _changed_calls(whole, at, call):
            calls = (*whole.calls[:at], changed, *whole.calls[at + 1 :])
            yield Change(f"{name_of(call.op)}: {text}", calls, is_default)


def shuffled(found: Sequence[Change], rng: random.Random) -> list[Change]:
    """Return changes in random order, but one of each argument before a second one of any.

    An argument of which many other values are tried does not keep those of the others back so.
    """
    groups: dict[str, list[Change]] = {}
    for one in rng.sample(found, len(found)):
        groups.setdefault(one.text.partition(" = ")[0], []).append(one)
    return [one for round_ in zip_longest(*groups.values()) for one in round_ if one is not None]


def _changed_calls(whole: RecordedInstance, at: int, call: RecordedCall) -> Iterator[tuple[str, RecordedCall, bool]]:
    schema = call.op._schema.arguments
    written = {one.name: value for one, value in zip(schema, call.args, strict=False)} | dict(call.kwargs)
    for place, one in enumerate(schema):
        given = one.name in written
        value = written[one.name] if given else one.default_value if one.has_default_value() else None
        if not given and one.kwarg_only and one.name in LEFT_OUT:
            continue
        for other in _other_arguments(value, str(one.real_type), whole, at):
            changed = _with_argument(call, schema, place, other)
            if changed is not None:
                yield f"{one.name} = {_text(other)}", changed, not given
    operands = [place for place, value in enumerate(call.args) if isinstance(value, Ref)]
    for first, second in pairwise(operands):
        args = list(call.args)
        args[first], args[second] = args[second], args[first]
        yield "operands swapped", replace(call, args=tuple(args)), False


def _other_arguments(value: Any, type_name: str, whole: RecordedInstance, at: int) -> Iterator[Any]:
    if isinstance(value, Ref):
        if type_name.startswith("Optional"):
            yield None
        # Another value stands there, such as one that is used twice then.
        earlier = [Ref(name) for name in whole.names] + [Ref(one.name) for one in whole.calls[:at]]
        yield from [one for one in earlier if one != value][-2:]
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, max(value - 1, 0) if value else -1, 2, *([-value] if value else []))
    elif isinstance(value, float):
        yield from (value * 2 + 0.25, value / 2, *([-value] if value else [1.5]))
    elif isinstance(value, list) and value and all(type(one) is int for one in value):
        yield from ([one + 1 for one in value], [value[0] + 1, *value[1:]], value[::-1])
    elif value is None and "Tensor" in type_name and "List" not in type_name:
        yield from [Ref(name) for name, tensor in whole.names.items() if tensor.dim() == 1][:2]


def _with_argument(call: RecordedCall, schema: Sequence[Any], place: int, value: Any) -> RecordedCall | None:
    """Return a call with another argument; those that are left out before it are written with their defaults."""
    one = schema[place]
    if one.kwarg_only or one.name in call.kwargs:
        return replace(call, kwargs={**call.kwargs, one.name: value})
    args = list(call.args)
    while len(args) < place:
        missing = schema[len(args)]
        if not missing.has_default_value() or missing.name in call.kwargs:
            return None
        args.append(missing.default_value)
    args[place : place + 1] = [value]
    return replace(call, args=tuple(args))


def _text(value: Any) -> str:
    return value.name if isinstance(value, Ref) else repr(value)
