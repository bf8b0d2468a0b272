"""Running pipelines: the shipped ones do what the chain does; repetition, conditions, groups, checks, reports."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from exirkit import EdgeCompileConfig, EdgeProgramManager, ExecutorchBackendConfig, to_edge
from exirkit.ir import ContractError, EdgeOpOverload, GraphEditor, ModelError, UsageError, ops
from exirkit.passes import (
    DecomposeWholeGraph,
    ExportPass,
    Pass,
    Pipeline,
    StateResultLayouts,
    edge_settings,
    shipped_text,
)

HEAD = "pipeline: 1\nname: mine\ndialect: {from: edge, to: edge}\nstages:\n"


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)).view(-1) + 1


@pytest.fixture(scope="module")
def exported() -> ExportedProgram:
    with torch.no_grad():
        return torch.export.export(Small().eval(), (torch.rand(2, 4),))


@pytest.fixture(scope="module")
def edge(exported: ExportedProgram) -> EdgeProgramManager:
    return to_edge(exported)


def targets(program: ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def listed(program: ExportedProgram) -> list[str]:
    return [node.format_node() or "" for node in program.graph.nodes]


def test_the_chain_and_the_pipelines_are_one(exported: ExportedProgram, edge: EdgeProgramManager) -> None:
    before = listed(exported)
    made = Pipeline.shipped("to_edge").run(exported)
    assert made.is_complete
    assert listed(made.program) == listed(edge.exported_program())
    assert made.program.dialect == "EDGE"
    optimized = Pipeline.shipped("optimize_1").run(made.program).program
    lowered = Pipeline.shipped("to_executorch").run(optimized).program
    assert listed(lowered) == listed(edge.to_executorch().exported_program())
    assert lowered.dialect == "EXECUTORCH"
    assert listed(exported) == before


def test_a_copy_of_the_shipped_files_gives_the_same_bytes(exported: ExportedProgram, edge: EdgeProgramManager) -> None:
    verified = [shipped_text(name).replace("verify: none", "verify: each") for name in ("to_edge", "to_executorch")]
    first, second = map(Pipeline.parse, verified)
    assert to_edge(exported, pipeline=first).to_executorch(pipeline=second).buffer == edge.to_executorch().buffer


def test_a_changed_copy_is_used(exported: ExportedProgram) -> None:
    text = shipped_text("to_executorch").replace("      - pass: eliminate-views\n        when: remove-view-copy\n", "")
    text = text.replace("        options: {alloc_graph_output: {setting: alloc-graph-output}}\n", "")
    manager = to_edge(exported).to_executorch(pipeline=Pipeline.parse(text))
    assert "aten.view_copy.out" in targets(manager.exported_program())


def test_configuration_decides(exported: ExportedProgram) -> None:
    settings = edge_settings(EdgeCompileConfig(_skip_dim_order=True, preserve_ops=[torch.ops.aten.linear.default]))
    settings["check-ir-validity"] = False
    result = Pipeline.shipped("to_edge").run(exported, settings=settings)
    names = [report.name for report in result.reports]
    assert "use-dim-order-operators" not in names
    assert "core-aten" not in names
    assert "aten.linear.default" in targets(result.program)


def test_settings_are_known(exported: ExportedProgram) -> None:
    with pytest.raises(UsageError, match="EK478"):
        Pipeline.shipped("to_edge").run(exported, settings={"fast": True})
    own = Pipeline.parse(
        HEAD.replace("stages:", "settings: {fast: false}\nstages:") + "- {pass: lift-constants, when: fast}"
    )
    assert [
        len(own.run(to_edge(exported).exported_program(), settings={"fast": on}).reports) for on in (True, False)
    ] == [1, 0]


def test_reports_and_stopping(exported: ExportedProgram) -> None:
    pipeline = Pipeline.shipped("to_edge")
    for stop in (1, "decompose"):
        result = pipeline.run(exported, stop_after=stop)
        assert not result.is_complete
        assert [report.number for report in result.reports] == [f"1.{number}" for number in range(1, 10)]
    decompose = next(report for report in result.reports if report.name == "decompose-to-core")
    assert decompose.modified
    assert decompose.nodes_after - decompose.nodes_before == decompose.created - decompose.erased > 0
    assert all(report.seconds > 0 for report in result.reports)
    assert "decompose-to-core" in result.table()
    assert not any(isinstance(node.target, EdgeOpOverload) for node in result.program.graph.nodes)
    assert pipeline.run(exported, stop_after="4.9").reports[-1].name == "convert-to-edge-operators"
    with pytest.raises(UsageError, match="EK478"):
        pipeline.run(exported, stop_after="nowhere")


def test_a_run_in_two_parts(exported: ExportedProgram) -> None:
    edge = to_edge(exported).exported_program()
    pipeline = Pipeline.shipped("optimize_1")
    first = pipeline.run(edge, stop_before="simplify")
    rest = pipeline.run(first.program, start_at="simplify")
    assert (first.is_complete, rest.is_complete) == (False, True)
    whole = pipeline.run(edge)
    assert [one.name for one in (*first.reports, *rest.reports)] == [one.name for one in whole.reports]
    assert listed(rest.program) == listed(whole.program)
    for place in ({"start_at": "2.9"}, {"stop_before": "nowhere"}):
        with pytest.raises(UsageError, match="EK478"):
            pipeline.run(edge, **place)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="part of another one"):
        Pipeline.shipped("to_edge").run(exported, start_at="1.4")


def test_titles_are_told(exported: ExportedProgram) -> None:
    lines: list[str] = []
    to_edge(exported, progress=lines.append).to_executorch(progress=lines.append)
    steps = ["decomposing", "lowering to Edge", "optimizing", "lowering to ExecuTorch", "planning memory"]
    assert lines == [f"forward: {step}" for step in steps]


def test_the_other_way_to_decompose() -> None:
    class InWindows(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            y.unfold(0, 1, 1).add_(x[:, None])
            return y

    with torch.no_grad():
        program = torch.export.export(InWindows(), (torch.ones(2),))
    before = listed(program)
    result = Pipeline.shipped("to_edge").run(program, stop_after=1)
    assert [(report.number, report.name) for report in result.reports] == [
        ("1.10", StateResultLayouts.name),
        ("1.11", DecomposeWholeGraph.name),
    ]
    assert listed(program) == before
    whole = Pipeline.shipped("to_edge").run(program).program
    with torch.no_grad():
        assert all(torch.equal(whole.module()(x), program.module()(x)) for x in (torch.ones(2), -torch.ones(2)))


def test_a_pipeline_of_another_dialect(exported: ExportedProgram, edge: EdgeProgramManager) -> None:
    with pytest.raises(UsageError, match="EK478"):
        Pipeline.shipped("to_executorch").run(exported)
    with pytest.raises(UsageError, match="EK478"):
        Pipeline.shipped("to_edge").run(edge.exported_program())
    with pytest.raises(UsageError, match="EK705"):
        to_edge(exported, pipeline=Pipeline.shipped("to_executorch"))
    with pytest.raises(UsageError, match="EK705"):
        edge.to_executorch(pipeline=Pipeline.shipped("to_edge"))


class Swap(ExportPass):
    """Replaces relu by sigmoid, or the other way round."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        pair = (ops.edge.aten.relu.default, ops.edge.aten.sigmoid.default)
        return super().call_operator(pair[1 - pair.index(op)] if op in pair else op, args, kwargs, meta)


