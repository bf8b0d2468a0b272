"""Policies at work on graphs: which rule decides, what spills, who provides what, and what cannot be followed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.passes.memory.conftest import GraphBuilder
from torch.export.graph_signature import InputKind
from torch.fx import Node

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import parse_program
from exirkit.ir import ContractError, ModelError, TensorSpec, UsageError
from exirkit.passes import MemoryPlanningPass, exact, greedy, naive, parse_memory_policy, portfolio, value_uses
from exirkit.verifiers import check_memory_plan

ATEN = torch.ops.aten
POOLS = "policy: 1\npools: [{name: a}, {name: b}, {name: c}]\nspill: []\n"


def arena(node: Node) -> int | None:
    spec: TensorSpec = node.meta["spec"]
    return spec.mem_id if spec.mem_offset is not None else None


def plan(module: Any, signature: Any, text: str, **options: Any) -> list[int]:
    planner = MemoryPlanningPass(policy=parse_memory_policy(text), **options)
    planner.run(module, signature)
    sizes: list[int] = module.meta["non_const_buffer_sizes"]
    assert not planner.run(module, signature).modified
    return sizes


def rules(*listed: str) -> str:
    return POOLS + "rules:\n" + "".join(f"- {{{one}}}\n" for one in listed)


@pytest.fixture
def values(builder: GraphBuilder) -> dict[str, Node]:
    """A graph with a value of every kind."""
    made: dict[str, Node] = {}
    made["weight"] = builder.input("weight", [64], InputKind.PARAMETER)
    made["cache"] = builder.input("cache", [64], InputKind.BUFFER)
    made["x"] = builder.input("x", [64])
    made["sum"] = builder.add(made["weight"], made["x"], [64])
    made["neg"] = builder.op(made["sum"], [64])
    made["neg"].meta["nn_module_stack"] = {"k": ("L['self'].encoder.layer.0", torch.nn.ReLU)}
    made["long"] = builder.op(made["neg"], [4], torch.int64)
    made["flat"] = builder.view(made["neg"], [8, 8])
    made["top"], made["index"] = builder.topk(made["flat"], [8])
    made["write"] = builder.write(made["cache"], made["neg"])
    made["handed"] = builder.input("handed", [64])
    made["result"] = builder.add(made["top"], made["index"], [64])
    made["module"], made["signature"] = builder.finish(made["write"], made["result"], made["handed"])  # type: ignore[assignment]
    return made


@pytest.mark.parametrize(
    ("rule", "meant"),
    [
        ("pool: b", "cache x sum neg long top index handed result"),
        ("op: aten.add.Tensor, pool: b", "sum result"),
        ("op: aten.add.out, pool: b", "sum result"),
        ("op: [aten.neg, 'aten.to?k.*'], pool: b", "neg long top index"),
        ("op: aten.topk.default, pool: b", "top index"),
        ("user: aten.neg.default, pool: b", "sum neg"),
        ("user: aten.topk.*, pool: b", "neg"),
        ("user: aten.copy_.default, pool: b", "neg"),
        ("dtype: i64, pool: b", "long index"),
        ("dtype: [f32, i64], nbytes: {at_least: 33}, pool: b", "index"),
        ("nbytes: {at_least: 64, at_most: 64 B}, pool: b", "cache x sum neg index handed result"),
        ("module: 'encoder.*', pool: b", "neg"),
        ("module: 'encoder', pool: b", ""),
        ("value: [x, 'model.c*', result], pool: b", "cache x"),
        ("kind: buffer, pool: b", "cache"),
        ("kind: input, pool: b", "x handed"),
        ("kind: output, pool: b", "handed result"),
        ("kind: intermediate, pool: b", "sum neg long top index"),
        ("where: is_input(x), pool: b", "x handed"),
        ("where: is_output(x), pool: b", "handed result"),
        ("where: mutable(x), pool: b", "cache"),
        ("""where: ["op(x) == 'aten.add.Tensor'", not is_output(x)], pool: b""", "sum"),
        ("""where: "produced_by(x, 'aten.topk.*')", pool: b""", "top index"),
        ("""where: "consumed_by(x, 'aten.neg.*')", pool: b""", "sum"),
        ("""where: "module_type(x, 'ReLU')", pool: b""", "neg"),
        ("where: users(x) == 3, pool: b", "neg"),
        ("where: users(x) == 0, pool: b", "cache long"),
        ("where: nbytes < 64, pool: b", "long top"),
        ("where: traffic == 4 * nbytes, pool: b", "neg"),
        ("where: const(x), pool: b", ""),
    ],
)  # fmt: skip
def test_what_a_rule_means(values: dict[str, Any], rule: str, meant: str) -> None:
    plan(values["module"], values["signature"], rules(rule))
    there = {name for name, node in values.items() if isinstance(node, Node) and arena(node) == 2}
    assert there - {"flat", "write"} == {*meant.split()}
    assert arena(values["flat"]) == arena(values["neg"])
    assert arena(values["weight"]) is None


def test_the_first_rule_decides_and_what_none_means_goes_to_the_default(values: dict[str, Any]) -> None:
    text = rules("dtype: i64, pool: c", "op: aten.topk.*, pool: b") + "default: a\n"
    assert plan(values["module"], values["signature"], text) == [0, 256, 32, 64]
    assert [arena(values[name]) for name in ("index", "top", "long", "x", "cache")] == [3, 2, 3, 1, 1]


def test_values_move_on_where_a_pool_is_full(builder: GraphBuilder) -> None:
    x = builder.input("x", [64])
    often, seldom = builder.op(x, [64]), builder.op(x, [64])
    both = builder.add(often, seldom, [64])
    for _ in range(6):
        builder.add(often, often, [64])
    module, signature = builder.finish(builder.add(often, both, [64]))
    text = "policy: 1\nplanner: {}\npools: [{{name: fast, limit: {}}}, {{name: slow}}]\n"
    for planner in ("portfolio", "greedy", "naive"):
        sizes = plan(module, signature, text.format(planner, 64))
        assert arena(often) == 1
        assert {arena(node) for node in (x, seldom, both)} == {2}
        assert sizes[1] == 64
    assert len(plan(module, signature, text.format("portfolio", 4096))) == 2
    # As if the pool were not there at all, though it is.
    assert plan(module, signature, text.format("portfolio", 0))[1] == 0


def test_values_of_a_full_pool_that_must_stay_are_named(builder: GraphBuilder) -> None:
    x = builder.input("x", [64])
    first = builder.op(x, [48])
    module, signature = builder.finish(builder.add(first, builder.op(x, [32]), [64]))
    text = (
        "policy: 1\npools: [{name: fast, limit: 128}, {name: slow}]\n"
        "rules: [{name: every neg, op: aten.neg.*, pool: fast, spill: false}, {kind: [input, output], pool: fast}]\n"
    )
    assert plan(module, signature, text)[1] <= 128
    assert arena(first) == 1
    with pytest.raises(ModelError, match="EK484") as caught:
        plan(module, signature, text.replace("128", "64"))
    (finding,) = caught.value.diagnostics
    assert finding.message == "the pool 'fast' needs 80 bytes, 16 more than the 64 there are"
    assert finding.notes[:2] == (
        "80 bytes are live at step 3, the fullest one, in 2 values that cannot move on:",
        "%neg_out: 48 bytes, rule 'every neg'",
    )
    assert finding.notes[-1].startswith("everything else would fit without %neg_out_1: 32 bytes")
    assert "spill: true" in (finding.hint or "")


def test_pools_have_alignments_of_their_own(builder: GraphBuilder) -> None:
    x = builder.input("x", [10])
    nodes = [builder.op(x, [10], dtype) for dtype in (torch.uint8, torch.int8, torch.uint8, torch.int8)]
    module, signature = builder.finish(*nodes)
    text = "policy: 1\npools: [{name: a, alignment: 64}, {name: b, alignment: 1}]\nrules: [{dtype: i8, pool: b}]\n"
    assert plan(module, signature, text) == [0, 192, 20]
    assert {node.meta["spec"].mem_offset % 64 for node in (x, nodes[0], nodes[2])} == {0}
    assert {node.meta["spec"].alignment for node in nodes} == {1, 64}
    nodes[0].meta["spec"].mem_offset += 16
    findings = check_memory_plan(module, signature, alignment={1: 64, 2: 1})
    assert {finding.code for finding in findings} >= {"EK342"}


def test_inputs_and_outputs_by_name(builder: GraphBuilder) -> None:
    x, y, variant = builder.input("x", [16]), builder.input("y", [16]), builder.input("y_2", [16])
    first, second = builder.op(x, [16]), builder.add(y, variant, [16])
    module, signature = builder.finish(first, second, variant)
    text = "policy: 1\npools: [{name: a}]\n"
    plan(module, signature, text + "inputs: {y: planned, 'y*': provided}\noutputs: {'0': provided}\n")
    assert [arena(node) for node in (x, y, variant, first, second)] == [1, 1, None, None, 1]
    # What is an input and an output is provided if either of them is.
    plan(module, signature, text + "outputs: {'2': provided}\n")
    assert [arena(node) for node in (x, y, variant, first, second)] == [1, 1, None, 1, 1]
    plan(module, signature, text + "inputs: provided\n", alloc_graph_output=False)
    assert [arena(node) for node in (x, y, variant, first, second)] == [None] * 5
    plan(module, signature, text + "inputs: {'kv_*': provided}\n")
    assert None not in [arena(node) for node in (x, y, variant, first, second)]
    for wrong in ("inputs: {z: provided}", "outputs: {'3': provided}", "outputs: {neg: provided}"):
        with pytest.raises(UsageError, match="EK487"):
            plan(module, signature, f"{text}{wrong}\n")


def test_a_returned_view_cannot_be_provided(builder: GraphBuilder) -> None:
    base = builder.op(builder.input("x", [16]), [16])
    module, signature = builder.finish(builder.view(base, [4, 4]), builder.op(base, [8]))
    text = "policy: 1\npools: [{name: a}]\n"
    plan(module, signature, text + "outputs: {'1': provided}\n")
    with pytest.raises(ContractError, match="EK454"):
        plan(module, signature, text + "outputs: {'0': provided}\n")


def test_buffers_may_be_left_to_the_caller(values: dict[str, Any]) -> None:
    plan(values["module"], values["signature"], POOLS + "buffers: provided\n")
    assert arena(values["cache"]) is None
    assert arena(values["x"]) == 1


def test_results_instead_of_arguments_go_together(builder: GraphBuilder) -> None:
    x = builder.input("x", [64])
    chain = [builder.op(x, [64])]
    for _ in range(3):
        chain.append(builder.op(chain[-1], [64]))
    module, signature = builder.finish(builder.op(chain[-1], [16]))
    text = "policy: 1\nin_place: {}\npools: [{{name: fast, limit: 64}}, {{name: slow}}]\n"
    assert plan(module, signature, text.format("true"), in_place=False) == [0, 64, 16]
    assert plan(module, signature, text.format("false"), in_place=True) == [0, 64, 64]
    apart = text.format("true") + "rules: [{value: neg_out_1, pool: slow}]\n"
    assert plan(module, signature, apart)[1] == 64
    assert [arena(node) for node in chain] == [1, 2, 1, 1]


def test_a_chain_lies_where_all_of_it_may(builder: GraphBuilder) -> None:
    x = builder.input("x", [64])
    first = builder.op(x, [64])
    second = builder.op(first, [64])
    module, signature = builder.finish(builder.add(second, x, [64]))
    text = (
        "policy: 1\nin_place: true\npools: [{name: fast, limit: 128}, {name: slow}]\n"
        "rules: [{value: neg_out, pool: fast, spill: false}, {value: x, pool: fast, spill: false}]\n"
    )
    plan(module, signature, text)
    assert arena(first) == arena(x) == 1


@pytest.mark.parametrize("kept", ["neg_out", "neg_out_1"])
def test_a_chain_stays_if_one_of_it_must(builder: GraphBuilder, kept: str) -> None:
    x = builder.input("x", [64])
    often = builder.op(x, [64])
    for _ in range(9):
        builder.add(often, often, [4])
    chain = [builder.op(x, [128])]
    chain.append(builder.op(chain[0], [128]))
    builder.add(often, chain[1], [4])
    module, signature = builder.finish(often)
    kept = chain[["neg_out", "neg_out_1"].index(kept)].name
    text = "policy: 1\nin_place: true\npools: [{name: fast, limit: 128}, {name: slow}]\n"
    plan(module, signature, text)
    assert [arena(node) for node in (often, *chain)] == [1, 2, 2]
    plan(module, signature, f"{text}rules: [{{value: {kept}, pool: fast, spill: false}}]\n")
    assert [arena(node) for node in (often, *chain)][:1] == [2]
    assert arena(chain[0]) == arena(chain[1]) == 1
    assert chain[0].meta["spec"].mem_offset == chain[1].meta["spec"].mem_offset


def test_limits_leave_room_for_what_kernels_read_past_the_end(builder: GraphBuilder) -> None:
    delegate = torch.nn.Module()
    delegate.backend_id = "XnnpackBackend"  # type: ignore[assignment]
    builder.root.add_module("lowered", delegate)
    builder.graph.get_attr("lowered")
    x = builder.input("x", [64])
    module, signature = builder.finish(builder.op(x, [64]))
    text = "policy: 1\npools: [{name: fast, limit: 128}, {name: slow}]\n"
    assert plan(module, signature, text) == [0, 128, 128]


def test_pinned_values_stay(builder: GraphBuilder) -> None:
    x = builder.input("x", [64])
    first = builder.op(x, [64])
    first.meta["spec"].mem_id, first.meta["spec"].mem_offset = 2, 128
    module, signature = builder.finish(builder.add(first, x, [64]))
    text = "policy: 1\npools: [{name: a, limit: 64}, {name: b}]\n"
    assert plan(module, signature, text)[2] >= 192
    assert (arena(first), first.meta["spec"].mem_offset) == (2, 128)


def test_branches_follow_the_policy(builder: GraphBuilder) -> None:
    branches = [builder.branch(64, 32), builder.branch(96, 32)]
    names = [builder.submodule(name, branch) for name, branch in zip(("yes", "no"), branches, strict=True)]
    x = builder.input("x", [4])
    result = builder.cond(builder.input("pred", [1]), names, [x], [32])
    module, signature = builder.finish(builder.op(result, [64]))
    text = "policy: 1\npools: [{name: a, limit: 128}, {name: b}]\nrules: [{nbytes: {at_least: 64}, pool: b}]\n"
    plan(module, signature, text)
    for branch in branches:
        inner = [node for node in branch.graph.nodes if node.target is ATEN.neg.out]
        assert [arena(node) for node in inner] == [2, 1]
    plan(module, signature, text.replace("{nbytes: {at_least: 64}", "{kind: [output, input]"))
    for branch in branches:
        inner = [node for node in branch.graph.nodes if node.target is ATEN.neg.out]
        assert [arena(node) for node in inner] == [1, 1]
    plan(module, signature, text.replace("128", "16"))
    for branch in branches:
        assert {arena(node) for node in branch.graph.nodes if node.target is ATEN.neg.out} == {2}
    with pytest.raises(ModelError, match="EK484") as caught:
        plan(module, signature, text.replace("128", "16") + "spill: []\n")
    assert "the pool 'a'" in caught.value.diagnostics[0].message


def test_bodies_make_room_for_what_must_stay_around_them(builder: GraphBuilder) -> None:
    x = builder.input("x", [208])
    branches = [builder.branch(64, 32), builder.branch(96, 32)]
    names = [builder.submodule(name, branch) for name, branch in zip(("yes", "no"), branches, strict=True)]
    result = builder.cond(builder.input("pred", [1]), names, [x], [32])
    module, signature = builder.finish(builder.add(result, x, [16]))
    text = "policy: 1\npools: [{name: fast, limit: 240}, {name: slow}]\nrules: [{value: x, pool: fast, spill: false}"
    inner = [next(node for node in branch.graph.nodes if node.target is ATEN.neg.out) for branch in branches]
    sizes = plan(module, signature, f"{text}]\n")
    assert {arena(node) for node in inner} == {2}
    assert arena(x) == 1
    assert sizes[1] <= 240
    plan(module, signature, f"{text}]\n".replace("240", "400"))
    assert {arena(node) for node in inner} == {1}
    with pytest.raises(ModelError, match="EK484"):
        plan(module, signature, f"{text}, {{nbytes: {{at_least: 64}}, pool: fast, spill: false}}]\n")


def test_algorithms_of_others_plan_what_the_policy_has_chosen(builder: GraphBuilder) -> None:
    x = builder.input("x", [64])
    first, second = builder.op(x, [64]), builder.op(x, [64])
    module, signature = builder.finish(builder.add(first, second, [64]))
    seen: list[tuple[int, list[int | None]]] = []

    def sequential(alignment: int, specs: list[TensorSpec], *_: object) -> list[int]:
        seen.append((alignment, [spec.mem_id for spec in specs]))
        sizes = [0, 0, 0]
        for spec in specs:
            assert spec.mem_id is not None
            spec.mem_offset = sizes[spec.mem_id]
            sizes[spec.mem_id] += spec.nbytes() + -spec.nbytes() % alignment
        return sizes

    text = "policy: 1\npools: [{name: a, limit: 512, alignment: 4}, {name: b, alignment: 6}]\n"
    text += "rules: [{kind: output, pool: b}]\n"
    assert plan(module, signature, text, memory_planning_algo=sequential) == [0, 216, 72]
    assert seen[0] == (12, [1, 1, 1, 2])
    with pytest.raises(ModelError, match="EK466"):
        plan(module, signature, text.replace("512", "64"), memory_planning_algo=sequential)


def test_planners_of_pass_and_policy() -> None:
    text = "policy: 1\npools: [{name: a}]\n"
    for name, planner in {"portfolio": portfolio, "greedy": greedy, "naive": naive, "exact": exact}.items():
        policy = parse_memory_policy(f"{text}planner: {name}\n")
        assert MemoryPlanningPass(policy=policy).memory_planning_algo is planner
        with pytest.raises(UsageError, match="EK486"):
            MemoryPlanningPass(naive, policy=policy)
    assert MemoryPlanningPass(naive, policy=parse_memory_policy(text)).memory_planning_algo is naive
    with pytest.raises(UsageError, match="EK486"):
        MemoryPlanningPass(arena_limits={1: 9}, policy=parse_memory_policy(text))


def test_traffic_counts_every_reading_and_writing(values: dict[str, Any]) -> None:
    uses = value_uses(values["module"], values["signature"])
    traffic = {name: uses[values[name].meta["spec"]].traffic for name in ("x", "sum", "neg", "cache", "handed", "top")}
    # cache: written by the copy; neg: written, read by two calls, by one through a view, and by the copy.
    assert traffic == {"x": 128, "sum": 128, "neg": 256, "cache": 64, "handed": 128, "top": 64}


# What lies in the second pool has no elements, and lies in the graph of a loop.
EMPTY_ROWS = """\
program(1)

def forward(c3: "f32[1, 0]"):
    def turn13(a10):
        v11 = aten.neg.default(a10)
        v12 = aten.clone.default(v11, memory_format=torch.contiguous_format)
        return v12
    v14 = map(turn13, [c3], [])
    return v14

run("forward", c3=zeros())
"""


def test_an_arena_that_only_a_body_has_is_there_without_bytes() -> None:
    pools = "policy: 1\npools: [{name: first}, {name: second}]\nrules: [{kind: intermediate, pool: second}]\n"
    compiler = ExirkitCompiler(level=2, alloc_graph_output=False, memory_policy=pools)
    verdict = check(parse_program(EMPTY_ROWS), compiler=compiler)
    assert verdict.is_good, verdict.failures
    assert verdict.unsupported is None
