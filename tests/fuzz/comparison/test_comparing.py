"""From wrong passes to the pass, rule application, node and instruction that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from exirkit import GraphEditor, Pass, load_book, ops
from exirkit.cli.commands.compare import describe_runtime, describe_step
from exirkit.emit import lay_out, read_program, restore, restore_mutable_data
from exirkit.fuzz.comparison import (
    ComparedFile,
    LoweringChoices,
    LoweringSteps,
    MethodComparison,
    MethodJudge,
    Official,
    RuntimeResult,
    Tolerances,
    compare_method,
    drawn_inputs,
    eager_outputs,
    first_false_step,
    first_wrong_step,
    is_own_file,
    lower_in_steps,
    results_of,
    run_reference,
)
from exirkit.ir import copy_program
from exirkit.patterns import CompiledRule


class Gated(torch.nn.Module):
    """Two gates, of which a wrong rule rewrites one, and a buffer that counts."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 5)
        self.body = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU())
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate = self.first(x)
        gate = gate * torch.sigmoid(gate)
        y = self.body(gate)
        self.count.add_(y.sum(0))
        return y * torch.sigmoid(y), self.count + 1


def steps_of(**choices: Any) -> tuple[LoweringSteps, list[Sequence[Any]], Gated]:
    torch.manual_seed(0)
    model, x = Gated(), (torch.randn(2, 4),)
    exported = torch.export.export(model, x)
    return lower_in_steps({"forward": exported}, LoweringChoices(**choices)), [list(x), drawn_inputs(x, 0)], model


def wrong_rules(tmp_path: Path, replacement: str = "aten.gelu.default(x)") -> tuple[CompiledRule, ...]:
    book = tmp_path / "book.yaml"
    book.write_text(f"""rulebook: 1
rules:
- id: fuse.wrong
  doc: Not the same.
  vars: {{x: "f32 [*S, 3]"}}
  match: return aten.mul.Tensor(x, aten.sigmoid.default(x))
  replace: return {replacement}
  equiv: {{rtol: 1.0e-5, atol: 1.0e-6}}
""")
    return tuple(load_book(book).require_valid().rules)


class DropRelu(Pass):
    """A wrong pass that makes no node."""

    name = "drop-relu"

    def edit(self, editor: GraphEditor) -> None:
        for node in list(editor.graph.nodes):
            if node.target is ops.edge.aten.relu.default:
                editor.replace(node, node.args[0])


class NoOfficial(Official):
    def __init__(self) -> None:
        super().__init__()
        self.missing = "the executorch wheel is not installed"


class WrongKernel(Official):
    """Stands in for the official runtime: the reference runtime with one kernel taken for another."""

    def __init__(self, kernel: str, other: str) -> None:
        super().__init__()
        self.missing = None
        self._names = (kernel, other)

    def run(self, data: bytes, method: str, calls: Sequence[Sequence[Any]]) -> RuntimeResult:
        file = read_program(data)
        plan = next(one for one in file.program.execution_plan if one.name == method)
        kernel, other = self._names
        operators = [one.model_copy(update={"name": other}) if one.name == kernel else one for one in plan.operators]
        program = restore(file).model_copy(
            update={"execution_plan": [plan.model_copy(update={"operators": operators})]}
        )
        return run_reference(lay_out(program, mutable_data=restore_mutable_data(file)).to_bytes(), method, calls)


def compared(steps: LoweringSteps, calls: list[Sequence[Any]], official: Official, **more: Any) -> MethodComparison:
    assert steps.manager is not None, steps.failure
    file = more.pop("file", None) or ComparedFile(steps.manager.buffer, is_own=True)
    with official:
        return compare_method("forward", steps, file, calls, official, **more)


def test_nothing_is_wrong() -> None:
    steps, calls, model = steps_of()
    before = {name: value.clone() for name, value in model.named_buffers()}
    eager = eager_outputs(model, steps.exported["forward"], calls)
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())
    # State stays from run to run, in the model too.
    assert not torch.equal(torch.as_tensor(eager[0][1]), torch.as_tensor(eager[1][1]))
    found = compared(steps, calls, NoOfficial(), eager=eager)
    assert found.ok
    assert {one.executor for one in found.outputs} == {"exported program", "reference runtime"}
    assert found.missing == {"official runtime": "the executorch wheel is not installed"}
    assert found.step is None


@pytest.mark.executorch
def test_official_runtime_agrees() -> None:
    steps, calls, _ = steps_of()
    found = compared(steps, calls, Official())
    assert found.ok
    assert {one.executor for one in found.outputs} == {"reference runtime", "official runtime"}


def test_wrong_rule(tmp_path: Path) -> None:
    steps, calls, _ = steps_of(rules=wrong_rules(tmp_path))
    found = compared(steps, calls, NoOfficial())
    assert not found.ok
    step = found.step
    assert step is not None
    assert step.application is not None
    assert (step.application.rule, step.application.number) == ("fuse.wrong", 1)
    assert step.rule_place == f"{tmp_path}/book.yaml:6"
    assert step.node is not None
    assert step.node.place.call.startswith("aten.gelu.default(")
    assert step.node.before.call.startswith("aten.mul.Tensor(")
    assert found.instructions == ()
    text = describe_step(step).render()
    assert "error[EK735]: the results are wrong after application 1 of rule fuse.wrong" in text
    assert "return y * torch.sigmoid(y), self.count + 1" in text


