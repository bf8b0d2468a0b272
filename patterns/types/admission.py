"""Whether a value is one of a variable's type, and which sizes it then binds; sizes are compared without guards.

Bindings hold, besides names: under `~S.x.0` the part of x that must broadcast to S, and under `?x` a variable that
other names will decide, with its value; `?` says that there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from .broadcasting import broadcasts, parts_of
from .scalar_admission import PENDING, decide_scalar, pending
from .shape_admission import match_shape, sequence_agrees
from .sizes import Name, Number, SequenceDim, SizeDim, equal, recorded_value
from .variables import DimsVariable, TensorListVariable, TensorVariable, Variable

Bindings = Mapping[str, object]
Extension = dict[str, object]
Admission = Callable[[Any, Mapping[str, Any]], Iterable[Extension]]


def admit(variable: Variable, value: object, bindings: Bindings) -> Iterator[Extension]:
    """Yield each way in which a value is of a type.

    Args:
        variable: The type.
        value: A tensor (a fake one's elements are not looked at), a number, text, dtype, list, or None.
        bindings: Values of names so far; a name of another variable may stand for a node of a graph.

    Yields:
        Names to add to the bindings. A comparison that sizes do not decide counts as false.
    """
    admission: Admission = variable.__dict__.get("_admission") or _compiled(variable)
    found = admission(value, bindings)
    if PENDING not in bindings:
        return iter(found)
    return _settled(variable, value, bindings, found)


def settle(bindings: Bindings) -> Iterator[Extension]:
    """Yield each way in which the variables that wait for other names are of their types; called last.

    Yields:
        Names to add. Nothing at all if a variable still waits: what is not known is not admitted.
    """
    for extension in _recheck(dict(bindings), {}):
        merged = {**bindings, **extension}
        if all(not _waits(merged, key) for key in merged if key.startswith(PENDING) and key != PENDING):
            yield {key: new for key, new in extension.items() if key not in bindings}


def admit_all(variables: Mapping[str, Variable], values: Mapping[str, object]) -> dict[str, object] | None:
    """Return bindings under which every value is of its variable's type, or None.

    Args:
        variables: Types, linked.
        values: A value for each, but shapes that only types mention and operators may be left out.
    """
    names = [name for name in variables if name in values]

    def extend(at: int, bindings: dict[str, object]) -> dict[str, object] | None:
        if at == len(names):
            return next(({**bindings, **more} for more in settle(bindings)), None)
        name = names[at]
        for extension in admit(variables[name], values[name], bindings):
            found = extend(at + 1, {**bindings, **extension, name: values[name]})
            if found is not None:
                return found
        return None

    return extend(0, {})


def _waits(names: dict[str, Any], key: str) -> bool:
    variable, value = names[key]
    return all(key in extension for extension in _admission_of(variable)(value, names))


def _settled(variable: Variable, value: object, bindings: Bindings, found: Iterable[Extension]) -> Iterator[Extension]:
    for extension in found:
        yield from _recheck({**bindings, variable.name: value, **extension}, extension)


def _recheck(names: dict[str, Any], extension: Extension) -> Iterator[Extension]:
    """Ask again for all that wait, as long as that gives further names."""
    waiting = [names[key] for key in names if key.startswith(PENDING) and key != PENDING]

    def go_on(at: int, names: dict[str, Any], extension: Extension) -> Iterator[Extension]:
        if at == len(waiting):
            yield extension
            return
        variable, value = waiting[at]
        for more in _admission_of(variable)(value, names):
            fresh = {key: new for key, new in more.items() if key not in names}
            yield from go_on(at + 1, {**names, **fresh}, {**extension, **fresh})

    for result in go_on(0, names, extension):
        if waiting and result.keys() - extension.keys():
            yield from _recheck({**names, **result}, result)
        else:
            yield result


def _admission_of(variable: Variable) -> Admission:
    return variable.__dict__.get("_admission") or _compiled(variable)


def _compiled(variable: Variable) -> Admission:
    if isinstance(variable, TensorVariable):
        inner = _tensor(variable)
    elif isinstance(variable, TensorListVariable):
        inner = _tensor_list(variable)
    elif isinstance(variable, DimsVariable):
        inner = _dims(variable)
    else:
        inner = _scalar(variable)
    admission = _or_none(inner) if variable.allows_none else inner
    variable.__dict__["_admission"] = admission
    return admission


def _or_none(inner: Admission) -> Admission:
    return lambda value, names: ({},) if value is None else inner(value, names)


def _scalar(variable: Variable) -> Admission:
    decide = decide_scalar(variable)

    def admission(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
        known = decide(recorded_value(value), names)
        if known is None:
            return (pending(variable, value),)
        return ({},) if known else ()

    return admission


def _dims(variable: DimsVariable) -> Admission:
    def admission(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
        if not isinstance(value, list | tuple):
            return ()
        sizes = tuple(recorded_value(one) for one in value)
        return match_shape(variable, variable.dims, sizes, {**names, variable.name: sizes}, value)

    return admission


def _tensor_list(variable: TensorListVariable) -> Admission:
    element = _admission_of(variable.element)

    def extend(values: list[Any], at: int, names: dict[str, Any], found: Extension) -> Iterator[Extension]:
        if at == len(values):
            yield found
            return
        for more in element(values[at], names):
            yield from extend(values, at + 1, {**names, **more}, {**found, **more})

    def admission(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
        if not isinstance(value, list | tuple) or not value:
            return
        if variable.count is not None:
            count = variable.count.evaluate(names)
            if count is None:
                yield pending(variable, value)
                return
            if not equal(count, len(value)):
                return
        yield from extend([recorded_value(one) for one in value], 0, dict(names), {})

    return admission


# Tensors


def _tensor(variable: TensorVariable) -> Admission:
    by_shape = _by_shape(variable)
    members, same_as, domain = variable.dtypes.member_set, variable.dtypes.same_as, variable.domain
    if same_as is None and domain is None:

        def plain(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
            if not isinstance(value, torch.Tensor) or value.dtype not in members:
                return ()
            return by_shape(value, names)

        return plain

    def admission(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
        value = recorded_value(value)
        wanted = None if same_as is None else _dtype_behind(names.get(same_as))
        if not isinstance(value, torch.Tensor):
            return ()
        if same_as is not None and wanted is None:
            return (pending(variable, value),)
        if value.dtype not in members and value.dtype != wanted:
            return ()
        if domain is not None and _has_elements(value) and not domain.holds_for(value):
            return ()
        return by_shape(value, names)

    return admission


def _dtype_behind(value: object) -> torch.dtype | None:
    value = recorded_value(value)
    if isinstance(value, torch.dtype):
        return value
    return value.dtype if isinstance(value, torch.Tensor) else None


def _has_elements(value: torch.Tensor) -> bool:
    """Whether elements can be looked at."""
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.device.type == "cpu"


def _by_shape(variable: TensorVariable) -> Admission:
    dims = variable.dims
    if dims is None:
        return lambda value, names: ({},)
    if not _is_simple(variable):
        return lambda value, names: match_shape(variable, dims, tuple(value.shape), names, value)
    at = next((index for index, dim in enumerate(dims) if isinstance(dim, SequenceDim)), None)
    fixed: list[tuple[int, int | str]] = []
    for index, dim in enumerate(dims):
        if isinstance(dim, SizeDim):
            place = index if at is None or index < at else index - len(dims)
            fixed.append((place, dim.size.value if isinstance(dim.size, Number) else str(dim.size)))
    if at is None:
        return _fixed_rank(len(dims), tuple(fixed))
    sequence = dims[at]
    assert isinstance(sequence, SequenceDim)
    return _with_sequence(sequence.name, at, len(dims) - 1 - at, tuple(fixed))


def _is_simple(variable: TensorVariable) -> bool:
    """Whether the only way to match a shape is found without search."""
    dims = variable.dims or ()
    if variable.links is not None:
        return False
    plain = [dim for dim in dims if not isinstance(dim, SequenceDim)]
    if len(dims) - len(plain) > 1:
        return False
    return all(not isinstance(dim, SizeDim) or isinstance(dim.size, Name | Number) for dim in plain) and all(
        type(dim).__name__ != "BroadcastDim" for dim in plain
    )


def _fixed_rank(rank: int, fixed: tuple[tuple[int, int | str], ...]) -> Admission:
    def admission(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
        sizes = value.shape
        if len(sizes) != rank:
            return ()
        found: Extension = {}
        return (found,) if _sizes_agree(fixed, sizes, names, found) else ()

    return admission


def _with_sequence(name: str | None, before: int, after: int, fixed: tuple[tuple[int, int | str], ...]) -> Admission:
    def admission(value: Any, names: Mapping[str, Any]) -> Iterable[Extension]:
        sizes = value.shape
        end = len(sizes) - after
        if end < before:
            return ()
        found: Extension = {}
        if fixed and not _sizes_agree(fixed, sizes, names, found):
            return ()
        if name is None:
            return (found,)
        known = names.get(name)
        if known is None:
            part = tuple(sizes[before:end])
            found[name] = part
            if next(parts_of(name, names), None) is not None and not broadcasts(name, None, {**names, name: part}):
                return ()
            return (found,)
        return (found,) if sequence_agrees(known, sizes[before:end]) else ()

    return admission


def _sizes_agree(
    fixed: Iterable[tuple[int, int | str]], sizes: Any, names: Mapping[str, Any], found: Extension
) -> bool:
    for place, wanted in fixed:
        size = sizes[place]
        if type(wanted) is str:
            known = names.get(wanted)
            if known is None:
                known = found.get(wanted)
                if known is None:
                    found[wanted] = size
                    continue
        else:
            known = wanted
        if known is size:
            continue
        if not equal(recorded_value(known), size):
            return False
    return True
