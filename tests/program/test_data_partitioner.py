"""Partitioners that are data: what they take, why they do not take the rest, and that the programs still compute it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.program.delegation_models import Counting
from tests.program.test_delegation import same
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from exirkit import EdgeProgramManager, to_edge, to_edge_transform_and_lower
from exirkit.passes import DataPartitioner, PartitionAccount, account_of, parse_partitioning

ROWS = torch.linspace(-1, 1, 8).reshape(2, 4)
MODEL = Counting()


def partitioner(*lines: str, backend: str = "ReferenceBackend") -> DataPartitioner:
    return DataPartitioner(parse_partitioning("\n".join([f"partitioning: 1\nbackend: {backend}", *lines]) + "\n"))


@pytest.fixture(scope="module")
def counting() -> EdgeProgramManager:
    return to_edge(export(MODEL, (ROWS,)))


def account(program: ExportedProgram, made: DataPartitioner) -> PartitionAccount:
    before = [dict(node.meta) for node in program.graph.nodes]
    found = account_of(program, made)
    assert [dict(node.meta) for node in program.graph.nodes] == before
    # Every call is spoken of once: it is taken, or it is said why not.
    names = [name for one in found.taken for name in one.nodes] + [one.node for one in found.not_taken]
    calls = [node.name for node in program.graph.nodes if node.op == "call_function"]
    items = {node.name for node in program.graph.nodes if "getitem" in str(node.target)}
    assert sorted({*names} - items) == sorted({*calls} - items)
    assert len(names) == len(set(names))
    return found


@pytest.mark.parametrize(
    ("lines", "taken"),
    [
        (["rules: [{op: 'aten.*'}]"], {"addmm": 2, "permute": 3, "max": 1, "relu": 1, "mul": 1, "add": 2, "sum": 1}),
        (["rules: [{op: [aten.addmm.default, 'aten.relu.*']}]"], {"addmm": 2, "relu": 1}),
        (["rules: [{op: 'aten.*', dtype: f32}]"],
         {"addmm": 2, "permute": 3, "relu": 1, "mul": 1, "add": 2, "sum": 1}),
        (["rules: [{op: 'aten.*', rank: {at_most: 1}, argument_rank: {at_most: 1}}]"], {"add": 1}),
        (["rules: [{op: 'aten.*', module: second}]"], {"addmm": 1, "permute": 1}),
        (["rules: [{op: 'aten.*', where: macs > 60}]"], {"addmm": 1}),
        (["rules: [{op: 'aten.*', nbytes: {at_least: 64 B}, where: rank(x) == 2}]"],
         {"addmm": 1, "permute": 3, "relu": 1}),
        (["rules: [{op: aten.permute_copy.default, leave: true, priority: 1}, {op: 'aten.*', static: true}]"],
         {"addmm": 2, "max": 1, "relu": 1, "mul": 1, "add": 2, "sum": 1}),
        (["rules: [{op: 'aten.*', static: false}]"], {}),
        (["rules: [{op: 'aten.[ar]*'}]", "minimum: {nodes: 3}"], {"addmm": 2, "relu": 1}),
        (["rules: [{op: 'aten.*'}]", "minimum: {macs: 10000}"], {}),
        (["rules:", "- match: |", "    y = aten.addmm.default(b, x, w)", "    return aten.relu.default(y)",
          "  vars: {b: 'f32[N]', x: 'f32[M, K]', w: 'f32[K, N]'}"], {"addmm": 1, "relu": 1}),
    ],
)  # fmt: skip
def test_what_is_taken(counting: EdgeProgramManager, lines: list[str], taken: dict[str, int]) -> None:
    made = partitioner(*lines)
    found = account(counting.exported_program(), made)
    names: dict[str, int] = {}
    for one in found.taken:
        for name, count in one.operators.items():
            short = name.split(".")[1].removesuffix("_copy")
            names[short] = names.get(short, 0) + count
    assert names == taken
    assert same(MODEL, counting.to_backend(made), [(ROWS,), (ROWS * 3,)]) == len(found.taken)


@pytest.mark.parametrize(
    ("limit", "unit", "most"),
    [("nodes: 1", "nodes", 1), ("nodes: 3", "nodes", 3), ("nbytes: 200 B", "nbytes", 200), ("weights: 200", "", 200)],
)
@pytest.mark.parametrize("join", ["touching", "all"])
def test_large_partitions_are_cut(counting: EdgeProgramManager, limit: str, unit: str, most: int, join: str) -> None:
    whole = account(counting.exported_program(), partitioner("rules: [{op: 'aten.*'}]", f"join: {join}"))
    made = partitioner("rules: [{op: 'aten.*'}]", f"join: {join}", f"maximum: {{{limit}}}")
    found = account(counting.exported_program(), made)
    assert len(found.taken) > len(whole.taken)
    assert found.taken_calls == whole.taken_calls
    for one in found.taken:
        sizes = {"nodes": sum(one.operators.values()), "nbytes": one.nbytes or 0}
        assert sizes.get(unit, 0) <= most
    assert same(MODEL, counting.to_backend(made), [(ROWS,), (ROWS * 3,)]) == len(found.taken)


def test_cutting_keeps_matches_whole(counting: EdgeProgramManager) -> None:
    rules = (
        "rules:", "- match: |", "    y = aten.addmm.default(b, x, w)", "    return aten.relu.default(y)",
        "  vars: {b: 'f32[N]', x: 'f32[M, K]', w: 'f32[K, N]'}", "- {op: 'aten.*'}",
    )  # fmt: skip
    found = account(counting.exported_program(), partitioner(*rules, "maximum: {nodes: 2}"))
    (fused,) = [one for one in found.taken if "aten.relu.default" in one.operators]
    assert fused.operators == {"aten.addmm.default": 1, "aten.relu.default": 1}
    small = account(counting.exported_program(), partitioner(*rules, "maximum: {nodes: 1}"))
    kinds = {one.operator: (one.kind, one.reason) for one in small.not_taken}
    assert kinds["aten.relu.default"] == (
        "too_large", "it is above the maximum of a partition by itself: 2 of 1 calls"
    )  # fmt: skip


def test_only_so_many_partitions(counting: EdgeProgramManager) -> None:
    lines = ("rules: [{op: aten.addmm.default}]", "join: touching")
    every = account(counting.exported_program(), partitioner(*lines))
    assert len(every.taken) == 2
    made = partitioner(*lines, "maximum: {partitions: 1}")
    found = account(counting.exported_program(), made)
    (taken,) = found.taken
    assert taken.macs == max(one.macs for one in every.taken)
    (left,) = [one for one in found.not_taken if one.operator == "aten.addmm.default"]
    assert left.kind == "too_many"
    assert left.reason == "there are 2 partitions, 1 of which may be taken; those that compute the most are"
    assert same(MODEL, counting.to_backend(made), [(ROWS,)]) == 1


def test_what_is_cut_off_may_be_too_small(counting: EdgeProgramManager) -> None:
    lines = ("rules: [{op: 'aten.*'}]", "join: all", "minimum: {nodes: 3}", "maximum: {nodes: 4}")
    found = account(counting.exported_program(), partitioner(*lines))
    assert all(3 <= sum(one.operators.values()) <= 4 for one in found.taken)
    assert {one.kind for one in found.not_taken} <= {"too_small"}


def test_why_not(counting: EdgeProgramManager) -> None:
    made = partitioner(
        "rules:",
        "- {name: matrices, op: aten.addmm.*, where: macs > 60}",
        "- {name: bytes, op: 'aten.[ap]*', dtype: i8}",
        "- {name: small, op: aten.relu.default}",
        "- {op: aten.sum.*, leave: true}",
        "- {name: never, op: aten.addmm.*, dtype: i8, leave: true}",
        "- name: fused",
        "  match: 'return aten.mul.Tensor(aten.add.Tensor(x, y), z)'",
        "  vars: {x: any, y: any, z: any}",
        "minimum: {nodes: 2, elements: 40}",
    )
    found = account(counting.exported_program(), made)
    reasons = {
        (one.operator, one.kind): f"{one.rule}: {one.reason} ({'; '.join(one.others)})" for one in found.not_taken
    }
    assert not found.taken
    assert reasons["aten.max.dim", "no_rule"] == "None: no rule speaks of its operator ()"
    assert reasons["aten.sum.dim_IntList", "left"] == "rule 4: a rule says that it stays ()"
    assert reasons["aten.relu.default", "too_small"] == (
        "small: its partition is below the minimum: 32 of 40 elements ()"
    )
    assert reasons["aten.addmm.default", "rejected"] == (
        "matrices: `macs > 60` does not hold: macs is 48 (bytes: result of f32, not i8)"
    )
    assert reasons["aten.mul.Tensor", "rejected"].startswith("fused: ")
    assert (
        "fused: no match of its pattern has the call; one starts at aten.mul.Tensor"
        in (reasons["aten.add.Tensor", "rejected"])
    )
    (relu,) = [one for one in found.not_taken if one.operator == "aten.relu.default"]
    assert relu.diagnostic().code == "EK497"
    assert relu.place.source is not None
    assert "delegation_models.py" in relu.place.source


def test_it_is_said_where_a_pattern_stops() -> None:
    """The reason is what the search that got furthest stopped at: another operator, a type, a literal, a condition."""

    class Products(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return x.relu() * 3, (x.sin() + x) * x, torch.add(x.sin(), x, alpha=2) * x

    program = to_edge(export(Products(), (ROWS,))).exported_program()

    def reasons(variables: str, *more: str) -> list[str]:
        match = "  match: 'return aten.mul.Tensor(aten.add.Tensor(aten.sin.default(x), y), z)'"
        made = partitioner("rules:", "- name: fused", match, f"  vars: {{{variables}}}", *more)
        return [one.reason or "" for one in account(program, made).not_taken if one.operator == "aten.mul.Tensor"]

    other, left_out = "aten.add.Tensor is expected", "1 (left out, so it must be the default) is expected"
    assert reasons("x: 'f64[*S]', y: any, z: any") == [other, "x is not `f64 [*S]`", left_out]
    condition = reasons("x: any, y: any, z: any", "  where: rank(x) == 5")
    assert condition == [other, "`rank(x) == 5` does not hold", left_out]


def test_a_match_is_taken_whole_or_not_at_all() -> None:
    class Wide(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = torch.sin(x)
            late = torch.tanh(torch.cos(y))
            # Without the match the sine would be apart from the product, which waits for the tangent.
            return torch.exp(x) * late, torch.sin(late) * y

    made = partitioner(
        "rules:",
        "- {name: pair, match: 'return aten.mul.Tensor(aten.exp.default(x), y)', vars: {x: any, y: any}}",
        "- {name: loose, op: [aten.sin.*, aten.cos.*]}",
    )
    edge = to_edge(export(Wide(), (ROWS,)))
    found = account(edge.exported_program(), made)
    pairs = [one for one in found.taken if "pair" in one.rules]
    assert len(pairs) == 1
    assert {"aten_exp_default", "aten_mul_tensor"} <= set(pairs[0].nodes)
    assert same(Wide(), edge.to_backend(made), [(ROWS,)]) == len(found.taken) == 2


class Crossing(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, other = torch.sin(x), torch.exp(x)
        return torch.cos(other) + first, torch.neg(first) * other


CROSSING = (
    "- {name: %s, match: 'return aten.add.Tensor(y, aten.sin.default(x))', vars: {x: any, y: any}, priority: %d}\n"
    "- {name: %s, match: 'return aten.mul.Tensor(y, aten.exp.default(x))', vars: {x: any, y: any}}\n"
)


@pytest.mark.parametrize(("priority", "kept"), [(1, "add"), (-1, "mul")])
def test_of_matches_that_wait_for_each_other_the_first_one_stays(priority: int, kept: str) -> None:
    made = partitioner(
        "rules:", CROSSING % ("add", priority, "mul"), "- {name: rest, op: [aten.sin.*, aten.exp.*], priority: -5}"
    )
    edge = to_edge(export(Crossing(), (ROWS,)))
    found = account(edge.exported_program(), made)
    # cos needs exp and feeds the sum; neg needs sin and feeds the product.
    (whole,) = [one for one in found.taken if kept in one.rules]
    assert len(whole.nodes) >= 2
    dropped = "mul" if kept == "add" else "add"
    (why,) = [one for one in found.not_taken if one.kind == "cycle"]
    assert (why.rule, why.operator) == (dropped, f"aten.{dropped}.Tensor")
    assert any("rest" in one.rules for one in found.taken)
    assert same(Crossing(), edge.to_backend(made), [(ROWS,)]) == len(found.taken)


def test_a_match_around_another_call_would_wait_for_itself() -> None:
    class Around(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.sin(x)
            return y + torch.tanh(y)

    lines = "rules: [{match: 'return aten.add.Tensor(aten.sin.default(x), y)', vars: {x: any, y: any}}%s]"
    edge = to_edge(export(Around(), (ROWS,)))
    found = account(edge.exported_program(), partitioner(lines % ""))
    assert [(one.operator, one.kind) for one in found.not_taken] == [
        ("aten.sin.default", "cycle"), ("aten.tanh.default", "no_rule"), ("aten.add.Tensor", "cycle"),
    ]  # fmt: skip
    whole = partitioner(lines % ", {op: aten.tanh.default}")
    # Neither is the match taken, if the call between is taken on its own.
    found = account(edge.exported_program(), whole)
    assert [sorted(one.operators) for one in found.taken] == [["aten.tanh.default"]]
    assert same(Around(), edge.to_backend(whole), [(ROWS,)]) == 1


@pytest.mark.parametrize(("join", "count"), [("touching", 4), ("readers", 2), ("all", 1)])
def test_joining(join: str, count: int) -> None:
    class Apart(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            return x.sin(), x.cos(), y.exp(), y.tanh()

    edge = to_edge(export(Apart(), (ROWS, ROWS + 1)))
    made = partitioner("rules: [{op: '*'}]", f"join: {join}")
    assert same(Apart(), edge.to_backend(made), [(ROWS, ROWS + 1)]) == count


@pytest.mark.parametrize("mutable", ["keep", "handed"])
@pytest.mark.parametrize("state", ["keep", "handed"])
def test_state(counting: EdgeProgramManager, state: str, mutable: str) -> None:
    made = partitioner(
        "rules: [{op: 'aten.*'}]",
        f"state: {state}",
        f"mutable_state: {mutable}",
        backend="Checking",
    )
    made = DataPartitioner(made.partitioning.model_copy(update={"compile_specs": {"asked": "yes"}}))
    delegated = counting.to_backend(made)
    left = {spec.arg.name for spec in delegated.exported_program().graph_signature.input_specs}
    assert ("p_first_weight" in left) == (state == "handed")
    assert ("b_total" in left) == (mutable == "handed")
    assert same(MODEL, delegated, [(ROWS,), (ROWS * 3,)]) == 1


def test_a_call_is_in_one_match() -> None:
    class Shared(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = torch.sin(x)
            return y + x, y + 2 * x

    made = partitioner(
        "rules: [{name: a, match: 'return aten.add.Tensor(aten.sin.default(x), y)', vars: {x: any, y: any}}]"
    )
    edge = to_edge(export(Shared(), (ROWS,)))
    found = account(edge.exported_program(), made)
    assert [sorted(one.operators) for one in found.taken] == [["aten.add.Tensor", "aten.sin.default"]]
    (why,) = [one for one in found.not_taken if one.operator == "aten.add.Tensor"]
    assert (why.kind, why.reason) == ("rejected", "its pattern matches, but another rule has %aten_sin_default")
    assert same(Shared(), edge.to_backend(made), [(ROWS,)]) == 1


def test_what_others_read_is_not_stored_twice() -> None:
    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.own = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4) * 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.mul(x, self.weight) * self.own - self.weight

    edge = to_edge(export(Reading(), (ROWS,))).to_backend(partitioner("rules: [{op: aten.mul.*}]"))
    program = edge.exported_program()
    assert set(program.graph_signature.parameters) == {"weight"}
    assert program.graph_module.lowered_module_0.original_module.state_dict.keys() == {"own"}
    assert same(Reading(), edge, [(ROWS,)]) == 1


def test_a_delegate_writes_one_value_to_two_buffers() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one: Tensor
            self.two: Tensor
            self.register_buffer("one", torch.zeros(2, 4))
            self.register_buffer("two", torch.ones(2, 4))

        def forward(self, x: Tensor) -> Tensor:
            y = self.one - self.two
            z = torch.relu(x)
            self.one.copy_(z)
            self.two.copy_(z)
            return y + x

    edge = to_edge(export(Twice(), (ROWS,))).to_backend(partitioner("rules: [{op: '*'}]", "mutable_state: keep"))
    assert not edge.exported_program().graph_signature.buffers_to_mutate
    assert same(Twice(), edge, [(ROWS,), (ROWS - 1,), (ROWS,)]) == 1


def test_two_backends_in_one_file(counting: EdgeProgramManager) -> None:
    made = partitioner(
        "compile_specs: {asked: 'yes'}",
        "rules: [{op: aten.addmm.*, backend: Checking}, {op: '*', where: 'rank(x) > 1', compile_specs: {}}]",
    )
    delegated = counting.to_backend(made)
    ids = [
        module.backend_id for name, module in delegated.exported_program().graph_module.named_children()
        if name.startswith("lowered")
    ]  # fmt: skip
    assert set(ids) == {"Checking", "ReferenceBackend"}
    assert same(MODEL, delegated, [(ROWS,), (ROWS * 3,)]) == len(ids)


def test_operators_stay_whole() -> None:
    made = partitioner(
        "rules: [{op: aten.linear.default}]", "keep_whole: [{op: aten.linear, where: 'shape(x)[-1] == 8'}]"
    )
    lowered = to_edge_transform_and_lower(export(MODEL, (ROWS,)), partitioner=[made])
    assert sum("addmm" in str(node.target) for node in lowered.exported_program().graph.nodes) == 1
    assert same(MODEL, lowered, [(ROWS,), (-ROWS,)]) == 1


def test_sizes_that_vary() -> None:
    class Varying(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x, x]).exp() + x.shape[0]

    edge = to_edge(export(Varying(), (ROWS,), dynamic_shapes=({0: Dim("a", max=16)},)))
    bounded = account(edge.exported_program(), partitioner("rules: [{op: 'aten.[ec]*', nbytes: {at_most: 512}}]"))
    assert bounded.taken_calls == 2
    assert bounded.taken[0].nbytes == 2 * 2 * 16 * 4 * 4
    small = account(edge.exported_program(), partitioner("rules: [{op: 'aten.[ec]*', nbytes: {at_most: 511}}]"))
    assert not small.taken
    everything = partitioner("rules: [{op: '*', static: false}]")
    found = account(edge.exported_program(), everything)
    assert {one.reason for one in found.not_taken if one.kind == "untakable"} == {
        "it computes no tensor, and delegates hand back nothing else"
    }
    calls: list[Any] = [(torch.randn(rows, 4),) for rows in (2, 16, 1)]
    assert same(Varying(), edge.to_backend(everything), calls) == len(found.taken) > 0


def test_bodies_of_control_flow() -> None:
    class Choosing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.sin(x)
            chosen: Tensor = torch.cond(y.sum() > 0, lambda z: (z * 2).cos(), lambda z: z.exp() - 1, [y])
            return chosen + y

    edge = to_edge(export(Choosing(), (ROWS,)))
    made = partitioner("rules: [{op: ['aten.*']}]")
    found = account_of(edge.exported_program(), made)
    assert len({one.graph for one in found.taken}) == 3
    (untaken,) = [one for one in found.not_taken if one.kind == "untakable"]
    assert untaken.reason == "it is not a call of an operator"
    assert same(Choosing(), edge.to_backend(made), [(ROWS,), (ROWS + 1,), (ROWS - 1,)]) >= 3
    # What is delegated already is left alone.
    again = account_of(edge.to_backend(made).exported_program(), made)
    assert not again.taken
    assert {one.reason for one in again.not_taken} == {"it is not a call of an operator", "it calls a delegate"}


def test_a_condition_without_an_answer_names_the_call(counting: EdgeProgramManager) -> None:
    from exirkit import ModelError

    with pytest.raises(ModelError) as caught:
        account_of(counting.exported_program(), partitioner("rules: [{op: aten.relu.*, where: 'value(x) > 1'}]"))
    assert caught.value.code == "EK223"
    assert any("%aten_relu_default" in note for note in caught.value.diagnostics[0].notes)
