"""What is recorded of a lowering is what was there, stage by stage."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.visualization.report.programs import LOWERINGS, Branches, Lowering, layers, rename_first
from torch.export import ExportedProgram

from exirkit import to_edge
from exirkit.ir import TensorSpec, copy_program, graphs_by_path, target_name
from exirkit.passes import StageEvent, load_partitioner, watching
from exirkit.program import lower_to_backends
from exirkit.visualization import LoweringRecord, ReportOptions, changes_between, report_document, report_page
from exirkit.visualization.report.rows import NodeReader, RowTable

Line = tuple[str, str, str]


def lines_of(program: ExportedProgram) -> list[Line]:
    """Return graph, name and operator of every node, calls only."""
    return [
        (path, node.name, target_name(node.target))
        for path, module in graphs_by_path(program.graph_module)
        for node in module.graph.nodes
        if node.op == "call_function"
    ]


def recorded_lines(record: LoweringRecord, rows: Sequence[int]) -> list[Line]:
    """Return the same of a recorded stage."""
    table = list(record.table.rows)
    texts = list(record.table.texts)
    other = {"input", "parameter", "buffer", "constant", "output", "graph", "get_attr"}
    found = [(texts[one.graph], texts[one.name], texts[one.verb]) for one in (table[row] for row in rows)]
    return [line for line in found if line[2] not in other]


class Listener:
    """Writes down what every run of passes makes, in full."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[ExportedProgram, ExportedProgram, list[tuple[str, list[Line]]]]] = {}
        self.open: dict[int, tuple[ExportedProgram, list[tuple[str, list[Line]]]]] = {}

    def see(self, event: StageEvent) -> None:
        """Take note of an event."""
        if event.moment == "start":
            self.open[event.run] = (event.program, [])
        elif event.moment == "after":
            self.open[event.run][1].append((event.name, lines_of(event.program)))
        elif event.moment == "end":
            source, stages = self.open.pop(event.run)
            self.seen[event.run] = (source, event.program, stages)


@pytest.fixture(scope="module", params=LOWERINGS)
def lowering(request: pytest.FixtureRequest) -> Lowering:
    return LOWERINGS[request.param]


@pytest.fixture(scope="module")
def recorded(lowering: Lowering) -> tuple[LoweringRecord, Any, dict[str, ExportedProgram]]:
    programs = lowering.programs()
    record = LoweringRecord(programs)
    with record.watching():
        manager = lowering.run(programs)
    return record, manager, programs


def test_every_stage_is_what_the_program_was(
    lowering: Lowering, recorded: tuple[LoweringRecord, Any, dict[str, ExportedProgram]]
) -> None:
    record, manager, programs = recorded
    # Lowering is deterministic, so a second one can be listened to in another way.
    listener = Listener()
    with watching(listener.see, sees_passes=True):
        again = lowering.run(programs)
    for method in programs:
        stages = record.stages(method, manager.exported_program(method))
        assert stages[0].name == "export"
        assert recorded_lines(record, stages[0].rows) == lines_of(programs[method])
        assert recorded_lines(record, stages[-1].rows) == lines_of(manager.exported_program(method))
        # Runs that lead to the result, the last one first.
        at, expected = again.exported_program(method), list[tuple[str, list[Line]]]()
        while at is not programs[method]:
            source, _, made = next(one for one in reversed(listener.seen.values()) if one[1] is at)
            expected, at = made + expected, source
        found = [
            (stage.name, recorded_lines(record, stage.rows)) for stage in stages[1:] if stage.name != "plan-memory"
        ]
        assert found == expected


