"""Reference runs: state goes on, values have names, and errors are measured against 64 bits."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from tests.fuzz.programs.program_texts import TEXTS

from exirkit.fuzz.programs import Runner, inputs_of, parse_program, run_eagerly
from exirkit.ir import ModelError

ROUNDING = TEXTS["rounding"]


def test_state_goes_on_from_run_to_run() -> None:
    program = parse_program(TEXTS["state"])
    results = run_eagerly(program)
    assert torch.equal(results[0].outputs[1], torch.zeros(3))
    for before, after in pairwise(results):
        assert torch.equal(after.outputs[1], before.buffers["b"])
        assert torch.equal(after.outputs[2], before.buffers["last"])
    assert torch.equal(run_eagerly(program)[2].outputs[0], results[2].outputs[0])


def test_methods_share_state() -> None:
    results = run_eagerly(parse_program(TEXTS["methods"]))
    assert torch.equal(results[1].buffers["b"], results[0].buffers["b"])
    assert torch.equal(results[0].buffers["b"], results[0].outputs[0])


def test_all_is_read_before_anything_is_written() -> None:
    results = run_eagerly(parse_program(TEXTS["swap"]))
    assert [one.buffers["a"].tolist() for one in results] == [[4, 5, 6], [1, 2, 3]]
    assert [one.buffers["b"].tolist() for one in results] == [[1, 2, 3], [4, 5, 6]]


def test_inputs_are_left_alone_and_returned_as_written() -> None:
    program = parse_program(TEXTS["writes_to_input"])
    given = inputs_of(program, program.runs[0])
    before = [one.clone() for one in given]
    result = Runner(program).run(program.runs[0], inputs=given)
    assert all(map(torch.equal, given, before))
    assert torch.equal(result.outputs[0], before[0])
    assert torch.equal(result.inputs["x"], result.outputs[1])


def test_values_are_known_by_name() -> None:
    result = run_eagerly(parse_program(TEXTS["plain"]), keep_values=True)[0]
    assert set(result.values) == {"w", "c", "x", "y0", "y1", "y2", "y3", "y4", "y5", "unused"}
    assert torch.equal(result.values["y5"], result.outputs[0])


def test_sixty_four_bits_are_a_reference() -> None:
    program = parse_program(ROUNDING)
    plain, wide = run_eagerly(program)[0], run_eagerly(program, in_float64=True)[0]
    assert [one.dtype for one in plain.outputs] == [torch.bfloat16, torch.float32, torch.float32, torch.int32]
    assert [one.dtype for one in wide.outputs] == [torch.float64, torch.float64, torch.float64, torch.int32]
    # Parameters are rounded as the program has them.
    assert wide.outputs[0].tolist() == [1 + float(torch.tensor(0.1)), 1 + float(torch.tensor(1e-8))]
    assert wide.outputs[1].tolist() == [0.1, 0.1]
    assert wide.outputs[2].tolist() == [1 / 3, 2 / 3]
    assert torch.get_default_dtype() is torch.float32


@torch.library.custom_op("programs_of_the_bench::half", mutates_args=())
def half(x: torch.Tensor) -> torch.Tensor:
    if x.dtype is not torch.float32:
        raise TypeError("floats of 32 bits only")
    return x * 0.5


def test_operators_of_32_bits_are_run_with_32_bits() -> None:
    text = """program(1)
b = buffer("f32[4]", zeros())
def forward(x: "f32[4]"):
    y = programs_of_the_bench.half.default(x)
    z = aten.add.Tensor(y, 0.1)
    update(b, z)
    return y, z
run("forward", x=dyadic(1))
"""
    plain, wide = (run_eagerly(parse_program(text), in_float64=one)[0] for one in (False, True))
    assert wide.outputs[0].dtype is torch.float64
    assert torch.equal(wide.outputs[0], plain.outputs[0].double())
    assert torch.equal(wide.outputs[1], plain.outputs[0].double() + 0.1)


@pytest.mark.parametrize("in_float64", [False, True])
def test_a_step_that_fails_is_named(in_float64: bool) -> None:
    text = TEXTS["plain"].replace("(x, w)", "(w, x)").replace("f32[5, 3]", "f32[7, 3]")
    with pytest.raises(ModelError) as caught:
        run_eagerly(parse_program(text), in_float64=in_float64)
    assert caught.value.code == "EK809"
    assert caught.value.diagnostics[0].location.node == "y0"
    assert "mat1 and mat2" in caught.value.diagnostics[0].notes[0]
