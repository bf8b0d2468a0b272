"""Damage to what a program says, in files that are well formed: elements that go, come twice, or are foreign."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from exirkit.emit import ExtendedHeader, Program, ProgramFormatError, PteFile, encode_program, read_program
from exirkit.ir import ModelError

_HEADER_NBYTES = 32
_ALIGNMENT = 16


def edit_program(data: bytes, donor: bytes, rng: random.Random) -> bytes | None:
    """Return the file after one to three edits of its lists; None if it cannot be read, or not be written.

    Args:
        data: The file.
        donor: Another file, from which elements are taken.
        rng: Decides.
    """
    try:
        file, other = read_program(data), read_program(donor)
    except ProgramFormatError:
        return None
    for _ in range(rng.choice((1, 1, 2, 3))):
        _edit(file.program, other.program, rng)
    try:
        return rebuilt(file, data)
    except ModelError:
        return None


def rebuilt(file: PteFile, data: bytes) -> bytes:
    """Return the file again after its program was edited; its segments are as they were in `data`."""
    encoded = encode_program(file.program)
    header = file.header
    if header is None:
        return b"".join(encoded.chunks())
    header_nbytes = -(-_HEADER_NBYTES // encoded.alignment) * encoded.alignment
    nbytes = encoded.nbytes(header_nbytes)
    base = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    segments = data[header.segment_base_offset :] if header.segment_base_offset else b""
    packed = ExtendedHeader(nbytes, base, len(segments)).pack(header_nbytes)
    return b"".join((*encoded.chunks(packed), bytes(base - nbytes), segments))


def _edit(program: Program, other: Program, rng: random.Random) -> None:
    found = [each for each in _lists(program) if each[1] is not None]
    name, listed = rng.choice(found)
    kind = rng.randrange(5)
    if kind == 0 and listed:
        del listed[rng.randrange(len(listed))]
    elif kind == 1 and listed:
        listed.insert(rng.randrange(len(listed) + 1), rng.choice(listed))
    elif kind == 2 and len(listed) > 1:
        first, second = rng.randrange(len(listed)), rng.randrange(len(listed))
        listed[first], listed[second] = listed[second], listed[first]
    elif kind == 3:
        given = [item for key, items in _lists(other) if key == name for item in items]
        if given:
            listed.insert(rng.randrange(len(listed) + 1), rng.choice(given))
    else:
        _replace(program, other, rng)


def _replace(program: Program, other: Program, rng: random.Random) -> None:
    """Replace a field by the same field of a table of the other program."""
    here, there = list(_tables(program)), list(_tables(other))
    table = rng.choice(here)
    same = [each for each in there if type(each) is type(table)]
    names = list(type(table).model_fields)
    if same and names:
        name = rng.choice(names)
        table.__dict__[name] = getattr(rng.choice(same), name)


def _tables(table: BaseModel) -> Iterator[BaseModel]:
    yield table
    for value in table.__dict__.values():
        if isinstance(value, BaseModel):
            yield from _tables(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, BaseModel):
                    yield from _tables(item)


def _lists(program: Program) -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists of a program, each under a name that lists of the same type share."""
    for table in _tables(program):
        for name, value in table.__dict__.items():
            if isinstance(value, list):
                yield f"{type(table).__name__}.{name}", value
