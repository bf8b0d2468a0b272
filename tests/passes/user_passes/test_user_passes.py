"""Pass managers in `transform`: their checks run, and repetition ends when nothing changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult

from exirkit import EdgeProgramManager, PassManager, to_edge
from exirkit.ir import ContractError


@pytest.fixture(scope="module")
def manager() -> EdgeProgramManager:
    return to_edge(torch.export.export(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sigmoid()), (torch.rand(2),)))


class Drop:
    """Removes one call at a time, the last first."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, module: GraphModule) -> PassResult:
        self.runs += 1
        calls = [node for node in module.graph.nodes if node.op == "call_function"]
        if calls:
            calls[-1].replace_all_uses_with(calls[-1].args[0])
            module.graph.erase_node(calls[-1])
        return PassResult(module, bool(calls))


def count(module: GraphModule) -> int:
    return sum(node.op == "call_function" for node in module.graph.nodes)


def two_calls(module: GraphModule) -> None:
    if count(module) < 2:
        raise ValueError(f"{count(module)} calls are left")


def test_checks_run_after_each_pass(manager: EdgeProgramManager) -> None:
    passes = PassManager([lambda module: None, Drop(), Drop()], run_checks_after_each_pass=True)
    passes.add_checks(two_calls)
    with pytest.raises(ContractError) as caught:
        manager.transform(passes)
    (found,) = caught.value.diagnostics
    assert found.code == "EK413"
    assert "after pass Drop: " in found.message
    assert "1 calls are left" in found.message
    assert found.notes == ("after <lambda>",)


def test_added_checks_run_in_the_end(manager: EdgeProgramManager) -> None:
    seen: list[int] = []

    def check(module: GraphModule) -> None:
        seen.append(count(module))

    passes = PassManager([Drop(), Drop()])
    passes.add_checks(check)
    manager.transform([lambda module: None, passes])
    assert seen == [0]


def test_a_malformed_graph_is_found_after_the_pass_that_made_it(manager: EdgeProgramManager) -> None:
    def unorder(module: GraphModule) -> None:
        first, second = (node for node in module.graph.nodes if node.op == "call_function")
        second.append(first)

    with pytest.raises(ContractError, match="pass unorder left %aten_sigmoid_default"):
        manager.transform(PassManager([unorder], run_checks_after_each_pass=True))


def test_failed_checks_can_be_warnings(manager: EdgeProgramManager) -> None:
    passes = PassManager([Drop()], suppress_check_failures=True)
    passes.add_checks(two_calls)
    with pytest.warns(UserWarning, match="EK413"):
        changed = manager.transform(passes)
    assert count(changed.exported_program().graph_module) == 1


def test_repetition_ends_when_nothing_changes(manager: EdgeProgramManager) -> None:
    drop = Drop()
    changed: Any = manager.transform(PassManager([drop], steps=50))
    assert count(changed.exported_program().graph_module) == 0
    assert drop.runs == 3


def test_methods_do_not_share_checks(manager: EdgeProgramManager) -> None:
    checked = PassManager([Drop()], run_checks_after_each_pass=True)
    checked.add_checks(two_calls)
    both = EdgeProgramManager({"one": manager.exported_program(), "two": manager.exported_program()})
    with pytest.raises(ContractError):
        both.transform({"two": checked})
    changed = both.transform({"one": PassManager([Drop()])})
    assert count(changed.exported_program("one").graph_module) == 1
