"""The plan of a program's memory as data: what every way of showing it is made from."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

PictureKind = Literal["input", "output", "state", "activation"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Step(_Part):
    """One instruction.

    Attributes:
        text: What it is in short: the name of its operator, `move`, `jump`, `free`, or a delegate.
        source: The line of the model that it comes from, as `file.py:12 in forward:  code`, if that is known.
        module: Path of the module that it comes from, if that is known.
    """

    text: str
    source: str | None = None
    module: str | None = None


class PicturedValue(_Part):
    """One tensor with planned memory.

    Attributes:
        name: Name of the node that made it, of the input or of the buffer; else its number, `%12`.
        value: Its number in the table of values.
        type: Dtype and sizes, `float32[1, 3, 224, 224]`; upper bounds where they vary.
        kind: What it is to the method.
        arena: Number of its arena.
        offset: Its first byte there.
        nbytes: Bytes that it can use.
        spans: First and last instruction of each time that it is needed, both inclusive.
        producer: The first instruction that writes to it; none for an input.
        readers: The instructions that read it.
    """

    name: str
    value: int
    type: str
    kind: PictureKind
    arena: int
    offset: int
    nbytes: int
    spans: tuple[tuple[int, int], ...]
    producer: int | None = None
    readers: tuple[int, ...] = ()


class PicturedArena(_Part):
    """One arena and how well it is used.

    Attributes:
        number: Its number, from 1.
        nbytes: Its size.
        limit: Bytes that there are for it, if a limit is set.
        live_nbytes: The most bytes that hold something at one instruction.
        lower_bound: The same with every value rounded up to the alignment of the arena: no arena of values that lie
            where they do, over each other or not, can be smaller.
        at: The first instruction at which so much is needed.
        alignment: What all offsets are a multiple of, at most 16.
        total_nbytes: Sum of the sizes of all its values: what it would be without reuse.
        pool: Number of the pool of a memory policy that it is a part of, where that is another number.
    """

    number: int
    nbytes: int
    limit: int | None = None
    live_nbytes: int
    lower_bound: int
    at: int
    alignment: int
    total_nbytes: int
    pool: int | None = None

    @property
    def waste(self) -> int:
        """Bytes above the lower bound."""
        return max(self.nbytes - self.lower_bound, 0)


class MethodPicture(_Part):
    """The memory of one method.

    Attributes:
        name: Its name.
        steps: Its instructions.
        arenas: The arenas that have bytes or a limit, by number.
        values: The tensors in them, in the order of the table of values.
    """

    name: str
    steps: tuple[Step, ...]
    arenas: tuple[PicturedArena, ...]
    values: tuple[PicturedValue, ...]

    def step_count(self) -> int:
        """Return how many instructions a picture is wide; one for a method without any."""
        return max(len(self.steps), 1)

    def values_of(self, arena: int) -> list[PicturedValue]:
        """Return the values in an arena."""
        return [value for value in self.values if value.arena == arena]

    def live_at(self, arena: int, step: int) -> list[PicturedValue]:
        """Return the values that an arena has to hold at an instruction, largest first."""
        live = [value for value in self.values_of(arena) if any(first <= step <= last for first, last in value.spans)]
        return sorted(live, key=lambda value: (-value.nbytes, value.offset, value.value))

    def source_of(self, value: PicturedValue) -> str | None:
        """Return the line of the model that made a value."""
        return None if value.producer is None else self.steps[value.producer].source


class MemoryPicture(_Part):
    """The memory of a program.

    Attributes:
        title: What it is a picture of: a file or a model.
        methods: Its methods that plan any memory.
    """

    title: str
    methods: tuple[MethodPicture, ...]
