"""Bundled programs: written, read and verified by both runtimes, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.devtools.official_tools import run_official
from tests.official.oracle import OfficialRuntime

from exirkit import to_edge
from exirkit.devtools import (
    Bundle,
    BundledProgram,
    MethodTestCase,
    MethodTestSuite,
    deserialize_from_flatbuffer_to_bundled_program,
    serialize_from_bundled_program_to_flatbuffer,
)
from exirkit.emit import BundledTensor, bundled_program_file, read_bundled_program, read_program
from exirkit.ir import UsageError


class Counted(torch.nn.Module):
    """Adds how often it was called: a case must not see what earlier cases left."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


class Mixed(torch.nn.Module):
    """Takes nested inputs with numbers, and returns several dtypes."""

    def forward(self, x: dict[str, torch.Tensor], scale: int, flag: bool, factor: float) -> Any:
        y = x["a"] * scale if flag else x["a"]
        return {"y": y * factor, "half": y.to(torch.bfloat16), "mask": x["b"] > 1, "index": x["b"].to(torch.int64)}


class Channels(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def lowered(model: torch.nn.Module, *inputs: Any, **options: Any) -> Any:
    return to_edge(torch.export.export(model.eval(), inputs, **options)).to_executorch()


def bundled(program: Any, *cases: MethodTestCase, method: str = "forward") -> bytes:
    return serialize_from_bundled_program_to_flatbuffer(BundledProgram(program, [MethodTestSuite(method, cases)]))


MIXED = ({"a": torch.randn(2, 3), "b": torch.tensor([0.0, 2.0])}, 3, True, 0.5)
BATCH = torch.export.Dim("batch", min=1, max=7)
X = torch.randn(2, 3, 5, 5)
# Model, arguments, options of the export, further arguments.
MODELS: dict[str, tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any], Sequence[tuple[Any, ...]]]] = {
    "numbers": (Mixed(), MIXED, {}, [({"a": torch.ones(3, 2).T, "b": torch.tensor([3.0, -1.0])}, 3, True, 0.5)]),
    "channels last": (Channels(), (X.to(memory_format=torch.channels_last),), {}, [(X,), (X.transpose(2, 3),)]),
    "dynamic": (
        torch.nn.Linear(3, 2),
        (torch.randn(3, 3),),
        {"dynamic_shapes": ({0: BATCH},)},
        [(torch.randn(1, 3),), (torch.randn(7, 3),)],
    ),
    "view": (
        torch.nn.Linear(3, 2),
        (torch.randn(4, 3),),
        {},
        [(torch.randn(6, 8)[1:5, ::3],), (torch.ones(1, 1).expand(4, 3),)],
    ),
    "state": (Counted(), (torch.ones(2),), {}, [(torch.zeros(2),)]),
}


