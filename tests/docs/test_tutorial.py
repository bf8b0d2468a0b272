"""The code of the public tutorial runs with only its imports changed, and does what the tutorial says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.docs.tutorial_blocks import BLOCKS
from tests.official.oracle import OfficialRuntime

from exirkit.runtime_ref import Runtime

Names = dict[str, Any]
Run = Callable[[str], Names]

# Tracing with dynamo warns of what will change in PyTorch, at the place in the tutorial where it is called.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs a block after those that it needs and returns the names that they define."""
    monkeypatch.chdir(tmp_path)

    def run_block(name: str) -> Names:
        # Tracing imports the module of the functions that it meets, and reads their source: both must be there.
        module = ModuleType("tutorial_under_test")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        for block in (*BLOCKS[name].needs, name):
            path = tmp_path / f"{block}.py"
            path.write_text(BLOCKS[block].code)
            exec(compile(BLOCKS[block].code, str(path), "exec"), module.__dict__)
        return module.__dict__

    return run_block


def operators(program: torch.export.ExportedProgram) -> list[str]:
    """Return the names of the operators in a program, in order."""
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def count(program: torch.export.ExportedProgram, part: str) -> int:
    """Return how many operators have `part` in their name."""
    return sum(part in operator for operator in operators(program))


def test_needs_come_before() -> None:
    order = list(BLOCKS)
    for block in BLOCKS.values():
        positions = [order.index(name) for name in (*block.needs, block.name)]
        assert positions == sorted(positions)


def test_no_block_imports_the_official_package() -> None:
    assert all("executorch." not in block.code for block in BLOCKS.values())


def test_export_a_model(run: Run) -> None:
    assert operators(run("export-a-model")["aten_dialect"]) == ["aten.conv2d.default", "aten.relu.default"]


def test_static_shapes(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("static-shapes")
    assert "Traceback" in capsys.readouterr().err


def test_dynamic_shapes(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("shapes-within-bounds")
    (bounds,) = names["aten_dialect"].range_constraints.values()
    assert (int(bounds.lower), int(bounds.upper)) == (1, 10)
    assert capsys.readouterr().err.count("Traceback") == 3


def test_lower_to_edge(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("lower-to-edge")
    program = names["edge_program"].exported_program()
    assert count(program, "convolution") == count(program, "relu") == 1
    assert len(operators(program)) == 2
    assert "Edge Dialect Graph" in capsys.readouterr().out


def test_several_methods(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("several-methods")
    assert set(names["edge_program"].methods) == {"encode", "decode"}
    printed = capsys.readouterr().out
    assert "Edge Dialect graph of encode" in printed
    assert "Edge Dialect graph of decode" in printed


def test_transform_replaces_and_keeps_its_input(run: Run) -> None:
    names = run("transform")
    before, after = names["edge_program"].exported_program(), names["transformed_edge_program"].exported_program()
    assert (count(before, "relu"), count(before, "sigmoid")) == (1, 0)
    assert (count(after, "relu"), count(after, "sigmoid")) == (0, 1)
    x = torch.randn(1, 3, 256, 256)
    weights = after.state_dict
    expected = torch.sigmoid(torch.nn.functional.conv2d(x, weights["conv.weight"], weights["conv.bias"], padding=1))
    torch.testing.assert_close(after.module()(x), expected)


def executed(buffer: bytes, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return Runtime.get().load_program(buffer, sanitize=True).load_method("forward").execute(inputs)


def test_lower_to_a_backend(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("compose")
    x = torch.tensor([0.7])
    assert capsys.readouterr().out.count("BackendWithCompilerDemo") == 2
    (alone,) = executed((tmp_path / "delegate.pte").read_bytes(), [x])
    assert torch.equal(alone, x.sin())
    assert count(names["exported_program"], "executorch_call_delegate") == 2
    got = executed(names["edge_program"].to_executorch().buffer, [x])
    for one, wanted in zip(got, (x.sin(), x.sin().sin(), x.sin() + x.sin().sin() + 0.3), strict=True):
        torch.testing.assert_close(one, wanted)


def test_partition(run: Run) -> None:
    names = run("partition-a-manager")
    inputs = [torch.randn(2, 2) for _ in range(3)]
    for program in names["delegated_program"].exported_program(), run("partition")["delegated_program"]:
        calls = [one for one in operators(program) if "getitem" not in one]
        assert [("delegate" in one, "sub" in one) for one in calls] == [(True, False), (False, True), (True, False)]
        module = program.graph_module
        inner = [operators(one.original_module) for one in (module.lowered_module_0, module.lowered_module_1)]
        assert [["mm" in name for name in one] for one in inner] == [[True, False]] * 2
    (got,) = executed(names["delegated_program"].to_executorch().buffer, inputs)
    torch.testing.assert_close(got, names["Foo"]()(*inputs))


def test_passes_and_memory_planning(run: Run) -> None:
    names = run("passes-and-memory-planning")
    program = names["executorch_program"].exported_program()
    assert count(program, "alloc") == 5
    assert count(program, "out") >= 5
    assert names["exir"].ExecutorchProgramManager is names["ExecutorchProgramManager"]
    (got,) = (
        Runtime.get()
        .load_program(names["executorch_program"].buffer)
        .load_method("forward")
        .execute(names["example_args"])
    )
    torch.testing.assert_close(got, names["Foo"]()(*names["example_args"]))


def end_to_end(run: Run, tmp_path: Path) -> tuple[Path, torch.Tensor, torch.Tensor]:
    """Run the last block; return its file, an input and the right answer."""
    names = run("end-to-end")
    path = tmp_path / "model.pte"
    assert path.read_bytes() == names["executorch_program"].buffer
    x = torch.randn(3, 4)
    return path, x, names["pre_autograd_aten_dialect"](x).detach()


def test_end_to_end(run: Run, tmp_path: Path) -> None:
    path, x, expected = end_to_end(run, tmp_path)
    (got,) = Runtime.get().load_program(path).load_method("forward").execute([x])
    torch.testing.assert_close(got, expected)


@pytest.mark.executorch
def test_end_to_end_on_the_official_runtime(run: Run, tmp_path: Path, official_runtime: OfficialRuntime) -> None:
    path, x, expected = end_to_end(run, tmp_path)
    ((got,),) = official_runtime.run(path, [[x]]).unwrap()
    torch.testing.assert_close(got, expected)


@pytest.mark.executorch
def test_several_methods_on_the_official_runtime(run: Run, official_runtime: OfficialRuntime) -> None:
    buffer = run("several-methods")["edge_program"].to_executorch().buffer
    for method, inputs, outputs in (("encode", 10, 5), ("decode", 5, 10)):
        ((got,),) = official_runtime.run(buffer, [[torch.randn(1, inputs)]], method=method).unwrap()
        assert isinstance(got, torch.Tensor)
        assert got.shape == (1, outputs)