def test_numbers_of_changes_and_differences_add_up(
    recorded: tuple[LoweringRecord, Any, dict[str, ExportedProgram]],
) -> None:
    record, manager, programs = recorded
    document = report_document(record, manager, ReportOptions())
    entity_of = document["rows"]["entity"]
    for method in document["methods"]:
        stages = record.stages(method["name"], manager.exported_program(method["name"]))
        before: list[int] = []
        for stage, written in zip(stages, method["stages"], strict=True):
            after = patched(before, written["delta"])
            assert after == list(stage.rows)
            assert len(after) == written["nodes"] == len({entity_of[row] for row in after})
            added, removed, changed, moved = written["counts"]
            old, new = ({entity_of[row]: row for row in rows} for rows in (before, after))
            assert (added, removed) == (len(new.keys() - old.keys()), len(old.keys() - new.keys()))
            assert changed == sum(old[one] != new[one] for one in old.keys() & new.keys())
            assert moved <= len(old.keys() & new.keys())
            if not stage.modified:
                assert not any(written["counts"])
            before = after
    assert set(programs) == {method["name"] for method in document["methods"]}


def patched(before: list[int], delta: list[int]) -> list[int]:
    """Return what a difference makes of a list of rows."""
    made: list[int] = []
    at = 0
    while at < len(delta):
        if delta[at] == 0:
            start, count = delta[at + 1 : at + 3]
            made += before[start : start + count]
            at += 3
        else:
            count = delta[at + 1]
            made += delta[at + 2 : at + 2 + count]
            at += 2 + count
    return made


def test_moves_are_counted() -> None:
    entity_of = list(range(10))
    assert changes_between(entity_of, [0, 1, 2, 3], [0, 2, 3, 1]).moved == 1
    assert changes_between(entity_of, [0, 1, 2, 3], [3, 2, 1, 0]).moved == 3
    assert not changes_between(entity_of, [0, 1, 2], [0, 1, 2]).any
    assert changes_between(entity_of, [], [5]).added == 1


def test_nodes_keep_their_number_when_they_are_renamed_and_retraced() -> None:
    programs = layers()
    record = LoweringRecord(programs)
    with record.watching():
        edge = to_edge(programs).transform([rename_first])
        manager = edge.to_executorch()
    stages = record.stages("forward", manager.exported_program())
    table, texts = list(record.table.rows), list(record.table.texts)
    named = {stage.name: {texts[table[row].name]: table[row].entity for row in stage.rows} for stage in stages}
    # The pass to Edge gives every call another name.
    assert named["decompose-to-core"]["addmm_default"] == named["convert-to-edge-operators"]["aten_addmm_default"]
    # A name that is gone, and the operator under another name, are two nodes; all others are the same.
    before, after = named["convert-to-edge-operators"], named["rename_first"]
    assert sum(before.get(name) != entity for name, entity in after.items()) == 1
    assert before["x"] == named["plan-memory"]["x"] == named["export"]["x"]


def shown(table: RowTable, rows: Sequence[int]) -> list[tuple[str, ...]]:
    """Return all that the rows of a stage say in words."""
    texts, known = list(table.texts), list(table.rows)
    return [
        tuple(texts[number] for number in (one.name, one.graph, one.verb, one.args, one.type, one.memory))
        for one in (known[row] for row in rows)
    ]


def test_a_later_stage_is_read_as_if_it_were_the_first() -> None:
    program = copy_program(to_edge(torch.export.export(Branches(), (torch.ones(3),))).exported_program())
    table = RowTable()
    reader = NodeReader(table, None)
    condition, other = [node for node in program.graph.nodes if node.op == "call_function"][:2]

    def rename() -> None:
        condition.name = "renamed"

    def retarget() -> None:
        condition.target = torch.ops.aten.prod.default

    def recorded() -> None:
        other.meta["val"] = torch.empty(5)

    def argue() -> None:
        condition.args = (*condition.args, 1.5)

    def name_argument() -> None:
        condition.kwargs = {"dtype": torch.float64}

    def place() -> None:
        other.meta["spec"] = TensorSpec.from_tensor(torch.empty(2))
        other.meta["spec"].mem_id, other.meta["spec"].mem_offset = 1, 16

    def move() -> None:
        other.meta["spec"].mem_offset = 32

    before: list[tuple[str, ...]] = []
    changes: list[Callable[[], None]] = [rename, retarget, recorded, argue, name_argument, place, move]
    for change in [lambda: None, *changes]:
        change()
        now = shown(table, reader.read(program).rows)
        fresh = RowTable()
        assert now == shown(fresh, NodeReader(fresh, None).read(program).rows)
        assert now != before
        before = now
    assert sum("%renamed" in one[3] for one in before) == 1


