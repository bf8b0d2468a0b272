"""The runtime as users see it: loading, methods, metadata, sharing, errors."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.runtime_ref.assembly import BOUND, Assembly, registered

from exirkit.emit import (
    Buffer,
    ExtraTensorInfo,
    NamedBlob,
    ProgramFormatError,
    ProgramVerifyError,
    PteFile,
    ScalarType,
    TensorDataLocation,
    lay_out,
    read_program,
)
from exirkit.ir import ModelError, UsageError
from exirkit.runtime_ref import BackendRegistry, Limits, MetadataIndexError, Runtime, UnknownMethodError, Verification


def weighted() -> Assembly:
    asm = Assembly()
    x, y = asm.tensor([2, 4]), asm.tensor([2, 4])
    weight = asm.constant(torch.arange(4.0))
    asm.call("aten::mul.out", x, weight, y, y)
    asm.program([x], [y])
    return asm


def test_there_is_one_runtime() -> None:
    assert Runtime.get() is Runtime.get()


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "memoryview", "stream", "path", "str", "file"])
@pytest.mark.parametrize("verification", list(Verification))
def test_sources(kind: str, verification: Verification, tmp_path: Path) -> None:
    data = weighted().to_bytes()
    path = tmp_path / "weighted.pte"
    path.write_bytes(data)
    sources: dict[str, Any] = {
        "bytes": data,
        "bytearray": bytearray(data),
        "memoryview": memoryview(data),
        "stream": io.BytesIO(data),
        "path": path,
        "str": str(path),
        "file": read_program(data),
    }
    program = Runtime.get().load_program(sources[kind], verification=verification)
    assert program.method_names == {"forward"}
    [y] = program.load_method("forward").execute([torch.ones(2, 4)])
    assert torch.equal(y, torch.arange(4.0).expand(2, 4))


def test_open_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "weighted.pte"
    path.write_bytes(weighted().to_bytes())
    with path.open("rb") as file:
        assert Runtime.get().load_program(file).method_names == {"forward"}


@pytest.mark.parametrize("source", [5, None, io.StringIO("text"), "no/such/file.pte", Path("/")])
def test_what_cannot_be_loaded(source: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Runtime.get().load_program(source)
    assert caught.value.code == "EK648"


def test_constants_are_shown_where_they_are() -> None:
    asm = Assembly()
    weight = asm.constant(torch.arange(6.0))
    view = asm.tensor([2, 3], planned=False)
    asm.call("executorch_prim::et_view.default", weight, asm.argument([2, 3]), view)
    data = bytearray(asm.to_bytes(outputs=[view]))
    method = Runtime.get().load_program(data).load_method("forward")
    at = data.find(np.arange(6, dtype=np.float32).tobytes())
    data[at : at + 4] = np.float32(42).tobytes()
    assert method.execute([])[0][0].tolist() == [42.0, 1.0, 2.0]


def test_mapped_file_outlives_its_program(tmp_path: Path) -> None:
    path = tmp_path / "weighted.pte"
    path.write_bytes(weighted().to_bytes())
    method = Runtime.get().load_program(path).load_method("forward")
    path.unlink()
    assert torch.equal(method.execute([torch.ones(2, 4)])[0][0], torch.arange(4.0))


def test_method_is_loaded_once() -> None:
    program = Runtime.get().load_program(weighted().to_bytes())
    assert program.load_method("forward") is program.load_method("forward")


def test_unknown_method() -> None:
    program = Runtime.get().load_program(weighted().to_bytes())
    for call in (program.load_method, program.metadata):
        with pytest.raises(KeyError, match="'backward'") as caught:
            call("backward")
        assert isinstance(caught.value, UnknownMethodError)
        assert caught.value.code == "EK646"


def test_damaged_program_is_rejected_at_once_or_with_its_method() -> None:
    asm = weighted()
    asm.declared(0).dim_order = [0, 0]
    data = asm.to_bytes()
    with pytest.raises(ProgramVerifyError):
        Runtime.get().load_program(data)
    program = Runtime.get().load_program(data, verification=Verification.Minimal)
    with pytest.raises(ProgramVerifyError) as caught:
        program.load_method("forward")
    assert caught.value.code == "EK610"


def test_truncated_and_foreign_files() -> None:
    data = weighted().to_bytes()
    for wrong in (b"", data[:20], data[:-40], b"\0" * 64, data[:4] + b"ET99" + data[8:]):
        with pytest.raises(ProgramFormatError) as caught:
            Runtime.get().load_program(wrong)
        assert caught.value.code.startswith("EK50") or caught.value.code == "EK516"


def test_unknown_kernels_are_all_named_when_the_method_is_loaded() -> None:
    asm = weighted()
    asm.call("aten::mull.out", 0, 0, 1, 1)
    asm.call("aten::mul.otu", 0, 0, 1, 1)
    asm.call("unknown::has_this.out", 0, 1, 1)
    program = Runtime.get().load_program(asm.to_bytes())
    with pytest.raises(ProgramVerifyError) as caught:
        program.load_method("forward")
    found = caught.value.diagnostics
    assert [one.code for one in found] == ["EK620"] * 3
    assert found[0].message == "no kernel is called aten::mull.out"
    assert found[0].hint == "did you mean aten::mul.out?"
    assert found[1].hint == "did you mean aten::mul.out?"


def test_library_imported_after_loading() -> None:
    asm = Assembly()
    x, y = asm.tensor([3]), asm.tensor([3])
    asm.call("exirkit_late::negate.out", x, y, y)
    program = Runtime.get().load_program(asm.to_bytes([x], [y]))
    with pytest.raises(ProgramVerifyError):
        program.load_method("forward")
    with registered("exirkit_late::negate(Tensor x) -> Tensor", lambda x: -x):
        assert program.load_method("forward").execute([torch.ones(3)])[0].tolist() == [-1.0] * 3


def test_delegates_are_rejected_by_name() -> None:
    asm = weighted()
    asm.delegate("XnnpackBackend", 0, 1)
    program = Runtime.get().load_program(asm.to_bytes())
    with pytest.raises(ModelError, match="XnnpackBackend") as caught:
        program.load_method("forward")
    assert caught.value.code == "EK621"
    assert program.metadata("forward").uses_backend("XnnpackBackend")
    assert not program.metadata("forward").uses_backend("CoreMLBackend")


def test_registries() -> None:
    runtime = Runtime.get()
    assert "aten::add.out" in runtime.operator_registry.operator_names
    assert BackendRegistry().registered_backend_names == []
    assert not runtime.backend_registry.is_available("XnnpackBackend")


def test_metadata() -> None:
    asm = Assembly()
    x = asm.tensor([8, 3], torch.int16, dynamism=BOUND)
    n = asm.argument(3)
    y = asm.tensor([1, 2, 3, 4], planned=False, dim_order=[0, 2, 3, 1])
    state = asm.tensor([2], torch.float64, name="state")
    asm.call("aten::add_.Scalar", state, n, n, state)
    meta = Runtime.get().load_program(asm.to_bytes([x, n], [y, n])).metadata("forward")
    assert (meta.name(), meta.num_inputs(), meta.num_outputs(), meta.num_attributes()) == ("forward", 2, 2, 1)
    assert meta.num_instructions() == 1
    assert meta.num_memory_planned_buffers() == 1
    assert meta.memory_planned_buffer_size(0) == 64
    info = meta.input_tensor_meta(0)
    assert (info.sizes(), info.dtype(), info.nbytes()) == ((8, 3), ScalarType.SHORT, 48)
    assert info.is_memory_planned()
    assert repr(info) == "TensorInfo(sizes=[8, 3], dtype=SHORT, is_memory_planned=True, nbytes=48)"
    output = meta.output_tensor_meta(0)
    assert (output.dim_order(), output.is_memory_planned()) == ((0, 2, 3, 1), False)
    attribute = meta.attribute_tensor_meta(0)
    assert (attribute.name(), attribute.dtype().dtype, info.name()) == ("state", torch.float64, None)
    assert "num_inputs=2" in repr(meta)


@pytest.mark.parametrize(
    ("accessor", "index"),
    [
        ("input_tensor_meta", 1),
        ("input_tensor_meta", 2),
        ("input_tensor_meta", -1),
        ("output_tensor_meta", 5),
        ("attribute_tensor_meta", 0),
        ("memory_planned_buffer_size", 1),
    ],
)
def test_metadata_out_of_range(accessor: str, index: int) -> None:
    asm = Assembly()
    x, n = asm.tensor([1]), asm.argument(1)
    meta = asm.load([x, n], [x]).metadata
    with pytest.raises(IndexError) as caught:
        getattr(meta, accessor)(index)
    assert isinstance(caught.value, MetadataIndexError)
    assert caught.value.code == "EK647"


def test_attributes_are_found_by_name() -> None:
    asm = Assembly()
    asm.tensor([2], name="layer.state")
    method = asm.load()
    assert method.get_attribute("layer.state").tolist() == [0.0, 0.0]
    with pytest.raises(UnknownMethodError, match=r"layer\.state"):
        method.get_attribute("layer.stat")


def with_initial_value() -> Assembly:
    asm = Assembly()
    x, state = asm.tensor([3]), asm.tensor([3])
    asm.declared(state).data_buffer_idx = 1
    asm.call("aten::add_.Tensor", state, x, asm.argument(1), state)
    asm.program([x], [state])
    return asm


def test_initial_values_of_buffers() -> None:
    start = Buffer(storage=torch.tensor([5.0, 6.0, 7.0]).numpy().tobytes())
    image = lay_out(with_initial_value().program(), mutable_data=[Buffer(), start])
    program = Runtime.get().load_program(image.to_bytes())
    method = program.load_method("forward")
    assert method.execute([torch.ones(3)])[0].tolist() == [6.0, 7.0, 8.0]
    assert method.execute([torch.ones(3)])[0].tolist() == [7.0, 8.0, 9.0]


def test_initial_value_that_is_too_short() -> None:
    image = lay_out(with_initial_value().program(), mutable_data=[Buffer(), Buffer(storage=b"\0" * 8)])
    with pytest.raises(ProgramVerifyError, match="initial value 1 has 8 bytes") as caught:
        Runtime.get().load_program(image.to_bytes())
    assert caught.value.code == "EK613"


def external(nbytes: int) -> bytes:
    asm = Assembly()
    weight, y = asm.tensor([2], planned=False), asm.tensor([2])
    asm.declared(weight).extra_tensor_info = ExtraTensorInfo(
        fully_qualified_name="weight", location=TensorDataLocation.EXTERNAL
    )
    asm.call("aten::relu.out", weight, y, y)
    data = torch.tensor([3.0, -4.0]).numpy().tobytes()[:nbytes]
    return lay_out(asm.program(outputs=[y]), named_data={"weight": NamedBlob(data=data)}).to_bytes()


def test_constants_by_name() -> None:
    program = Runtime.get().load_program(external(8))
    assert program.load_method("forward").execute([])[0].tolist() == [3.0, 0.0]
    with pytest.raises(ProgramVerifyError, match="has 4 bytes"):
        Runtime.get().load_program(external(4))


def two_methods() -> PteFile:
    program = Assembly().program()
    program.execution_plan.clear()
    for name, amount in (("one", 1), ("ten", 10)):
        asm = Assembly()
        scratch, state = asm.tensor([3]), asm.tensor([1])
        number = asm.argument(amount)
        asm.call("aten::add_.Scalar", state, number, asm.argument(1), state)
        asm.program(outputs=[state])
        asm.plan.name = name
        assert scratch == 0
        program.execution_plan.append(asm.plan)
    return PteFile(program, None, [])


@pytest.mark.parametrize("shared", [False, True])
def test_methods_share_arenas_if_asked_to(shared: bool) -> None:
    program = Runtime.get().load_program(two_methods(), share_arenas=shared)
    one, ten = program.load_method("one"), program.load_method("ten")
    assert [one.execute([])[0].item(), ten.execute([])[0].item()] == ([1.0, 11.0] if shared else [1.0, 10.0])


def test_arena_that_the_system_does_not_give(monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(*_args: Any, **_kwargs: Any) -> Any:
        raise MemoryError

    program = Runtime.get().load_program(weighted().to_bytes())
    monkeypatch.setattr(np, "zeros", reject)
    with pytest.raises(ProgramVerifyError) as caught:
        program.load_method("forward")
    assert caught.value.code == "EK624"


def test_large_arenas_cost_nothing_until_they_are_used() -> None:
    asm = weighted()
    asm.plan.non_const_buffer_sizes[1] = 1 << 33
    program = Runtime.get().load_program(asm.to_bytes())
    assert torch.equal(program.load_method("forward").execute([torch.ones(2, 4)])[0][0], torch.arange(4.0))
    with pytest.raises(ProgramVerifyError) as caught:
        Runtime.get().load_program(asm.to_bytes(), limits=Limits(arena_nbytes=1 << 32))
    assert caught.value.code == "EK617"


def test_what_is_wrong_beyond_the_longest_report() -> None:
    """The second method is not examined any more, so nothing may rely on it either."""
    file = two_methods()
    first, second = file.program.execution_plan
    first.inputs.extend([1000] * 60)
    second.inputs.append(1000)
    with pytest.raises(ProgramVerifyError) as caught:
        Runtime.get().load_program(file)
    assert len(caught.value.diagnostics) == 50
