"""Checks pass over calls of which nothing has been replaced, and over no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.passes.programs import Function
from tests.verifiers.corruption_programs import call_in
from torch.export import ExportedProgram

from exirkit.verifiers import CallMemory, check_calls, check_metadata, recorded_values, remembering
from exirkit.verifiers.recorded_values import agreement


def exported(*sizes: int) -> ExportedProgram:
    with torch.no_grad():
        return torch.export.export(Function(lambda x: x.relu().sin().cos()), (torch.ones(sizes),), strict=False)


def codes(program: ExportedProgram) -> list[tuple[str, str | None]]:
    return [(one.code, one.location.node) for one in (*check_metadata(program), *check_calls(program))]


def another_value(program: ExportedProgram) -> None:
    node = call_in(program.graph_module, "sin")
    with node.meta["val"].fake_mode:
        node.meta["val"] = torch.empty(5, 7)


def another_operator(program: ExportedProgram) -> None:
    call_in(program.graph_module, "sin").target = torch.ops.aten.isnan.default


def another_argument(program: ExportedProgram) -> None:
    node = call_in(program.graph_module, "sin")
    node.args = (node.args[0], 1)


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (another_value, [("EK316", "%sin"), ("EK316", "%cos")]),
        (another_operator, [("EK315", "%sin")]),
        (another_argument, [("EK319", "%sin"), ("EK310", "%sin")]),
    ],
    ids=["value", "operator", "argument"],
)
def test_what_was_replaced_is_examined_again(
    edit: Callable[[ExportedProgram], None], expected: list[tuple[str, str]]
) -> None:
    program, memory = exported(2, 3), CallMemory()
    with remembering(memory):
        assert codes(program) == []
        assert all(memory.is_unchanged("values", node) for node in program.graph.nodes if node.op == "call_function")
        edit(program)
        # Findings are reported each time.
        assert codes(program) == codes(program) == expected
    assert codes(program) == expected


def test_layouts_that_were_found_in_order_are_known_in_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def noted(mode: Any, target: Any, *rest: Any) -> Any:
        asked.append(target)
        return agreement(mode, target, *rest)

    monkeypatch.setattr(recorded_values, "agreement", noted)
    monkeypatch.setattr(recorded_values, "_CONFIRMED", {})
    assert codes(exported(11, 13)) == []
    assert len(asked) == 3
    assert codes(exported(11, 13)) == []
    assert len(asked) == 3
    program = exported(11, 13)
    another_value(program)
    assert codes(program) == [("EK316", "%sin"), ("EK316", "%cos")]
