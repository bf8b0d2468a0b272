"""What one vtable says about the tables that use it, checked once and turned into a plan for reading them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

from .fault import Fault
from .layout import OFFSET_NBYTES, FieldLayout, Kind, TableLayout, slot_count

# Reads what stands at a byte: (decoder, argument, position) -> value.
Reader = Callable[[Any, Any, int], Any]


class Reference(NamedTuple):
    """An offset field: its place inside the table, what reads it, and what that needs to know."""

    name: str
    offset: int
    read: Reader
    argument: Any


class TablePlan(NamedTuple):
    """How to read the tables that share one vtable.

    Attributes:
        nbytes: Size of a table, with its vtable offset.
        alignment: 8 with fields of 8 bytes, else 4.
        phase: What the position of a table must be modulo `alignment`.
        template: All fields of the model in order; what is absent has its value already, unless mutable.
        fresh: Names and makers of absent fields whose value is mutable.
        scalar_names: Scalars that are present, in the order of their places.
        unpack: Unpacks them, given the data and the position of the table.
        choices: Those of them that take few values only.
        references: Offset fields that are present.
    """

    nbytes: int
    alignment: int
    phase: int
    template: dict[str, Any]
    fresh: tuple[tuple[str, Callable[[], Any]], ...]
    scalar_names: tuple[str, ...]
    unpack: Callable[[Any, int], tuple[Any, ...]]
    choices: tuple[tuple[str, dict[int, Any]], ...]
    references: tuple[Reference, ...]


class _Span(NamedTuple):
    """Bytes of a table that a field takes; `letter` unpacks them, if they are a scalar."""

    offset: int
    nbytes: int
    field: FieldLayout
    letter: str = ""


def plan_table(layout: TableLayout, nbytes: int, offsets: Sequence[int], readers: Mapping[Kind, Reader]) -> TablePlan:
    """Return the plan for tables of `nbytes` bytes whose field in slot i is at `offsets[i]` (0 if absent).

    Raises:
        Fault: EK507 for fields outside the table or on top of each other, EK508 for fields off their alignment,
            EK510 for a required field that is absent.
    """
    spans: list[_Span] = []
    references: list[Reference] = []
    template: dict[str, Any] = {}
    fresh: list[tuple[str, Callable[[], Any]]] = []
    slots = [*offsets, *([0] * (slot_count(layout) - len(offsets)))]
    for each in layout.fields:
        template[each.name] = None
        if slots[each.slot]:
            found, reference = _present(each, slots, readers)
            spans += found
            references += reference
        elif each.required:
            fault = Fault("EK510", f"{layout.name} lacks {each.name}", expected=f"a {each.kind.value}")
            raise fault.inside(f".{each.name}")
        elif each.kind in (Kind.TABLE, Kind.SCALARS, Kind.TABLES):
            fresh.append((each.name, each.default))
        else:
            template[each.name] = each.default()
    spans.sort(key=lambda span: span.offset)
    _check_places(layout, spans, nbytes)
    alignment, phase = _alignment(layout, spans)
    scalars = [span for span in spans if span.letter]
    return TablePlan(
        nbytes=nbytes,
        alignment=alignment,
        phase=phase,
        template=template,
        fresh=tuple(fresh),
        scalar_names=tuple(span.field.name for span in scalars),
        unpack=_struct_of(scalars).unpack_from,
        choices=tuple((each.name, each.choices) for *_, each, _ in scalars if each.choices is not None),
        references=tuple(references),
    )


def _present(
    each: FieldLayout, slots: Sequence[int], readers: Mapping[Kind, Reader]
) -> tuple[list[_Span], list[Reference]]:
    """Return the bytes that a field takes, and how to follow it if it is an offset."""
    offset = slots[each.slot]
    if each.kind is Kind.SCALAR:
        return [_Span(offset, each.nbytes, each, each.letter)], []
    if each.kind is not Kind.UNION:
        return [_Span(offset, OFFSET_NBYTES, each)], [Reference(each.name, offset, readers[each.kind], each)]
    value = slots[each.slot + 1]
    spans = [_Span(offset, 1, each), *([_Span(value, OFFSET_NBYTES, each)] if value else [])]
    # A tag without a value is a fault of the single table, found when that is read: its tag may say which.
    argument = (each, value - offset if value else None)
    return spans, [Reference(each.name, offset, readers[Kind.UNION], argument)]


def _check_places(layout: TableLayout, spans: list[_Span], nbytes: int) -> None:
    """Refuse fields that leave the table or overlap; `spans` are in the order of their offsets."""
    free = OFFSET_NBYTES
    for span in spans:
        if span.offset < free or span.offset + span.nbytes > nbytes:
            message = f"{span.field.name} is at byte {span.offset} of a {layout.name} of {nbytes} bytes"
            expected = f"{free} to {nbytes - span.nbytes}"
            raise Fault("EK507", message, expected=expected).inside(f".{span.field.name}")
        free = span.offset + span.nbytes


def _alignment(layout: TableLayout, spans: list[_Span]) -> tuple[int, int]:
    """Return the alignment of the table and its phase, from those of its fields."""
    phases = {-span.offset % span.nbytes for span in spans if span.nbytes == 8}
    if len(phases) > 1 or any(span.offset % min(span.nbytes, 4) for span in spans):
        raise Fault("EK508", f"fields of {layout.name} are off their alignment")
    return (8, phases.pop()) if phases else (4, 0)


def _struct_of(scalars: list[_Span]) -> Struct:
    """Return what unpacks the scalars from the start of their table."""
    pattern, position = "<", 0
    for span in scalars:
        pattern += f"{span.offset - position}x{span.letter}"
        position = span.offset + span.nbytes
    return Struct(pattern)
