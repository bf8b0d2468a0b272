"""Which values of a method show memory that a call writes, or the method at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from exirkit.ir import OpOverload, is_composite

from .inference import operator_named
from .language import HIGHER_ORDER
from .model import Argument, Call, Method, Ref, names_in


def read_late(method: Method) -> tuple[str, ...]:
    """Return the buffers and inputs whose old values are still seen when the first of them is written.

    An output or the source of an update shows one by itself or as a view. In a program it means the old value; torch
    would show the new one, and regenerates views after a write when it traces, so such a value is copied before.

    Returns:
        Names that the method updates, in the order of the updates.
    """
    shown: dict[str, frozenset[str]] = {target: frozenset({target}) for target, _ in method.updates}
    for step in method.steps:
        roots = roots_of(step, shown)
        if roots:
            shown.update({name: roots for name in step.results if name is not None})
    late = {root for one in method.outputs if isinstance(one, Ref) for root in shown.get(one.name, ())}
    written: set[str] = set()
    for target, source in method.updates:
        # A buffer that is itself the source of an earlier write than its own is read in time.
        is_read_in_time = source.name in shown and shown[source.name] == {source.name} and source.name not in written
        late |= frozenset() if is_read_in_time else shown.get(source.name, frozenset())
        written.add(target)
    return tuple(target for target, _ in method.updates if target in late)


def roots_of(call: Call, shown: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return whose memory the results of a call may show, of the names in `shown`, with whose memory these show."""
    operator = None if call.op in HIGHER_ORDER else operator_named(call.op)
    if operator is None:
        # Control flow copies what its bodies would show.
        return frozenset()
    names = (name for given in _given(call, may_show(operator)) for name in names_in(given))
    return frozenset().union(*(shown.get(name, frozenset()) for name in names))


def written_by(call: Call) -> frozenset[str]:
    """Return the names of values that a call writes to: for one with bodies that write, any that they are given."""
    if call.bodies:
        writes = any(written_by(step) for body in call.bodies for step in body.steps)
        return frozenset(names_in(call.arguments)) if writes else frozenset()
    operator = operator_named(call.op)
    if operator is None or not operator._schema.is_mutable:
        return frozenset()
    written = tuple(one.name for one in operator._schema.arguments if one.alias_info and one.alias_info.is_write)
    return frozenset(name for given in _given(call, written) for name in names_in(given))


def _given(call: Call, parameters: tuple[str, ...]) -> Iterator[Argument]:
    """Yield what a call gives for some of the parameters of its operator."""
    schema = operator_named(call.op)._schema
    given: dict[str, Argument] = dict(zip((one.name for one in schema.arguments), call.args, strict=False))
    given.update(call.kwargs)
    return (given[name] for name in parameters if name in given)


@lru_cache(maxsize=4096)
def may_show(operator: Any) -> tuple[str, ...]:
    """Return the names of the arguments of an operator of which a result may be a view.

    Composite operators such as `dropout` may return an argument itself without saying so, and those that are called
    unsafe a view.
    """
    silent = (isinstance(operator, OpOverload) and is_composite(operator)) or "unsafe" in operator._schema.name
    return tuple(one.name for one in operator._schema.arguments if silent or one.alias_info is not None)