def test_rules_are_recorded_with_their_definitions() -> None:
    lowering = LOWERINGS["layers, rules"]
    programs = lowering.programs()
    record = LoweringRecord(programs)
    with record.watching():
        manager = lowering.run(programs)
    document = report_document(record, manager, ReportOptions())
    texts = document["texts"]
    applied = {texts[one[0]] for stage in document["methods"][0]["stages"] for one in stage.get("applications", ())}
    assert "simplify.mul-one-remove" in applied
    assert applied == set(document["rules"])
    rule = document["rules"]["simplify.mul-one-remove"]
    assert rule["text"].startswith("- id: simplify.mul-one-remove\n")
    assert rule["text"].count("- id:") == 1
    assert "match:" in rule["text"]
    assert rule["file"].endswith(".yaml")
    assert rule["line"] > 0


def test_a_failed_lowering_shows_the_way_to_the_failure() -> None:
    programs = layers()
    record = LoweringRecord(programs)

    def fail(module: torch.fx.GraphModule) -> None:
        raise RuntimeError("on purpose")

    with pytest.raises(Exception, match="on purpose"), record.watching():
        to_edge(programs).transform([rename_first, fail])
    names = [stage.name for stage in record.stages("forward")]
    assert names[0] == "export"
    assert names[-1] == "rename_first"
    document = report_document(record, None, ReportOptions(failure=["on purpose"]))
    assert document["failure"] == ["on purpose"]
    assert report_page(document)


def test_programs_that_are_changed_outside_of_passes_are_compared_with_what_was_there() -> None:
    programs = layers()
    record = LoweringRecord(programs)
    with record.watching():
        edge = to_edge(programs)
        changed = copy_program(edge.exported_program())
        record.add("by hand", {"forward": changed})
        record.add("by hand", {"forward": changed})
        manager = type(edge)({"forward": changed}).to_executorch()
    names = [stage.name for stage in record.stages("forward", manager.exported_program())]
    assert names.count("by hand") == 1
    assert "convert-to-edge-operators" in names
    assert names[-1] == "plan-memory"


def test_the_page_is_the_same_each_time() -> None:
    pages = []
    for _ in range(2):
        programs = layers()
        record = LoweringRecord(programs)
        with record.watching():
            manager = LOWERINGS["layers, rules"].run(programs)
        pages.append(report_page(report_document(record, manager, ReportOptions())))
    assert pages[0] == pages[1]
    assert json.dumps(report_document(record, manager, ReportOptions()))


def test_what_backends_lower_for_themselves_is_not_a_stage(tmp_path: Path) -> None:
    path = tmp_path / "npu.yaml"
    path.write_text(
        "partitioning: 1\nname: npu\nbackend: ReferenceBackend\nrules:\n- {name: products, op: aten.addmm.default}\n"
    )
    programs = layers()
    record = LoweringRecord(programs)
    with record.watching():
        edge = lower_to_backends(programs, [load_partitioner(path)], lambda edge: edge)
        record.add("to-backend", {"forward": edge.exported_program()})
        manager = edge.to_executorch()
    names = [stage.name for stage in record.stages("forward", manager.exported_program())]
    assert "other changes" not in names
    assert names.count("convert-to-out-variants") == 1
    at = names.index("to-backend")
    lines = recorded_lines(record, record.stages("forward", manager.exported_program())[at].rows)
    assert "executorch_call_delegate" in {verb for _, _, verb in lines}
