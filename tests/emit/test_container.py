"""The layout of a file: order, alignment and sharing of segments, and the way back."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.emit.sample_programs import full_program, plan, tensor

from exirkit.emit import (
    BackendDelegate,
    BackendDelegateDataReference,
    BackendDelegateInlineData,
    Buffer,
    DataLocation,
    DataSegment,
    NamedBlob,
    NamedData,
    Program,
    SubsegmentOffsets,
    lay_out,
    read_program,
    restore,
    restore_mutable_data,
    restore_named_data,
    write_file,
)
from exirkit.ir import ModelError, UsageError


def with_constants(*sizes: int) -> Program:
    """Return a program with a constant of each size in bytes, and a tensor for each."""
    values = [tensor(size // 4, data_buffer_idx=index) for index, size in enumerate(sizes, 1)]
    buffers = [Buffer(storage=bytes([index]) * size) for index, size in enumerate(sizes, 1)]
    return Program(execution_plan=[plan(values, [])], constant_buffer=[Buffer(), *buffers])


def with_payloads(payloads: list[bytes], *methods: list[int]) -> Program:
    """Return a program with these payloads and for each method delegates that use them."""
    plans = [
        plan([], [], name=f"m{number}", delegates=[delegate(index) for index in indices])
        for number, indices in enumerate(methods)
    ]
    data = [BackendDelegateInlineData(data=payload) for payload in payloads]
    return Program(execution_plan=plans, backend_delegate_data=data)


def delegate(index: int) -> BackendDelegate:
    return BackendDelegate(id="B", processed=BackendDelegateDataReference(index=index))


def processed(program: Program) -> list[tuple[str, int]]:
    found = [each.processed for method in program.execution_plan for each in method.delegates]
    return [(each.location.name, each.index) for each in found]


def test_no_data_no_header() -> None:
    program = Program(execution_plan=[plan([], [])], constant_buffer=[Buffer()])
    image = lay_out(program)
    assert image.header is None
    assert image.program.segments == [DataSegment()]
    assert image.program.constant_segment == SubsegmentOffsets(offsets=[0])
    assert read_program(image.to_bytes()).header is None
    assert restore(read_program(image.to_bytes())) == program


def test_constants_are_padded_except_the_last() -> None:
    image = lay_out(with_constants(4, 20, 8))
    assert image.program.constant_segment == SubsegmentOffsets(segment_index=0, offsets=[0, 0, 16, 48])
    assert image.program.segments == [DataSegment(offset=0, size=56)]
    assert image.program.constant_buffer == []
    file = read_program(image.to_bytes())
    assert [bytes(file.constant(index, size)) for index, size in ((1, 4), (2, 20), (3, 8))] == [
        b"\1" * 4,
        b"\2" * 20,
        b"\3" * 8,
    ]
    assert bytes(file.constant(1)) == b"\1" * 4 + bytes(12)


def test_initial_values_are_not_padded_and_come_second() -> None:
    buffers = [Buffer(), Buffer(storage=b"abc"), Buffer(storage=b"defg")]
    image = lay_out(with_constants(4), mutable_data=buffers)
    assert image.program.mutable_data_segments == [SubsegmentOffsets(segment_index=1, offsets=[0, 0, 3])]
    assert image.program.segments[1] == DataSegment(offset=128, size=7)
    file = read_program(image.to_bytes())
    assert [bytes(file.mutable_data(index)) for index in (1, 2)] == [b"abc", b"defg"]
    assert restore_mutable_data(file) == buffers


def test_without_initial_bytes_there_is_no_such_segment() -> None:
    assert lay_out(with_constants(4), mutable_data=[Buffer()]).program.mutable_data_segments is None


def test_payloads_follow_in_the_order_of_use_and_equal_ones_are_one() -> None:
    program = with_payloads([b"later", b"first", b"later"], [1, 0], [2, 1])
    image = lay_out(program)
    assert [segment.size for segment in image.program.segments] == [5, 5]
    assert processed(image.program) == [("SEGMENT", index) for index in (0, 1, 1, 0)]
    file = read_program(image.to_bytes())
    delegates = [each for method in file.program.execution_plan for each in method.delegates]
    assert [bytes(file.delegate_payload(each)) for each in delegates] == [b"first", b"later", b"later", b"first"]


def test_empty_payloads_stay_inline() -> None:
    image = lay_out(with_payloads([b"", b"data"], [0, 1, 0]))
    assert processed(image.program) == [("INLINE", 0), ("SEGMENT", 0), ("INLINE", 0)]
    assert image.program.backend_delegate_data == [BackendDelegateInlineData()]


def test_payloads_can_stay_in_the_program() -> None:
    program = with_payloads([b"payload"], [0])
    image = lay_out(program, extract_delegate_segments=False, delegate_alignment=64)
    assert image.header is None
    assert image.to_bytes().index(b"payload") % 64 == 0
    assert restore(read_program(image.to_bytes())) == program


def test_named_data_comes_last_in_its_order_and_equal_data_once() -> None:
    named = {"b": NamedBlob(b"12345", 64), "a": NamedBlob(b"other"), "c": NamedBlob(b"12345", 1024)}
    image = lay_out(with_constants(4), named_data=named)
    table = [
        NamedData(key="b", segment_index=1),
        NamedData(key="a", segment_index=2),
        NamedData(key="c", segment_index=1),
    ]
    assert image.program.named_data == table
    assert [segment.offset for segment in image.program.segments] == [0, 1024, 1152]
    assert image.to_bytes().index(b"12345") % 1024 == 0
    restored = restore_named_data(read_program(image.to_bytes()))
    assert restored == {"b": NamedBlob(b"12345"), "a": NamedBlob(b"other"), "c": NamedBlob(b"12345")}


def test_data_that_differs_only_at_its_end_is_kept_apart() -> None:
    named = {"a": NamedBlob(bytes(100) + b"a"), "b": NamedBlob(bytes(100) + b"b")}
    payloads = with_payloads([bytes(100) + b"1", bytes(100) + b"2"], [0, 1])
    file = read_program(lay_out(payloads, named_data=named).to_bytes())
    assert restore_named_data(file) == named
    assert restore(file).backend_delegate_data == payloads.backend_delegate_data


@pytest.mark.parametrize("alignment", [1, 16, 128, 4096])
def test_segments_and_constants_are_aligned_in_the_file(alignment: int) -> None:
    data = lay_out(
        with_constants(4, 4),
        named_data={"k": NamedBlob(b"named")},
        segment_alignment=alignment,
        constant_tensor_alignment=64,
    ).to_bytes()
    assert data.index(b"\1" * 4) % max(alignment, 64) == 0
    assert data.index(b"\2" * 4) % 64 == 0
    assert data.index(b"named") % alignment == 0


def test_header_has_the_size_of_the_largest_alignment() -> None:
    plain, wide = lay_out(with_constants(4)), lay_out(with_constants(4), constant_tensor_alignment=64)
    assert plain.header is not None
    assert wide.header is not None
    assert wide.header.program_size % 64 == 0
    assert any(plain.to_bytes()[40:72])
    assert not any(wide.to_bytes()[40:72])


def test_image_is_views_of_the_data() -> None:
    weights, payload, named = memoryview(bytearray(8)), b"p" * 3, bytearray(5)
    program = with_payloads([payload], [0])
    program.constant_buffer = [Buffer(), Buffer(storage=weights)]
    image = lay_out(program, named_data={"k": NamedBlob(memoryview(named))})
    before = image.to_bytes()
    weights[0], named[0] = 1, 1
    assert sum(left != right for left, right in zip(before, image.to_bytes(), strict=True)) == 2
    assert any(chunk is payload for chunk in image.chunks())


def test_sizes_of_chunks_streams_and_bytes_agree() -> None:
    named = {"k": NamedBlob(b"x")}
    image = lay_out(full_program(), named_data=named)
    stream = io.BytesIO()
    assert image.write_to(stream) == image.nbytes == len(image.to_bytes()) == sum(map(len, image.chunks()))
    assert stream.getvalue() == image.to_bytes() == lay_out(full_program(), named_data=named).to_bytes()


def test_program_is_not_changed() -> None:
    program = full_program()
    lay_out(program, mutable_data=[Buffer(), Buffer(storage=b"1")], named_data={"k": NamedBlob(b"x")})
    assert program == full_program()


def test_program_comes_back() -> None:
    program = with_constants(4, 24, 0, 100)
    payloads = with_payloads([b"one", b"two"], [0], [1, 0])
    program.execution_plan += payloads.execution_plan
    program.backend_delegate_data = payloads.backend_delegate_data
    image = lay_out(program, mutable_data=[Buffer(), Buffer(storage=b"ab")], named_data={"k": NamedBlob(b"x")})
    file = read_program(image.to_bytes())
    assert file.program == image.program
    assert restore(file) == program
    again = lay_out(restore(file), mutable_data=restore_mutable_data(file), named_data=restore_named_data(file))
    assert again.to_bytes() == image.to_bytes()


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 20).map(lambda count: 4 * count), max_size=5),
    payloads=st.lists(st.binary(min_size=1, max_size=200), unique=True, max_size=4),
    named=st.dictionaries(st.text(max_size=3), st.builds(NamedBlob, st.binary(max_size=90)), max_size=4),
    alignment=st.sampled_from([1, 8, 16, 128, 4096]),
)
def test_any_layout_comes_back(
    sizes: list[int], payloads: list[bytes], named: dict[str, NamedBlob], alignment: int
) -> None:
    program = with_constants(*sizes)
    program.execution_plan += with_payloads(payloads, list(range(len(payloads)))).execution_plan
    program.backend_delegate_data = [BackendDelegateInlineData(data=payload) for payload in payloads]
    file = read_program(lay_out(program, named_data=named, segment_alignment=alignment).to_bytes())
    assert (restore(file), restore_named_data(file) or {}) == (
        program.model_copy(update={"named_data": None if named else []}),
        named,
    )


def laid_out() -> Program:
    return lay_out(with_constants(4)).program


@pytest.mark.parametrize("fault", ["in file", "constant 0", "initial value 0", "named", "segment delegate"])
def test_what_is_not_in_memory_form_is_rejected(fault: str) -> None:
    program, mutable = with_constants(4), None
    if fault == "in file":
        program = laid_out()
    elif fault == "constant 0":
        program.constant_buffer[0] = Buffer(storage=b"1")
    elif fault == "initial value 0":
        mutable = [Buffer(storage=b"1")]
    elif fault == "named":
        program.named_data = [NamedData(key="k")]
    else:
        program = with_payloads([b"1"], [0])
        program.execution_plan[0].delegates[0].processed.location = DataLocation.SEGMENT
    with pytest.raises(UsageError) as error:
        lay_out(program, mutable_data=mutable)
    assert error.value.code == "EK522"


def test_payloads_and_delegates_must_match() -> None:
    with pytest.raises(ModelError) as error:
        lay_out(with_payloads([b"1"], [1]))
    assert error.value.code == "EK513"
    with pytest.raises(ModelError) as error:
        lay_out(with_payloads([b"1", b"2"], [1]))
    assert error.value.code == "EK526"


@pytest.mark.parametrize("alignment", [0, -16, 24])
def test_alignments_are_powers_of_two(alignment: int) -> None:
    for name in ("segment_alignment", "constant_tensor_alignment", "delegate_alignment"):
        with pytest.raises(UsageError, match=name) as error:
            lay_out(with_constants(4), **{name: alignment})  # type: ignore[arg-type]
        assert error.value.code == "EK521"
    with pytest.raises(UsageError):
        lay_out(with_constants(4), named_data={"k": NamedBlob(b"1", alignment)})


def test_data_that_is_not_bytes_is_rejected() -> None:
    with pytest.raises(UsageError) as error:
        NamedBlob("text!")  # type: ignore[arg-type]
    assert error.value.code == "EK521"
    program = with_constants(4)
    program.constant_buffer[1].storage = "text"  # type: ignore[assignment]
    with pytest.raises(ModelError) as broken:
        lay_out(program)
    assert broken.value.code == "EK520"


def test_several_segments_of_initial_values_are_read_but_not_restored() -> None:
    program = lay_out(with_constants(4), mutable_data=[Buffer(), Buffer(storage=b"1")]).program
    assert program.mutable_data_segments is not None
    program.mutable_data_segments.append(program.mutable_data_segments[0])
    file = read_program(lay_out(with_constants(4), mutable_data=[Buffer(), Buffer(storage=b"1")]).to_bytes())
    file.program = program
    with pytest.raises(ModelError) as error:
        restore_mutable_data(file)
    assert error.value.code == "EK528"


def test_written_file_is_complete(tmp_path: Path) -> None:
    path, image = tmp_path / "model.pte", lay_out(full_program())
    path.write_bytes(b"old")
    write_file(path, image)
    assert path.read_bytes() == image.to_bytes()
    assert os.listdir(tmp_path) == ["model.pte"]


def test_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(b"old")
    image = lay_out(full_program())

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("exirkit.emit.segments.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_file(path, image)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.pte"]


def test_unbuffered_streams_may_write_less_than_they_are_given() -> None:
    class Slow(io.RawIOBase):
        def __init__(self) -> None:
            self.data = b""

        def write(self, data: object) -> int:
            self.data += bytes(data)[:100]  # type: ignore[call-overload]
            return min(100, len(data))  # type: ignore[arg-type]

    slow, image = Slow(), lay_out(full_program())
    image.write_to(slow)  # type: ignore[arg-type]
    assert slow.data == image.to_bytes()
