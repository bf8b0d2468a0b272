"""`PassManager`: order, repetition, checks, blame."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import GraphModule

from exirkit.ir import ContractError, ModelError, UsageError
from exirkit.passes import (
    ExportedProgramPassBase,
    ExportedProgramPassResult,
    ExportPass,
    PassBase,
    PassManager,
    PassResult,
)

aten = torch.ops.aten


def relu_chain(length: int = 2) -> GraphModule:
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    with FakeTensorMode():
        value.meta["val"] = torch.empty(4)
        for _ in range(length):
            value = graph.call_function(aten.relu.default, (value,))
            value.meta["val"] = torch.empty(4)
    graph.output((value,))
    return GraphModule(torch.nn.Module(), graph)


def targets(module: GraphModule) -> list[Any]:
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


class Swap(ExportPass):
    def __init__(self, old: Any, new: Any) -> None:
        super().__init__()
        self.old, self.new = old, new

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        return super().call_operator(self.new if op is self.old else op, args, kwargs, meta)


class OneAtATime(ExportPass):
    """Replaces the first relu only."""

    def call(self, graph_module: GraphModule) -> PassResult:
        self.is_done = False
        return super().call(graph_module)

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        if op is aten.relu.default and not self.is_done:
            self.is_done, op = True, aten.sin.default
        return super().call_operator(op, args, kwargs, meta)


def relu_to_tanh_in_place(module: GraphModule) -> None:
    for node in module.graph.nodes:
        if node.target is aten.relu.default:
            node.target = aten.tanh.default


def test_passes_run_in_order() -> None:
    module = relu_chain()
    manager = PassManager([Swap(aten.relu.default, aten.sin.default), [(Swap(aten.sin.default, aten.cos.default),)]])
    result = manager(module)
    assert len(manager.passes) == 2
    assert isinstance(result, PassResult)
    assert result.modified
    assert targets(result.graph_module) == [aten.cos.default] * 2
    assert targets(module) == [aten.relu.default] * 2


def test_construction_is_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not PassManager()(relu_chain()).modified


def test_nothing_to_do_returns_the_input() -> None:
    module = relu_chain()
    result = PassManager([Swap(aten.sin.default, aten.cos.default)], steps=5)(module)
    assert (result.graph_module is module, result.modified) == (True, False)


def test_steps_repeat_until_nothing_changes() -> None:
    runs = 0

    class Counting(OneAtATime):
        def call(self, graph_module: GraphModule) -> PassResult:
            nonlocal runs
            runs += 1
            return super().call(graph_module)

    assert targets(PassManager([Counting()], steps=2)(relu_chain(3)).graph_module).count(aten.sin.default) == 2
    assert runs == 2
    result = PassManager([Counting()], steps=100)(relu_chain(3))
    assert targets(result.graph_module) == [aten.sin.default] * 3
    assert result.modified
    assert runs == 2 + 4


def test_kinds_of_results() -> None:
    def as_module(module: GraphModule) -> GraphModule:
        result: GraphModule = Swap(aten.relu.default, aten.sin.default)(module).graph_module
        return result

    def unmodified(module: GraphModule) -> PassResult:
        return PassResult(module, False)

    for one, expected, is_modified in (
        (relu_to_tanh_in_place, aten.tanh.default, True),
        (as_module, aten.sin.default, True),
        (unmodified, aten.relu.default, False),
        (functools.partial(unmodified), aten.relu.default, False),
        (PassManager([as_module]), aten.sin.default, True),
    ):
        result = PassManager([one])(relu_chain())
        assert targets(result.graph_module) == [expected] * 2
        assert result.modified is is_modified
    with pytest.raises(ContractError, match=r"EK412.*returns_text"):
        PassManager([returns_text])(relu_chain())


def returns_text(module: GraphModule) -> Any:
    return "done"


def test_code_follows_edits_in_place() -> None:
    result = PassManager([relu_to_tanh_in_place])(relu_chain(1))
    torch.testing.assert_close(result.graph_module(torch.ones(4))[0], torch.ones(4).tanh())


def test_values_left_stale_by_one_pass_are_fixed_by_the_next() -> None:
    def to_sum_in_place(module: GraphModule) -> None:
        next(node for node in module.graph.nodes if node.target is aten.relu.default).target = aten.sum.default

    manager = PassManager([to_sum_in_place, Swap(aten.cos.default, aten.sin.default)])
    result = manager(relu_chain(2)).graph_module
    assert [node.meta["val"].shape for node in result.graph.nodes if node.op == "call_function"] == [(), ()]


def test_failing_pass_is_named_with_its_predecessors() -> None:
    class Fails(PassBase):
        def call(self, graph_module: GraphModule) -> PassResult:
            raise ValueError("no torch.add here")

    with pytest.raises(ContractError) as caught:
        PassManager([relu_to_tanh_in_place, Fails()])(relu_chain())
    text = str(caught.value)
    assert caught.value.code == "EK411"
    assert isinstance(caught.value.__cause__, ValueError)
    for part in ("Fails", "no torch.add here", "after relu_to_tanh_in_place"):
        assert part in text, text


def test_diagnostics_of_passes_keep_their_code() -> None:
    class Fails(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            raise KeyError("x")

    with pytest.raises(ContractError) as caught:
        PassManager([Fails()])(relu_chain())
    assert caught.value.code == "EK403"
    assert "as the first pass" in "".join(caught.value.__notes__)


def break_graph(module: GraphModule) -> None:
    *_, last, output = module.graph.nodes
    last.prepend(output)


def no_tanh(module: GraphModule) -> None:
    if aten.tanh.default in targets(module):
        raise ValueError("tanh is not allowed")


def test_lint_blames_the_pass_that_broke_the_graph() -> None:
    passes = [Swap(aten.relu.default, aten.sin.default), break_graph, Swap(aten.relu.default, aten.cos.default)]
    with pytest.raises(ContractError, match=r"EK413.*pass break_graph") as caught:
        PassManager(passes, run_checks_after_each_pass=True)(relu_chain())
    assert "after Swap" in str(caught.value)
    assert caught.value.__cause__ is not None


def test_added_checks_run_after_each_pass() -> None:
    manager = PassManager([relu_to_tanh_in_place, Swap(aten.tanh.default, aten.sin.default)], True)
    manager.add_checks(no_tanh)
    with pytest.raises(ContractError, match=r"EK413.*relu_to_tanh_in_place.*not allowed"):
        manager(relu_chain())


def test_added_checks_run_at_the_end_otherwise() -> None:
    manager = PassManager([relu_to_tanh_in_place])
    manager.add_checks(no_tanh)
    with pytest.raises(ContractError, match=r"EK413.*the last pass"):
        manager(relu_chain())
    manager.add_pass(Swap(aten.tanh.default, aten.sin.default))
    assert targets(manager(relu_chain()).graph_module) == [aten.sin.default] * 2
    with pytest.raises(ValueError, match="not allowed"):
        manager.check(PassManager([relu_to_tanh_in_place])(relu_chain()).graph_module)


def test_failures_of_checks_can_be_warnings() -> None:
    manager = PassManager([relu_to_tanh_in_place], run_checks_after_each_pass=True, suppress_check_failures=True)
    manager.add_checks(no_tanh)
    with pytest.warns(UserWarning, match=r"warning\[EK413\].*relu_to_tanh_in_place"):
        assert manager(relu_chain()).modified


def test_a_broken_input_is_not_the_fault_of_a_pass() -> None:
    module = relu_chain()
    break_graph(module)
    with pytest.raises(ModelError, match="EK414"):
        PassManager([relu_to_tanh_in_place], run_checks_after_each_pass=True)(module)


class ProgramPass(ExportedProgramPassBase):
    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        return ExportedProgramPassResult(exported_program, False)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: PassManager([3]),
        lambda: PassManager([ProgramPass()]),
        lambda: PassManager([ExportPass]),
        lambda: PassManager(steps=0),
        lambda: PassManager().add_checks(lambda: None),
        lambda: PassManager().add_checks(None),
        lambda: PassManager()(torch.nn.ReLU()),
    ],
)
def test_misuse(misuse: Any) -> None:
    with pytest.raises(UsageError, match="EK410"):
        misuse()


def test_program_passes_check_what_comes_out() -> None:
    program = torch.export.export(torch.nn.ReLU(), (torch.randn(2),))
    other = torch.export.export(torch.nn.Tanh(), (torch.randn(2),))
    seen: list[Any] = []

    class Exchange(ProgramPass):
        def requires(self, exported_program: ExportedProgram) -> None:
            seen.append(exported_program)

        def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
            return ExportedProgramPassResult(other, True)

        def ensures(self, exported_program: ExportedProgram) -> None:
            seen.append(exported_program)

    result = Exchange()(program)
    assert seen[0] is program
    assert seen[1] is other
    assert result.modified

    class Odd(ProgramPass):
        def call(self, exported_program: ExportedProgram) -> Any:
            return exported_program

    with pytest.raises(ContractError, match=r"EK412.*Odd"):
        Odd()(program)