class OneRelu(Pass):
    """Removes the first relu."""

    name = "one-relu"

    def edit(self, editor: GraphEditor) -> None:
        for node in editor.graph.nodes:
            if node.target is ops.edge.aten.relu.default:
                editor.replace(node, node.args[0])
                editor.erase(node)
                return


def chain() -> ExportedProgram:
    return to_edge(
        torch.export.export(torch.nn.Sequential(*[torch.nn.ReLU()] * 3), (torch.rand(2),))
    ).exported_program()


def test_repetition_to_a_fixpoint() -> None:
    made = Pipeline.parse(
        HEAD + "- repeat: [{pass: one-relu}, {pass: eliminate-dead-code}]", passes={"one-relu": OneRelu}
    )
    result = made.run(chain())
    assert not targets(result.program)
    rounds = [(report.round, report.modified) for report in result.reports if report.name == "one-relu"]
    assert rounds == [(1, True), (2, True), (3, True), (4, False)]


def test_repetition_that_never_rests_names_the_stages() -> None:
    text = HEAD + "- repeat: [{pass: swap}, {pass: eliminate-dead-code}]\n  bound: 4\n"
    with pytest.raises(ContractError) as caught:
        Pipeline.parse(text, "mine.yaml", passes={"swap": Swap}).run(chain())
    (found,) = caught.value.diagnostics
    assert (found.code, found.location.line) == ("EK476", 5)
    assert found.notes == ("still changing: swap",)