def test_pass_that_removes_a_node() -> None:
    steps, calls, _ = steps_of(passes=(DropRelu(),))
    found = compared(steps, calls, NoOfficial())
    assert found.step is not None
    assert (found.step.stage, found.step.application) == ("drop-relu", None)
    assert [one.call for one in found.step.removed] == ["aten.relu.default(%aten_addmm_default_1)"]
    assert found.step.removed[0].module == "body.1"
    assert "removed there: %aten_relu_default" in describe_step(found.step).render()


def test_later_pass_that_hides_it(tmp_path: Path) -> None:
    """The step is named although the results at the end would be right within large tolerances."""
    steps, calls, _ = steps_of(rules=wrong_rules(tmp_path))
    judge = MethodJudge(results_of(steps.exported["forward"], calls), calls, Tolerances(rtol=10.0))
    assert first_wrong_step(steps.snapshots("forward"), judge) is None


def test_first_step_that_records_what_torch_does_not_compute() -> None:
    steps, _, _ = steps_of()
    path = list(steps.snapshots("forward"))
    assert first_false_step(path) is None

    def falsified(number: int, value: torch.Tensor) -> None:
        program = copy_program(path[number].program)
        (node,) = [one for one in program.graph.nodes if "relu" in one.name]
        with node.meta["val"].fake_mode:
            node.meta["val"] = value.to(node.meta["val"].device)
        path[number] = replace(path[number], program=program)

    # The exported program, from which all begins, is never named.
    for number, value in ((3, torch.empty(2, 4)), (2, torch.empty(2, 3, dtype=torch.int32)), (0, torch.empty(9))):
        falsified(number, value)
        found = first_false_step(path)
        number = max(number, 2)
        assert found is not None
        assert (found.stage, found.after, found.gap) == (path[number].stage, path[number - 1].stage, None)
        assert found.failure is not None
        assert "relu" in found.failure


def test_wrong_kernel_of_a_runtime() -> None:
    steps, calls, _ = steps_of()
    found = compared(steps, calls, WrongKernel("aten::relu", "aten::neg"))
    assert found.wrong("official runtime")
    assert not found.wrong("reference runtime")
    assert found.step is None
    (difference,) = found.instructions
    assert (difference.executor, difference.instruction.operator) == ("official runtime", "aten::relu.out")
    assert difference.node is not None
    assert difference.node.module == "body.1"
    assert "module: body.1" in describe_runtime("forward", difference).render()


def test_other_file() -> None:
    """A file that other choices made: runtimes are compared with each other, and the steps are reported as others."""
    steps, calls, _ = steps_of()
    dropped, _, _ = steps_of(passes=(DropRelu(),))
    assert steps.manager is not None
    assert dropped.manager is not None
    assert is_own_file(steps.manager.buffer, steps)
    assert not is_own_file(dropped.manager.buffer, steps)
    file = ComparedFile(dropped.manager.buffer, is_own=False)
    found = compared(steps, calls, WrongKernel("aten::addmm", "aten::addmm"), file=file)
    assert found.wrong("reference runtime")
    assert found.instructions == ()
    assert any("the file is not what these options make of the model" in one for one in found.notes)
    assert not any("memory plan" in one for one in found.notes)
    parted = compared(steps, calls, WrongKernel("aten::sigmoid", "aten::tanh"), file=file)
    (difference,) = parted.instructions
    assert (difference.against, difference.instruction.operator) == ("reference runtime", "aten::sigmoid.out")


def test_runtime_that_fails() -> None:
    steps, calls, _ = steps_of()
    found = compared(steps, calls, WrongKernel("aten::relu", "aten::nothing"))
    assert not found.ok
    assert "aten::nothing" in found.failures["official runtime"]


def test_pass_that_raises() -> None:
    def fails(module: torch.fx.GraphModule) -> None:
        raise ValueError("no")

    steps, _, _ = steps_of(passes=(DropRelu(), fails))
    assert steps.manager is None
    assert steps.failure is not None
    assert steps.snapshots("forward")[0].stage == "export"


@pytest.mark.parametrize("shape", [(0, 4), (1, 4), (7, 4)])
def test_odd_sizes(shape: tuple[int, int]) -> None:
    x = (torch.randn(shape),)
    exported = torch.export.export(torch.nn.Linear(4, 3), x)
    steps = lower_in_steps({"forward": exported}, LoweringChoices())
    assert compared(steps, [list(x), drawn_inputs(x, 1)], NoOfficial()).ok


def test_drawn_inputs_stay_in_range() -> None:
    example = [torch.tensor([3, 9]), torch.tensor([True]), torch.ones(2, dtype=torch.bfloat16), 4, None]
    first, second = drawn_inputs(example, 5), drawn_inputs(example, 5)
    assert set(first[0].tolist()) <= {3, 9}
    assert first[1].tolist() == [True]
    assert first[2].dtype == torch.bfloat16
    assert first[2].tolist() != [1.0, 1.0]
    assert first[3:] == [4, None]
    assert [torch.as_tensor(one).tolist() for one in first[:3]] == [torch.as_tensor(one).tolist() for one in second[:3]]