@pytest.mark.executorch
@pytest.mark.parametrize("name", MODELS)
def test_both_runtimes_verify_what_we_write(name: str, official_runtime: OfficialRuntime) -> None:
    model, inputs, options, more = MODELS[name]
    program = lowered(model, *inputs, **options)
    calls = [inputs, *more]
    with torch.no_grad():
        expected = [type(model)()(*call) if name == "state" else model(*call) for call in calls]
    data = bundled(program, *map(MethodTestCase, calls, expected))
    bundle = Bundle.read(data)
    assert bundle.cases == [("forward", index) for index in range(len(calls))]
    for case in bundle.cases:
        result = bundle.run(*case)
        assert result.is_compared
        assert result.ok, result.differences
        # The results of another machine may differ in more than the last bits; here it is the same one.
        outputs = official_runtime.test_case(data, *case, rtol=1e-4, atol=1e-5).unwrap()[0]
        for one, other in zip(outputs, result.outputs, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.executorch
@pytest.mark.parametrize("name", MODELS)
def test_every_wrong_element_is_found_by_both(name: str, official_runtime: OfficialRuntime) -> None:
    model, inputs, options, _ = MODELS[name]
    program = lowered(model, *inputs, **options)
    (right,) = Bundle.read(bundled(program, MethodTestCase(inputs))).cases
    outputs = Bundle.read(bundled(program, MethodTestCase(inputs))).run(*right).outputs
    for place in range(len(outputs)):
        wrong = [one.clone(memory_format=torch.contiguous_format) for one in outputs]
        flat = wrong[place].view(-1)
        flat[-1] = ~flat[-1] if flat.dtype == torch.bool else flat[-1] + 1
        data = bundled(program, MethodTestCase(inputs, wrong))
        assert [one.code for one in Bundle.read(data).run("forward", 0).differences] == ["EK728"]
        failure = official_runtime.test_case(data, "forward", 0).failure
        assert failure is not None
        assert "status 32" in failure.text


def test_a_bundle_that_was_read_gives_the_same_file() -> None:
    model, inputs, _, more = MODELS["numbers"]
    program = lowered(model, *inputs)
    data = bundled(program, *(MethodTestCase(one, model(*one)) for one in (inputs, *more)))
    table = deserialize_from_flatbuffer_to_bundled_program(data)
    assert bytes(table.program) == program.buffer
    first = table.method_test_suites[0].test_cases[1].inputs[0].val
    assert isinstance(first, BundledTensor)
    assert torch.equal(first.tensor(), more[0][0]["a"])
    assert bundled_program_file(table).to_bytes() == data
    # The program can be run where it lies.
    start = data.find(program.buffer)
    assert start % 32 == 0


@pytest.mark.executorch
def test_the_official_package_reads_ours_and_we_read_its(tmp_path: Path) -> None:
    model, inputs, _, _ = MODELS["numbers"]
    ours = bundled(lowered(model, *inputs), MethodTestCase(inputs, model(*inputs)))
    (tmp_path / "ours.bpte").write_bytes(ours)
    found = run_official(tmp_path, "read_bundle", "write_bundle")
    assert found["read_bundle"] == ["Tensor", "Tensor", "Int", "Bool", "Double"]
    assert Bundle.open(tmp_path / "official.bpte").run("forward", 0).ok


def test_a_program_file_of_any_exporter(tmp_path: Path) -> None:
    model, inputs, _, _ = MODELS["dynamic"]
    lowered(model, *inputs).save(tmp_path / "model.pte")
    suites = [MethodTestSuite("forward", [MethodTestCase(inputs, model(*inputs))])]
    data = serialize_from_bundled_program_to_flatbuffer(
        BundledProgram(None, suites, pte_file_path=tmp_path / "model.pte")
    )
    assert Bundle.read(data).run("forward", 0).ok
    assert read_program(memoryview(read_bundled_program(data).program)).program.execution_plan[0].name == "forward"


WRONG: dict[str, tuple[Any, Any]] = {
    "too few inputs": ((), None),
    "dtype": ((torch.ones(3, 3, dtype=torch.float64),), None),
    "rank": ((torch.ones(9),), None),
    "beyond the bound": ((torch.ones(8, 3),), None),
    "number for a tensor": ((3,), None),
    "too many outputs": ((torch.ones(3, 3),), (torch.ones(3, 2), torch.ones(3, 2))),
    "dtype of an output": ((torch.ones(3, 3),), (torch.ones(3, 2, dtype=torch.int32),)),
    "number for an output": ((torch.ones(3, 3),), (1.0,)),
    "rank of an output": ((torch.ones(3, 3),), (torch.ones(6),)),
}


@pytest.mark.parametrize("name", WRONG)
def test_cases_that_do_not_fit_are_rejected_before_they_are_written(name: str) -> None:
    model, inputs, options, _ = MODELS["dynamic"]
    with pytest.raises(UsageError) as caught:
        bundled(lowered(model, *inputs, **options), MethodTestCase(*WRONG[name]))
    assert {one.code for one in caught.value.diagnostics} == {"EK710"}
