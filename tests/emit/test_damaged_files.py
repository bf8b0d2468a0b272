"""Whatever the bytes are, reading gives a program or a `ProgramFormatError`, soon and in little memory."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.emit.sample_programs import full_program, plan

from exirkit.emit import (
    Buffer,
    NamedBlob,
    Null,
    Program,
    ProgramFormatError,
    encode_program,
    lay_out,
    print_program,
    read_program,
    restore,
)

FULL = lay_out(
    full_program(),
    mutable_data=[Buffer(), Buffer(storage=b"initial value 16")],
    named_data={"key": NamedBlob(b"named")},
).to_bytes()
SMALL = lay_out(Program(execution_plan=[plan([Null()], [])], constant_buffer=[Buffer(), Buffer(storage=b"1234")]))
HEADER_NBYTES = 8 + 32


def survives(data: bytes) -> bool:
    """Read `data` and do with the program what one does with programs; return whether it could be read."""
    try:
        file = read_program(data)
    except ProgramFormatError as error:
        if not "EK502" <= error.code <= "EK519":
            raise
        return False
    for verbose in (False, True):
        print_program(file.program, verbose=verbose, out=io.StringIO())
    again = b"".join(encode_program(file.program).chunks())
    assert b"".join(encode_program(read_flat(again)).chunks()) == again
    restore(file)
    return True


def read_flat(data: bytes) -> Program:
    """Read a flatbuffer whose segments are missing."""
    from exirkit.emit.container import decode_program

    return decode_program(memoryview(data))


def test_intact_file_survives() -> None:
    assert survives(FULL)


def test_every_truncation_is_noticed() -> None:
    for nbytes in range(len(FULL)):
        assert not survives(FULL[:nbytes]), nbytes


def test_every_truncation_of_a_file_without_segments_is_noticed_or_cuts_padding() -> None:
    data = lay_out(Program(execution_plan=[plan([Null()], [])])).to_bytes()
    readable = [nbytes for nbytes in range(len(data)) if survives(data[:nbytes])]
    assert all(nbytes > len(data) - 16 for nbytes in readable)
    assert not any(any(data[nbytes:]) for nbytes in readable)


@pytest.mark.parametrize("value", [0, 3, 0x7F, 0x80, 0xFF])
def test_every_byte_of_a_small_program_replaced(value: int) -> None:
    data = SMALL.to_bytes()
    for position in range(len(data)):
        survives(data[:position] + bytes([value]) + data[position + 1 :])


@pytest.mark.parametrize("change", ["zero", "sign", "add"])
def test_every_byte_of_the_full_program_changed(change: str) -> None:
    changes: dict[str, Callable[[int], int]] = {
        "zero": lambda byte: 0,
        "sign": lambda byte: byte ^ 0x80,
        "add": lambda byte: (byte + 1) % 256,
    }
    changed = changes[change]
    data = bytearray(FULL)
    readable = 0
    for position, byte in enumerate(FULL):
        data[position] = changed(byte)
        readable += survives(bytes(data))
        data[position] = byte
    assert readable > 0


@pytest.mark.parametrize("word", [0, 0x10000, 0x7FFFFFFF, 0xFFFFFFFC])
def test_every_word_of_the_full_program_replaced(word: int) -> None:
    for position in range(0, len(FULL) - 4, 4):
        survives(FULL[:position] + struct.pack("<I", word) + FULL[position + 4 :])


@pytest.mark.parametrize("seed", range(4))
def test_random_damage(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(250):
        data = bytearray(FULL)
        for _ in range(choose.choice([1, 2, 5, 40])):
            data[choose.randrange(len(data))] = choose.choice([0, 1, 2, 4, 8, 0x7F, 0x80, 0xFF, choose.randrange(256)])
        survives(bytes(data))


@pytest.mark.parametrize("seed", range(2))
def test_random_moves_of_bytes(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(150):
        data = bytearray(FULL)
        start, target, nbytes = (choose.randrange(HEADER_NBYTES, len(data) - 64) for _ in range(3))
        data[target : target + nbytes % 64] = data[start : start + nbytes % 64]
        survives(bytes(data))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_behind_a_valid_identifier(noise: bytes) -> None:
    survives(struct.pack("<I4s", 8 + len(noise) // 8 * 4, b"ET12") + noise)


def bomb(levels: tuple[int, int, int]) -> bytes:
    """Return a program whose lists have many entries that are all the same table: frames, traces, chains."""
    parts: list[bytes] = []

    def position() -> int:
        return sum(len(part) for part in parts)

    def offset_to(target: int) -> bytes:
        return struct.pack("<I", position() - target)

    # Written from the end to the start, as any flatbuffer; positions count from the end.
    def put(part: bytes) -> int:
        parts.append(part)
        return position()

    def table(slot: int, target: int) -> int:
        vtable = put(struct.pack(f"<HH{slot + 1}H", 6 + 2 * slot, 8, *[0] * slot, 4) + b"\0\0" * (1 - slot % 2))
        here = position() + 8
        return put(struct.pack("<iI", vtable - here, here - 4 - target))

    def vector(target: int, count: int) -> int:
        here = position() + 4 + 4 * count
        return put(struct.pack(f"<I{count}I", count, *(here - 4 - 4 * index - target for index in range(count))))

    name = put(struct.pack("<I4x", 0))
    # Program.execution_plan, ExecutionPlan.chains, Chain.stacktrace, FrameList.items, Frame.name
    innermost = table(2, name)
    for slot, count in zip((0, 3), levels, strict=False):
        innermost = table(slot, vector(innermost, count))
    vtable = put(struct.pack("<HH6H", 16, 12, 4, 0, 0, 0, 0, 8))
    list_of_chains = vector(innermost, levels[2])
    here = position() + 12
    innermost = put(struct.pack("<iII", vtable - here, here - 4 - name, here - 8 - list_of_chains))
    root = table(1, vector(innermost, 1))
    body = b"".join(reversed(parts))
    padding = bytes(-(len(body) + 8) % 16)
    return struct.pack("<I4s", 8 + len(padding) + len(body) - root, b"ET12") + padding + body


def test_bomb_is_a_program_when_it_is_small() -> None:
    first, second, third, fourth = read_program(bomb((2, 3, 4))).program.execution_plan[0].chains
    assert first == second == third == fourth
    assert first.stacktrace is not None
    assert [len(trace.items) for trace in first.stacktrace] == [2, 2, 2]


@pytest.mark.parametrize("count", [100, 3000])
def test_sharing_cannot_blow_a_small_file_up(count: int) -> None:
    data = bomb((count, count, count))
    tracemalloc.start()
    with pytest.raises(ProgramFormatError) as error:
        read_program(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert error.value.code == "EK515"
    assert peak < 40 * 8 * (len(data) + 2**14)


def test_long_lengths_cost_nothing() -> None:
    tracemalloc.start()
    for position in range(HEADER_NBYTES, len(FULL) - 4, 16):
        try:
            read_program(FULL[:position] + b"\xff\xff\xff\x0f" + FULL[position + 4 :])
        except ProgramFormatError:
            continue
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**23
