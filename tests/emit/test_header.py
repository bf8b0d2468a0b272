"""The first bytes of a file: what is read from them and what is rejected."""

from __future__ import annotations

import struct

import pytest

from exirkit.emit import Buffer, Program, ProgramFormatError, lay_out, read_program

DATA = lay_out(Program(constant_buffer=[Buffer(), Buffer(storage=b"1234")])).to_bytes()


def code_of(data: bytes) -> str:
    with pytest.raises(ProgramFormatError) as error:
        read_program(data)
    return error.value.code


def changed(offset: int, number: int, letter: str = "Q") -> bytes:
    data = bytearray(DATA)
    struct.pack_into(f"<{letter}", data, offset, number)
    return bytes(data)


def test_header_says_where_everything_is() -> None:
    header = read_program(DATA).header
    assert header is not None
    assert header.program_size <= header.segment_base_offset == len(DATA) - 4
    assert header.segment_data_size == 4
    assert DATA[4:12] == b"ET12eh00"
    assert struct.unpack_from("<IQQQ", DATA, 12) == (32, header.program_size, header.segment_base_offset, 4)


@pytest.mark.parametrize("nbytes", range(8))
def test_too_short_files(nbytes: int) -> None:
    assert code_of(DATA[:nbytes]) == "EK504"


def test_other_versions() -> None:
    assert code_of(DATA[:4] + b"ET11" + DATA[8:]) == "EK503"


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"\0\0\0\0FT01", "tensor data"),
        (b"\0\0\0\0BP08", "bundled program"),
        (b"PK\x03\x04\0\0\0\0", "zip archive"),
        (b"\x7fELF\2\1\1\0", "not a program"),
    ],
)
def test_other_files_are_recognised(start: bytes, what: str) -> None:
    with pytest.raises(ProgramFormatError, match=what) as error:
        read_program(start + DATA[8:])
    assert error.value.code == "EK502"


@pytest.mark.parametrize(
    ("offset", "number", "letter"),
    [
        (12, 23, "I"),
        (12, 2**32 - 1, "I"),
        (16, 0, "Q"),
        (16, len(DATA) + 1, "Q"),
        (16, 2**64 - 1, "Q"),
        (24, 8, "Q"),
        (24, len(DATA) + 1, "Q"),
        (32, 5, "Q"),
        (32, 2**64 - 1, "Q"),
    ],
)
def test_sizes_must_fit_the_file(offset: int, number: int, letter: str) -> None:
    assert code_of(changed(offset, number, letter)) == "EK505"


def test_header_cut_short() -> None:
    assert code_of(DATA[:30]) == "EK505"


def test_older_header_without_the_size_of_the_segments() -> None:
    file = read_program(changed(12, 24, "I"))
    assert file.header is not None
    assert file.header.segment_data_size is None
    assert bytes(file.constant(1)) == b"1234"


def test_newer_header_with_more_fields() -> None:
    assert bytes(read_program(changed(12, 40, "I")).constant(1)) == b"1234"


@pytest.mark.parametrize("root", [0, 4, 9, 2**31, 2**32 - 1])
def test_root_must_be_inside(root: int) -> None:
    assert code_of(changed(0, root, "I")) in ("EK506", "EK508")
