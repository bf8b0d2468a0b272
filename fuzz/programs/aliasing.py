"""Which values of a method show memory that the method writes at its end."""

from __future__ import annotations

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
        roots = _roots(step, shown)
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


def _roots(call: Call, shown: dict[str, frozenset[str]]) -> frozenset[str]:
    operator = None if call.op in HIGHER_ORDER else operator_named(call.op)
    if operator is None:
        # Control flow copies what its bodies would show.
        return frozenset()
    given: dict[str, Argument] = dict(zip((one.name for one in operator._schema.arguments), call.args, strict=False))
    given.update(call.kwargs)
    names = [name for one in may_show(operator) for name in names_in(given.get(one))]
    return frozenset().union(*(shown.get(name, frozenset()) for name in names))


@lru_cache(maxsize=4096)
def may_show(operator: Any) -> tuple[str, ...]:
    """Return the names of the arguments of an operator of which a result may be a view.

    Composite operators such as `dropout` may return an argument itself without saying so, and those that are called
    unsafe a view.
    """
    silent = (isinstance(operator, OpOverload) and is_composite(operator)) or "unsafe" in operator._schema.name
    return tuple(one.name for one in operator._schema.arguments if silent or one.alias_info is not None)