def test_rules_in_a_pipeline() -> None:
    text = HEAD + "- repeat:\n  - rules: [canonicalize, algebra]\n    limit: 50\n  - pass: merge-equal-nodes\n"
    result = Pipeline.parse(text).run(chain())
    assert len(targets(result.program)) == 1, "relu of relu is relu"


def test_passes_over_graph_modules_and_programs_as_stages() -> None:
    seen: list[str] = []

    def look(module: GraphModule) -> None:
        seen.append(type(module).__name__)

    inner = Pipeline.parse(HEAD + "- pass: one-relu", passes={"one-relu": OneRelu})
    made = Pipeline.parse(
        HEAD + "- pass: look\n- pass: swap\n- pass: inner", passes={"look": look, "swap": Swap(), "inner": inner}
    )
    program = chain()
    result = made.run(program)
    assert seen
    assert targets(result.program) == ["aten.sigmoid.default"] * 3
    assert targets(program) == ["aten.relu.default"] * 3
    # They report no counts.
    assert [one.name for one in result.reports] == ["look", "swap", "inner"]
    assert {(one.created, one.erased, one.changed) for one in result.reports} == {(0, 0, 0)}


def test_transform_takes_pipelines() -> None:
    manager = EdgeProgramManager(chain())
    made = Pipeline.parse(HEAD + "- pass: one-relu", passes={"one-relu": OneRelu})
    assert len(targets(manager.transform([made, made]).exported_program())) == 1
    config = ExecutorchBackendConfig(passes=[made])
    assert manager.to_executorch(config).buffer


class Vandal(Pass):
    """Puts a torch overload where an edge handle has to be."""

    name = "vandal"

    def edit(self, editor: GraphEditor) -> None:
        node = editor.graph.find_nodes(op="call_function", target=ops.edge.aten.relu.default)[0]
        editor.retarget(node, torch.ops.aten.relu.default)


@pytest.mark.parametrize(
    ("verify", "where"), [("each", "after stage 2, vandal (mine.yaml:7)"), ("end", "at the end of mine.yaml")]
)
def test_verification_finds_the_culprit(verify: str, where: str) -> None:
    text = (
        HEAD.replace("stages:", f"verify: {verify}\nstages:")
        + "- pass: lift-constants\n- pass: vandal\n- pass: lift-constants"
    )
    with pytest.raises(ContractError) as caught:
        Pipeline.parse(text, "mine.yaml", passes={"vandal": Vandal}).run(chain())
    assert [(one.code, one.notes[-1]) for one in caught.value.diagnostics] == [("EK303", where)]


def test_a_check_stage() -> None:
    text = HEAD + "- {pass: vandal, invalidates: edge-operators}\n- check: edge-dialect\n"
    with pytest.raises(ModelError, match="EK303"):
        Pipeline.parse(text, passes={"vandal": Vandal}).run(chain())
    (report,) = Pipeline.parse(HEAD + "- check: edge-dialect\n").run(chain()).reports
    assert (report.modified, report.created, report.erased, report.changed) == (False, 0, 0, 0)
    assert report.nodes_before == report.nodes_after


def test_dynamic_shapes_reach_the_passes() -> None:
    class Sizes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 2.0).view(x.shape[0] * x.shape[1]) + x.shape[0]

    shapes = ({0: Dim("rows", min=2, max=6)},)
    program = torch.export.export(Sizes(), (torch.rand(3, 4),), dynamic_shapes=shapes)
    made = Pipeline.shipped("to_executorch").run(Pipeline.shipped("to_edge").run(program).program).program
    assert "executorch_prim::mul" in {getattr(node.target, "_schema", node).name for node in made.graph.nodes}
