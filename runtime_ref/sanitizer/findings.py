"""Diagnostics of programs that read or write bytes that it should not, with the names of both values."""

from __future__ import annotations

from typing import Final

from exirkit.emit import ExecutionPlan, Tensor
from exirkit.runtime_ref.interpreter.values import StepFailure

from .memory import Owner, Pointer, ShadowArena, ShadowMemory, find_damage

_HINT: Final = "plan the memory again, or find what moved or removed an instruction after it was planned"


def label_of(plan: ExecutionPlan, index: int) -> str:
    """Return how a value is called in messages: its number, its name or its part in the method, and what it is."""
    tensor = plan.values[index].val
    assert isinstance(tensor, Tensor)
    extra = tensor.extra_tensor_info
    parts = [repr(extra.fully_qualified_name)] if extra is not None and extra.fully_qualified_name else []
    parts += [f"input {position}" for position, one in enumerate(plan.inputs) if one == index]
    parts += [f"output {position}" for position, one in enumerate(plan.outputs) if one == index]
    dtype = str(tensor.scalar_type.dtype).removeprefix("torch.")
    return f"value {index} ({', '.join([*parts, f'{dtype} {list(tensor.sizes)}'])})"


def bad_read(memory: ShadowMemory, pointer: Pointer, label: str) -> StepFailure:
    """Return the failure for a tensor that is read although not all of its bytes are its own.

    Args:
        memory: The arenas.
        pointer: What is read; some byte of it is not from the last write to its tensor.
        label: How the value is called through which it is read.
    """
    owner = pointer.owner
    assert owner is not None
    damage = find_damage(pointer)
    assert damage is not None, "only damaged tensors are reported"
    other, _, run = memory.records[damage.record]
    is_poison = other is None or (other.key is None and run != memory.run)
    place = f"bytes {damage.start} to {damage.end} of arena {owner.place.arena}"
    expected = f"bytes {pointer.start} to {pointer.end} of arena {owner.place.arena} as they were last written"
    notes = [_where(owner)]
    if owner.record:
        notes.append(f"{owner.label}: last written by {_written(memory, owner.record)}")
    if is_poison:
        what = "nothing has written to it in this run" if not owner.record else "nothing has written them in this run"
        return _failure("EK661", f"{label} is read, but {what}: {place} are garbage", pointer, notes, expected)
    assert other is not None
    written = _written(memory, damage.record)
    if other is owner:
        message = f"{label} is read at its present shape, but {place} are left from an earlier write to it"
        return _failure("EK660", message, pointer, [*notes, f"the earlier write: {written}"], expected)
    notes += [_where(other), f"{other.label}: written by {written}"]
    if not owner.record:
        message = f"{label} is read, but nothing has written to it in this run: {place} are of {_name(other, owner)}"
        return _failure("EK662", message, pointer, notes, expected)
    message = f"{label} is read, but {_name(other, owner)} has overwritten {place}"
    return _failure("EK660", message, pointer, notes, expected)


def bad_write(
    memory: ShadowMemory,
    writer: Pointer,
    victim: Owner,
    labels: tuple[str, str],
    hit: tuple[int, int],
    *,
    same_instruction: bool,
) -> StepFailure:
    """Return the failure for a write over a tensor that is still to be read.

    Args:
        memory: The arenas.
        writer: What is written to.
        victim: Whose bytes are overwritten.
        labels: How the two values are called through which they are used.
        hit: The bytes that both have.
        same_instruction: Whether the writing instruction itself uses the victim.
    """
    assert writer.owner is not None
    place = f"bytes {hit[0]} to {hit[1]} of arena {writer.owner.place.arena}"
    notes = [_where(writer.owner), _where(victim)]
    notes.append(f"{victim.label}: last written by {_written(memory, victim.record)}")
    name = labels[1] if victim.method == writer.owner.method else _name(victim, writer.owner)
    if same_instruction:
        message = f"{labels[0]} is written to {place}, where {name} is, which the same instruction uses"
        return _failure("EK664", message, writer, notes)
    message = f"{labels[0]} is written to {place}, over {name}, which is still to be read"
    return _failure("EK663", message, writer, notes)


def stray_write(memory: ShadowMemory, pointer: Pointer, label: str, changed: tuple[int, int]) -> StepFailure:
    """Return the failure for an instruction that changed bytes beyond the tensor that it writes to."""
    assert pointer.owner is not None
    assert pointer.shadow is not None
    start, end = changed
    arena = pointer.shadow.number
    notes = [_where(pointer.owner)]
    if 0 <= start < pointer.shadow.nbytes:
        other, _, _ = memory.records[int(pointer.shadow.writer[start])]
        if other is not None:
            notes += [
                _where(other),
                f"byte {start} was written by {_written(memory, int(pointer.shadow.writer[start]))}",
            ]
        where = f"bytes {start} to {end} of arena {arena}"
        where += f", where {_name(other, pointer.owner)} was" if other is not None else ""
    else:
        where = f"bytes {start} to {end}, outside of arena {arena}, which has {pointer.shadow.nbytes}"
    message = f"{label} is written to, and {where}, changed as well"
    return StepFailure(
        "EK665",
        message,
        value=pointer.cell.index,
        expected=f"changes of bytes {pointer.owner.place.start} to {pointer.owner.place.end} only",
        notes=tuple(notes),
    )


def changed_guard(shadow: ShadowArena, changed: tuple[int, int]) -> StepFailure:
    """Return the failure for bytes outside of an arena that were changed in the course of a run."""
    start, end = changed
    return StepFailure(
        "EK665",
        f"bytes {start} to {end}, outside of arena {shadow.number}, which has {shadow.nbytes}, were changed",
        expected="changes of planned tensors only",
        hint="look for a kernel of your own that writes beyond the tensors it is given",
    )


def displaced_view(view: Pointer, base: Pointer, label: str, place: int) -> StepFailure:
    """Return the failure for a view that is planned to another place than what it shows."""
    assert base.owner is not None
    return StepFailure(
        "EK666",
        f"{label} is planned at byte {place}, but shows {base.owner.label}, which is at byte {base.start}",
        value=view.cell.index,
        expected=f"byte {base.start} of arena {base.owner.place.arena}",
        notes=(_where(base.owner),),
    )


def _failure(code: str, message: str, pointer: Pointer, notes: list[str], expected: str | None = None) -> StepFailure:
    return StepFailure(
        code, message, value=pointer.cell.index, expected=expected, notes=tuple(dict.fromkeys(notes)), hint=_HINT
    )


def _name(owner: Owner, beside: Owner) -> str:
    return owner.label if owner.method == beside.method else f"{owner.label} of method {owner.method!r}"


def _where(owner: Owner) -> str:
    place = owner.place
    return f"{owner.label}: bytes {place.start} to {place.end} of arena {place.arena}, in method {owner.method!r}"


def _written(memory: ShadowMemory, record: int) -> str:
    _, site, run = memory.records[record]
    assert site is not None
    return f"{site.text} of method {site.method!r}" + (f" in run {run}" if run else "")
