"""Programs that are built directly: valid for torch, and with the meaning that the reference gives them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from tests.fuzz.programs.program_texts import TEXTS
from torch._export.verifier import Verifier
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from exirkit.fuzz.programs import Program, Runner, RunResult, build, inputs_of, parse_program, run_eagerly
from exirkit.ir import ModelError


def same(one: Any, other: Any) -> bool:
    """Return whether two results agree bit for bit."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        plain = [
            each.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
            for each in (one, other)
        ]
        return torch.equal(*plain)
    return type(one) is type(other) and bool(one == other)


def run_exported(program: Program, built: dict[str, ExportedProgram]) -> list[RunResult]:
    """Make all runs on the graphs, and do what the signatures say with the results."""
    state = {name: tensor for one in built.values() for name, tensor in one.state_dict.items()}
    found = []
    for run in program.runs:
        exported = built[run.method]
        signature = exported.graph_signature
        given = list(inputs_of(program, run))
        tables = {**exported.constants, **state}
        placed = [tables[str(one.target)] if one.target else given.pop(0) for one in signature.input_specs]
        with torch.no_grad():
            results = exported.graph_module(*placed)
        outputs, written = [], {}
        for spec, value in zip(signature.output_specs, results, strict=True):
            if spec.kind is OutputKind.USER_OUTPUT:
                outputs.append(value)
            elif spec.kind is OutputKind.BUFFER_MUTATION:
                state = {**state, str(spec.target): value}
            else:
                written[str(spec.target)] = value
        buffers = {one.name: state[one.name] for one in program.stored if one.kind == "buffer"}
        found.append(RunResult(run.method, tuple(outputs), buffers, written, {}))
    return found


def assert_same(found: list[RunResult], wanted: list[RunResult]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert len(one.outputs) == len(other.outputs)
        for place, (value, truth) in enumerate(zip(one.outputs, other.outputs, strict=True)):
            assert same(value, truth), (place, value, truth)
        for mine, theirs in ((one.buffers, other.buffers), (one.inputs, other.inputs)):
            assert set(mine) == set(theirs)
            for name in mine:
                assert same(mine[name], theirs[name]), name


@pytest.mark.parametrize("name", TEXTS)
def test_graphs_mean_what_the_reference_says(name: str) -> None:
    program = parse_program(TEXTS[name])
    assert_same(run_exported(program, build(program)), run_eagerly(program))


@pytest.mark.parametrize("name", TEXTS)
def test_torch_takes_them_for_its_own(name: str) -> None:
    program = parse_program(TEXTS[name])
    for exported in build(program).values():
        Verifier().check(exported)
        assert not exported._guards_code
        for node in exported.graph.nodes:
            for value in [node.meta.get("val")]:
                if isinstance(value, torch.Tensor):
                    assert not value.fake_mode.shape_env.guards  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", TEXTS)
def test_modules_of_them_run(name: str) -> None:
    """`ExportedProgram.module` writes to its buffers, and checks inputs against the ranges."""
    program = parse_program(TEXTS[name])
    runner = Runner(program)
    modules = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method, exported in build(program).items():
            modules[method] = exported.module()
    if len(modules) > 1:
        pytest.skip("modules of several methods have states of their own")
    for run in program.runs:
        wanted = runner.run(run)
        with torch.no_grad():
            found = modules[run.method](*inputs_of(program, run))
        assert all(map(same, found, wanted.outputs))
        for one, tensor in wanted.buffers.items():
            assert same(modules[run.method].get_buffer(one), tensor)


@pytest.mark.parametrize("name", TEXTS)
def test_recorded_values_are_true(name: str) -> None:
    program = parse_program(TEXTS[name])
    built = build(program)
    for run, result in zip(program.runs, run_eagerly(program, keep_values=True), strict=True):
        nodes = {node.name: node for node in built[run.method].graph.nodes}
        for value, tensor in result.values.items():
            if value in nodes and isinstance(tensor, torch.Tensor):
                recorded = nodes[value].meta["val"]
                assert recorded.dtype == tensor.dtype
                assert recorded.dim() == tensor.dim()
                for size, truth, stride, step in zip(
                    recorded.shape, tensor.shape, recorded.stride(), tensor.stride(), strict=True
                ):
                    assert isinstance(size, torch.SymInt) or size == truth, value
                    assert isinstance(stride, torch.SymInt) or truth == 1 or stride == step, value


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("map", "[x]", "[]"),
        ("map", "[x], [w]", "x, w"),
        ("map", "[x], [w]", "[x, w], []"),
        ("map", "aten.sum.default(v)", "aten.sum.dim_IntList(v, [5])"),
        ("scan", "[start]", "[]"),
        ("while_loop", "[zero, x]", "[x]"),
        ("cond", "return q1, q2", "return q1"),
        ("cond", "return q1, q2", "return q2, q1"),
        ("cond", "return q1, q2", "return q1, 3"),
        ("plain", "y3, _ = ", "y3 = "),
        ("plain", "y0 = ", "y0, y0b = "),
        ("plain", "alpha=2", "beta=2"),
        ("plain", "aten.mm.default", "aten.nn.default"),
        ("symbols", '"f32[s0, 5]", y: "f32[2 * s1 + 1, s0]"', '"f32[s0, 5]", y: "f32[2 * s1 + 2, s0]"'),
        ("state", "update(b, z)", "update(b, y)"),
    ],
)
def test_wrong_programs_are_rejected_by_both(name: str, old: str, new: str) -> None:
    assert old in TEXTS[name]
    program = parse_program(TEXTS[name].replace(old, new))
    with pytest.raises(ModelError) as caught:
        build(program)
    assert caught.value.code in ("EK808", "EK809", "EK810")
    if name != "symbols" and "return q" not in old:
        with pytest.raises(ModelError) as caught:
            run_eagerly(program)
        assert caught.value.code in ("EK808", "EK809", "EK810")
