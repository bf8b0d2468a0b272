"""Programs that must compute the same as another one: it is blown up by rewrites that go nowhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch

from exirkit.fuzz.programs import Argument, Call, Method, Program, Ref, TensorType, mapped, names_in

Detour = Callable[[Ref, str, TensorType], "list[Call] | None"]
"""Makes calls that lead from a value to the same value under another name; None where that is not possible."""


_DETOURS = 2


def equivalent(program: Program, seed: int) -> tuple[Program, str]:
    """Return a program that must compute the same bits, and what was done to it.

    Args:
        program: A program without control flow in the places that are changed.
        seed: Decides what is done.
    """
    chooser = random.Random(seed)
    notes: list[str] = []
    for number in range(_DETOURS):
        program, note = _with_detour(program, chooser, f"same{number}")
        notes.append(note)
    return program, "; ".join(note for note in notes if note)


def _with_detour(program: Program, chooser: random.Random, name: str) -> tuple[Program, str]:
    place = chooser.randrange(len(program.methods))
    method = program.methods[place]
    types = _known_types(program, method)
    sites = [(at, ref) for at, call in enumerate(method.steps) for ref in _tensor_refs(call, types)]
    if not sites:
        return program, ""
    at, ref = chooser.choice(sites)
    detours = list(DETOURS.items())
    chooser.shuffle(detours)
    for title, detour in detours:
        calls = detour(ref, name, types[ref.name])
        if calls is None:
            continue
        user = method.steps[at]
        if title != "dead code":
            # Named arguments are never tensors here.
            user = replace(user, args=mapped(user.args, lambda one: Ref(name) if one == ref else one))
        steps = (*method.steps[:at], *calls, user, *method.steps[at + 1 :])
        methods = list(program.methods)
        methods[place] = replace(method, steps=steps)
        inexact, undecided = program.inexact, program.undecided
        names = frozenset(one for call in calls for one in call.results if one is not None)
        if ref.name in inexact:
            inexact |= names
        if ref.name in undecided:
            undecided |= names
        changed = replace(program, methods=tuple(methods), inexact=inexact, undecided=undecided)
        return changed, f"{title} of {ref.name}"
    return program, ""


def _known_types(program: Program, method: Method) -> Mapping[str, TensorType]:
    """Return the types of inputs and stored tensors; those of results are not written down."""
    found = {one.name: one.type for one in method.inputs}
    return found | {one.name: one.type for one in program.stored}


def _tensor_refs(call: Call, types: Mapping[str, TensorType]) -> Iterator[Ref]:
    if not call.bodies:
        yield from (Ref(name) for name in names_in(call.args) if name in types)


def _call(op: str, result: str, *args: Argument) -> Call:
    return Call(op, args, (), (result,))


def _clone(ref: Ref, name: str, type_: TensorType) -> list[Call] | None:
    return [_call("aten.clone.default", name, ref)]


def _dead_code(ref: Ref, name: str, type_: TensorType) -> list[Call] | None:
    return [_call("aten.clone.default", f"{name}_a", ref), _call("aten.eq.Tensor", f"{name}_b", Ref(f"{name}_a"), ref)]


def _squeeze(ref: Ref, name: str, type_: TensorType) -> list[Call] | None:
    dim = len(type_.sizes)
    return [
        _call("aten.unsqueeze_copy.default", f"{name}_a", ref, dim),
        _call("aten.squeeze_copy.dim", name, Ref(f"{name}_a"), dim),
    ]


def _permute(ref: Ref, name: str, type_: TensorType) -> list[Call] | None:
    rank = len(type_.sizes)
    if rank < 2:
        return None
    there = (*range(1, rank), 0)
    back = (rank - 1, *range(rank - 1))
    return [
        _call("aten.permute_copy.default", f"{name}_a", ref, there),
        _call("aten.permute_copy.default", name, Ref(f"{name}_a"), back),
    ]


def _negate(ref: Ref, name: str, type_: TensorType) -> list[Call] | None:
    if not type_.dtype.is_floating_point:
        return None
    return [_call("aten.neg.default", f"{name}_a", ref), _call("aten.neg.default", name, Ref(f"{name}_a"))]


def _times_one(ref: Ref, name: str, type_: TensorType) -> list[Call] | None:
    if type_.dtype not in (torch.float32, torch.float64, torch.int32, torch.int64):
        return None
    return [_call("aten.mul.Scalar", name, ref, 1)]


def _split(ref: Ref, name: str, type_: TensorType) -> list[Call] | None:
    size = type_.sizes[0] if type_.sizes else None
    if not isinstance(size, int) or size < 2:
        return None
    return [
        _call("aten.slice_copy.Tensor", f"{name}_a", ref, 0, 0, 1),
        _call("aten.slice_copy.Tensor", f"{name}_b", ref, 0, 1, size),
        _call("aten.cat.default", name, (Ref(f"{name}_a"), Ref(f"{name}_b")), 0),
    ]


DETOURS: dict[str, Detour] = {
    "clone": _clone,
    "dead code": _dead_code,
    "squeezing and unsqueezing": _squeeze,
    "permuting twice": _permute,
    "negating twice": _negate,
    "multiplication by one": _times_one,
    "splitting and joining": _split,
}
"""Ways from a value to itself, by what they do."""
