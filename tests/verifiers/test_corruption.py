"""Nothing wrong gets through: every class of corruption is found, in methods and in branches, with code and node."""

from __future__ import annotations

from typing import Any

import pytest
from tests.verifiers.corruption_programs import bodies, program
from tests.verifiers.corruptions import CORRUPTIONS, Corruption, corrupted
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit import Diagnostic
from exirkit.verifiers import check_memory_plan, check_program

DIALECT: dict[str, Any] = {
    "aten": "aten",
    "loops": "aten",
    "edge": "edge",
    "plain edge": "edge",
    "executorch": "executorch",
    "planned": "executorch",
}
CASES = [(one, name, depth) for one in CORRUPTIONS for name, depth in one.cases()]


def findings(made: ExportedProgram, name: str) -> list[Diagnostic]:
    found = check_program(made, DIALECT[name], debug_handles="edge" in name)
    return found + (check_memory_plan(made.graph_module, made.graph_signature) if name == "planned" else [])


def names(finding: Diagnostic, node: Node) -> bool:
    """Return whether a finding names a node; those of memory plans also say at which step."""
    return str(finding.location.node).rpartition(", ")[2] == f"%{node.name}"


@pytest.mark.parametrize("name", DIALECT)
def test_valid_programs_have_no_findings(name: str) -> None:
    assert [one.render() for one in findings(program(name), name)] == []


@pytest.mark.parametrize(("one", "name", "depth"), CASES, ids=[f"{one.name}-{at}-{depth}" for one, at, depth in CASES])
def test_corruption_is_found(one: Corruption, name: str, depth: int) -> None:
    made, code, node = corrupted(one, name, depth)
    found = findings(made, name)
    named = [each for each in found if each.code == code and names(each, node)]
    assert named, [one.render() for one in found]
    if depth:
        assert named[0].notes[-1].startswith("in the graph true_graph_0")


def test_there_are_enough_classes() -> None:
    assert len(CORRUPTIONS) >= 25
    assert sum(max(one.depths) > 0 for one in CORRUPTIONS) >= 25


def test_several_corruptions_are_found_at_once() -> None:
    made = program("edge")
    wanted = set()
    for one in (each for each in CORRUPTIONS if each.name in ("argument_missing", "handle_lost", "input_without_spec")):
        for depth in one.depths:
            code, node = one.apply(made, bodies(made, depth=depth))
            wanted.add((code, f"%{node.name}"))
    assert wanted <= {(each.code, each.location.node) for each in findings(made, "edge")}
