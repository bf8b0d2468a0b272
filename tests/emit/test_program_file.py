"""What a program file answers, and what is wrong with files whose parts do not belong together."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import pytest
from tests.emit.sample_programs import full_program, plan

from exirkit.emit import (
    BackendDelegate,
    BackendDelegateDataReference,
    Buffer,
    DataLocation,
    DataSegment,
    NamedBlob,
    NamedData,
    Program,
    ProgramFormatError,
    SubsegmentOffsets,
    encode_program,
    lay_out,
    open_program,
    read_program,
    write_file,
)
from exirkit.ir import UsageError

IMAGE = lay_out(
    full_program(), mutable_data=[Buffer(), Buffer(storage=b"initial")], named_data={"weights": NamedBlob(b"named")}
)
DATA = IMAGE.to_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_file(tmp_path / "model.pte", IMAGE)
    return tmp_path / "model.pte"


def test_data_is_found() -> None:
    file = read_program(DATA)
    first, second = file.program.execution_plan[0].delegates
    assert bytes(file.constant(1, 24)) == bytes(range(24))
    assert bytes(file.constant(2)) == b"last"
    assert bytes(file.mutable_data(1)) == b"initial"
    assert bytes(file.delegate_payload(first)) == b"payload"
    assert bytes(file.delegate_payload(second)) == b"b" * 30
    assert bytes(file.named_data("weights")) == b"named"
    assert [len(segment) for segment in file.segments] == [36, 7, 7, 30, 5]


def test_old_files_have_their_constants_in_the_program() -> None:
    program = Program(constant_buffer=[Buffer(), Buffer(storage=b"old data")])
    file = read_program(b"".join(encode_program(program).chunks()))
    assert bytes(file.constant(1)) == b"old data"
    assert bytes(file.constant(1, 3)) == b"old"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_will_do(kind: Any) -> None:
    assert read_program(kind(DATA)).program == IMAGE.program


@pytest.mark.parametrize("data", ["text", None, memoryview(DATA)[::2]])
def test_other_kinds_are_rejected(data: Any) -> None:
    with pytest.raises(UsageError) as error:
        read_program(data)
    assert error.value.code == "EK521"


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda file: file.constant(0), "EK523"),
        (lambda file: file.constant(3), "EK523"),
        (lambda file: file.constant(-1), "EK523"),
        (lambda file: file.mutable_data(0), "EK523"),
        (lambda file: file.mutable_data(2), "EK523"),
        (lambda file: file.mutable_data(1, segment=1), "EK523"),
        (lambda file: file.delegate_payload(delegate(DataLocation.SEGMENT, 5)), "EK523"),
        (lambda file: file.delegate_payload(delegate(DataLocation.INLINE, 0)), "EK523"),
        (lambda file: file.named_data("other"), "EK524"),
    ],
)
def test_questions_without_an_answer(ask: Any, code: str) -> None:
    with pytest.raises(UsageError) as error:
        ask(read_program(DATA))
    assert error.value.code == code


def test_misspelt_keys_are_recognised() -> None:
    with pytest.raises(UsageError, match="did you mean 'weights'"):
        read_program(DATA).named_data("weight")


@pytest.mark.parametrize("ask", [lambda file: file.constant(1, 33), lambda file: file.mutable_data(1, 8)])
def test_data_shorter_than_its_tensor(ask: Any) -> None:
    with pytest.raises(ProgramFormatError) as error:
        ask(read_program(DATA))
    assert error.value.code == "EK518"


def test_files_are_mapped_not_read(path: Path) -> None:
    with open_program(path) as file:
        assert isinstance(file.segments[0].obj, mmap.mmap)
        assert file.program == IMAGE.program


def test_closed_files_answer_no_questions(path: Path) -> None:
    with open_program(path) as file:
        view = file.constant(2)
    assert bytes(view) == b"last"
    with pytest.raises(UsageError) as error:
        file.constant(1)
    assert error.value.code == "EK527"
    file.close()


def test_errors_name_the_file(path: Path) -> None:
    path.write_bytes(DATA[:100])
    with pytest.raises(ProgramFormatError) as error:
        open_program(path)
    assert error.value.diagnostics[0].location.file == str(path)
    assert f"{path} at byte" in str(error.value)


def test_empty_files_are_too_short(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(ProgramFormatError) as error:
        open_program(path)
    assert error.value.code == "EK504"


def test_missing_files_are_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_program(tmp_path / "nothing.pte")


def delegate(location: DataLocation, index: int) -> BackendDelegate:
    return BackendDelegate(id="B", processed=BackendDelegateDataReference(location=location, index=index))


def offsets(*values: int, segment: int = 0) -> SubsegmentOffsets:
    return SubsegmentOffsets(segment_index=segment, offsets=list(values))


def with_delegate(location: DataLocation, index: int) -> dict[str, Any]:
    return {"execution_plan": [plan([], [], delegates=[delegate(location, index)])]}


@pytest.mark.parametrize(
    ("change", "code", "where"),
    [
        ({"segments": [DataSegment(offset=0, size=9)]}, "EK516", "segments[0]"),
        ({"segments": [DataSegment(offset=2**64 - 1, size=1)]}, "EK516", "segments[0]"),
        ({"constant_segment": offsets(0, 4, 3)}, "EK517", "constant_segment.offsets[2]"),
        ({"constant_segment": offsets(0, 9)}, "EK517", "constant_segment.offsets[1]"),
        ({"mutable_data_segments": [offsets(9)]}, "EK517", "mutable_data_segments[0].offsets[0]"),
        ({"constant_segment": offsets(0, segment=1)}, "EK513", "constant_segment.segment_index"),
        ({"named_data": [NamedData(key="k", segment_index=1)]}, "EK513", "named_data[0].segment_index"),
        (with_delegate(DataLocation.SEGMENT, 1), "EK513", "execution_plan[0].delegates[0].processed.index"),
        (with_delegate(DataLocation.INLINE, 0), "EK513", "execution_plan[0].delegates[0].processed.index"),
        ({"constant_buffer": [Buffer()]}, "EK519", "constant_segment"),
    ],
)
def test_parts_that_do_not_belong_together(change: dict[str, Any], code: str, where: str) -> None:
    base: dict[str, Any] = {"segments": [DataSegment(offset=0, size=8)], "constant_segment": offsets(0, 0, 4)}
    encoded = encode_program(Program(**(base | change)))
    # The header of another file with 8 bytes of segments, made to fit this one.
    image = lay_out(Program(constant_buffer=[Buffer(), Buffer(storage=b"8 bytes.")]))
    assert image.header is not None
    size = encoded.nbytes(32)
    header = type(image.header)(size, size, 8).pack(32)
    with pytest.raises(ProgramFormatError) as error:
        read_program(b"".join(encoded.chunks(header)) + b"8 bytes.")
    assert (error.value.code, error.value.diagnostics[0].location.node) == (code, where)


def test_segments_need_a_header() -> None:
    encoded = encode_program(Program(segments=[DataSegment(offset=0, size=1)]))
    with pytest.raises(ProgramFormatError) as error:
        read_program(b"".join(encoded.chunks()))
    assert error.value.code == "EK516"
