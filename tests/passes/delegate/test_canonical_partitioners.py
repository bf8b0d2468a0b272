"""The helper partitioners: like torch's where these are right, and never a partition that waits for itself."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
import torch
from tests.passes.delegate.test_growing import random_graph
from tests.program.delegation_models import Counting
from torch import Tensor, nn
from torch.export import ExportedProgram, export
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner as TorchPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from exirkit import (
    AllNodePartitioner,
    CapabilityBasedPartitioner,
    DelegateMappingBuilder,
    GroupBasedPartitioner,
    ReferenceBackend,
    UsageError,
    format_delegated_graph,
    generate_grouped_partitions_from_list_of_nodes,
    generate_partitions_from_list_of_nodes,
    generate_pattern_op_partitions,
    get_delegates,
    get_delegation_info,
    get_non_lowered_nodes,
    print_delegation_info,
    tag_constant_data,
    tag_mutated_buffer,
    to_edge,
)
from exirkit.passes import DELEGATION_TAG, partitions_of
from exirkit.runtime_ref import Runtime


class Chosen(OperatorSupportBase):
    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = set(nodes)

    def is_node_supported(self, submodules: Mapping[str, nn.Module], node: Node) -> bool:
        return node in self.nodes


def check(module: GraphModule, found: Sequence[Sequence[Node]]) -> None:
    for node in module.graph.nodes:
        node.meta.pop(DELEGATION_TAG, None)
    for number, nodes in enumerate(found):
        for node in nodes:
            node.meta[DELEGATION_TAG] = f"tag{number}"
    assert len(partitions_of(module.graph)) == len(found)


def test_about_as_few_partitions_as_torch() -> None:
    ours = theirs = 0
    for seed in range(60):
        draw = random.Random(seed)
        module = GraphModule(nn.Module(), random_graph(draw, 5 + seed))
        calls = [node for node in module.graph.nodes if node.op == "call_function"]
        support = Chosen([node for node in calls if draw.random() < 0.7])
        mine = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True).propose_partitions()
        other = TorchPartitioner(module, support, allows_single_node_partition=True).propose_partitions()
        assert {node for one in mine for node in one.nodes} == support.nodes
        check(module, [list(one.nodes) for one in mine])
        ours, theirs = ours + len(mine), theirs + len(other)
    assert ours <= theirs * 1.1


def test_groups_stay_together_or_are_given_up() -> None:
    kept = given_up = 0
    for seed in range(200):
        draw = random.Random(seed)
        module = GraphModule(nn.Module(), random_graph(draw, 5 + seed % 40))
        calls = [node for node in module.graph.nodes if node.op == "call_function"]
        shuffled = draw.sample(calls, len(calls))
        groups = [shuffled[start : start + 2] for start in range(0, draw.randrange(len(calls)), 2)]
        support = Chosen([node for node in calls if draw.random() < 0.8])
        found = GroupBasedPartitioner(module, support, True, node_groups=groups).propose_partitions()
        check(module, [list(one.nodes) for one in found])
        assert {node for one in found for node in one.nodes} == support.nodes
        home = {node: one.id for one in found for node in one.nodes}
        pairs = [group for group in groups if len(group) == 2 and set(group) <= support.nodes]
        together = sum(home[first] == home[second] for first, second in pairs)
        kept, given_up = kept + together, given_up + len(pairs) - together
    assert kept > 400
    assert given_up > 100


def test_single_calls() -> None:
    class Chain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x).tanh().cos().reshape(2, 2).exp()

    module = to_edge(export(Chain(), (torch.ones(4),))).exported_program().graph_module
    names = {node.name: node for node in module.graph.nodes}
    support = Chosen([node for name, node in names.items() if "tanh" not in name and node.op == "call_function"])

    def found(**options: object) -> list[list[str]]:
        made = CapabilityBasedPartitioner(module, support, **options).propose_partitions()  # type: ignore[arg-type]
        return [[node.name.split("_")[1] for node in one.nodes] for one in made]

    assert found(allows_single_node_partition=True) == [["sin"], ["cos", "view", "exp"]]
    assert found() == [["cos", "view", "exp"]]
    assert found(non_compute_ops=["aten.view_copy.default", "aten.exp.default"]) == []
    assert found(allowed_single_node_partition_ops=["torch.ops.aten.sin.default"]) == [["sin"], ["cos", "view", "exp"]]


def test_patterns_and_lists() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (torch.sin(x) + x).cos() * torch.sin(x * 2)

    class Sum(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x) + x

    x = (torch.ones(4),)
    module = to_edge(export(Two(), x)).exported_program().graph_module
    pattern = to_edge(export(Sum(), x)).exported_program().graph_module.graph
    nodes = {node.name: node for node in module.graph.nodes}

    def names(found: Sequence[object]) -> list[list[str]]:
        return [[node.name for node in one.nodes] for one in found]  # type: ignore[attr-defined]

    matched = names(generate_pattern_op_partitions(module, [pattern]))
    assert matched == [["aten_sin_default", "aten_add_tensor"]]
    listed = [[nodes["aten_cos_default"]], [nodes["aten_sin_default_1"], nodes["aten_sin_default"]]]
    more = names(generate_pattern_op_partitions(module, [pattern], listed))
    assert sorted(name for one in more for name in one) == [
        "aten_add_tensor", "aten_cos_default", "aten_sin_default", "aten_sin_default_1",
    ]  # fmt: skip
    assert len(generate_partitions_from_list_of_nodes(module, listed)) == 3
    assert ["aten_sin_default", "aten_sin_default_1"] in names(
        generate_grouped_partitions_from_list_of_nodes(module, listed)
    )
    with pytest.raises(UsageError) as nothing:
        generate_partitions_from_list_of_nodes(module)
    with pytest.raises(UsageError) as twice:
        generate_grouped_partitions_from_list_of_nodes(module, [listed[0], listed[0]])
    assert nothing.value.code == twice.value.code == "EK499"


ROWS = torch.linspace(-1, 1, 8).reshape(2, 4)


def test_all_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    model = Counting()
    delegated = to_edge(export(model, (ROWS,))).to_backend(AllNodePartitioner(ReferenceBackend.__name__, []))
    module = delegated.exported_program().graph_module
    info = get_delegation_info(module)
    assert (info.num_delegated_subgraphs, info.num_non_delegated_nodes) == (1, 0)
    assert info.delegation_by_operator["aten.addmm.default"].delegated == 2
    assert (len(get_delegates(module.graph)), get_non_lowered_nodes(module.graph)) == (1, [])
    method = Runtime.get().load_program(delegated.to_executorch().buffer, sanitize=True).load_method("forward")
    for given in (ROWS, ROWS * 2):
        with torch.no_grad():
            wanted = model(given)
        for got, one in zip(method.execute([given]), wanted, strict=True):
            torch.testing.assert_close(got, one)
    print_delegation_info(module)
    printed = capsys.readouterr().out
    assert "Total delegated subgraphs: 1\n" in printed
    assert printed.splitlines()[-1].split() == ["Total", str(info.num_delegated_nodes), "0"]
    text = format_delegated_graph(module)
    assert "backend_id: ReferenceBackend" in text
    assert text.index("backend_id") < text.index("aten.addmm.default") < text.index("executorch_call_delegate")


def tagged(*parts: str) -> tuple[ExportedProgram, dict[str, Node]]:
    program = to_edge(export(Counting(), (ROWS,))).exported_program()
    for node in program.graph.nodes:
        if any(part in node.name for part in parts) and node.op == "call_function":
            node.meta[DELEGATION_TAG] = "t"
    return program, {node.name: node for node in program.graph.nodes}


def test_tags_of_state() -> None:
    program, nodes = tagged("addmm_default_1", "add_tensor")
    tag_constant_data(program)
    state = {name for name, node in nodes.items() if node.op == "placeholder" and DELEGATION_TAG in node.meta}
    assert state == {"p_second_bias"}
    tag_mutated_buffer(program)
    assert nodes["b_total"].meta[DELEGATION_TAG] == "t"
    assert DELEGATION_TAG not in nodes["x"].meta


def test_mapping_builder() -> None:
    _, nodes = tagged()
    first, second = nodes["aten_addmm_default"], nodes["aten_relu_default"]
    handles = sorted(node.meta["debug_handle"] for node in (first, second))
    builder = DelegateMappingBuilder(generated_identifiers=True)
    assert builder.insert_delegate_mapping_entry(nodes=[second, first, nodes["x"]]) == 0
    assert builder.insert_delegate_mapping_entry(handles=[9, None, 3, 9]) == 1
    assert builder.get_delegate_mapping() == {0: tuple(handles), 1: (3, 9)}
    manual = DelegateMappingBuilder()
    assert manual.insert_delegate_mapping_entry(handles=7, identifier="fused_7") == "fused_7"
    assert manual.get_delegate_mapping() == {"fused_7": (7,)}
    wrong = [
        (builder, {"nodes": first, "identifier": 5}), (manual, {"handles": 1}), (manual, {"identifier": "a"}),
        (manual, {"handles": 1, "identifier": "fused_7"}), (manual, {"handles": [None], "identifier": "b"}),
        (manual, {"handles": 1, "nodes": first, "identifier": "c"}), (builder, {"nodes": []}),
    ]  # fmt: skip
    for one, given in wrong:
        before = one.get_delegate_mapping()
        with pytest.raises(UsageError) as raised:
            one.insert_delegate_mapping_entry(**given)  # type: ignore[arg-type]
        assert raised.value.code == "EK498"
        assert one.get_delegate_mapping() == before
