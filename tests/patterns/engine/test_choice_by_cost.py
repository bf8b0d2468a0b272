"""Rules that choose by cost: the cheapest on the target, within the memory there is; otherwise nothing happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from exirkit import ApplyRules, ExecutorchBackendConfig, FoldConstants, UsageError, to_edge
from exirkit.fuzz import GraphSession
from exirkit.ir import GraphEditor, copy_program, ops, underlying
from exirkit.passes import Pass
from exirkit.patterns import (
    KernelCost,
    RewriteOptions,
    RuleEngine,
    Target,
    load_book,
    parse_book,
    read_target,
    shipped_targets,
    work_of,
)
from exirkit.patterns.engine.application import RuleApplication
from exirkit.runtime_ref import Runtime

HOST = read_target("official_host")
SUB = ops.edge.aten.sub.Tensor


class Called(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.randn(8, 4, 3, 3), requires_grad=False)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def rewritten(function: Any, *inputs: torch.Tensor, books: tuple[str, ...] = ("host",), **options: Any) -> list[str]:
    rules = [rule for name in books for rule in load_book(name).rules]
    edge = to_edge(torch.export.export(Called(function), inputs, strict=False))
    passes: list[Pass] = [FoldConstants(1 << 20, creation_nbytes=1 << 20), ApplyRules(rules, RewriteOptions(**options))]
    return calls(edge.transform(passes).exported_program())


def calls(program: torch.export.ExportedProgram) -> list[str]:
    return [str(underlying(node.target)) for node in program.graph.nodes if node.op == "call_function"]


def convolved(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, self.weight, padding=1)


X = torch.randn(1, 4, 20, 20)


def test_nothing_is_chosen_without_a_target() -> None:
    assert rewritten(convolved, X) == ["aten.convolution.default"]


def test_nothing_is_chosen_for_a_target_without_the_kernels() -> None:
    other = Target(target=1, name="other", kernels={"aten.convolution.default": KernelCost(mac_ns=1000)})
    assert rewritten(convolved, X, target=other) == ["aten.convolution.default"]


def test_the_cheapest_is_chosen() -> None:
    found = rewritten(convolved, X, target=HOST)
    assert "aten.bmm.default" in found
    assert "aten.convolution.default" not in found


def test_less_memory_takes_more_strips() -> None:
    counts = [
        rewritten(convolved, X, target=HOST, room=lambda node, room=room: room).count("aten.bmm.default")
        for room in (1e9, 60_000, 40_000, 100)
    ]
    assert counts[0] == 1
    assert counts[0] < counts[1] < counts[2]
    assert counts[3] == 0


def depthwise(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, self.weight[:4, :1], padding=1, groups=4)


def depthwise_along_one_dim(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv1d(x, self.weight[:4, :1, 0], padding=1, groups=4)


@pytest.mark.parametrize(
    ("function", "shape", "most"),
    [
        (depthwise, (1, 4, 20, 20), 3),
        (depthwise_along_one_dim, (1, 4, 400), 2),
        (lambda self, x: x.permute(0, 2, 1, 3), (1, 64, 4, 32), 2),
        (lambda self, x: x.permute(0, 2, 1, 3), (1, 4, 64, 32), 2),
    ],
    ids=["convolution", "convolution over one dim", "few slices of the second", "few slices of the first"],
)
def test_slices_are_joined_as_they_are(function: Any, shape: tuple[int, ...], most: int) -> None:
    # A reshape of each would double what is made, for the rest of the lowering to visit.
    found = rewritten(function, torch.randn(shape), target=HOST)
    assert found.count("aten.slice_copy.Tensor") > most
    assert found.count("aten.view_copy.default") <= most


def attention(mask: torch.Tensor | None) -> Any:
    def function(self: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask)

    return function


@pytest.mark.parametrize(
    ("mask", "is_needed"),
    [
        (None, False),
        (torch.ones(6, 6, dtype=torch.bool).tril(), False),
        (torch.ones(6, 6, dtype=torch.bool).tril(-1), True),
    ],
    ids=["none", "causal", "a row of nothing"],
)
def test_only_a_row_that_is_masked_whole_needs_precautions(mask: torch.Tensor | None, is_needed: bool) -> None:
    q, k = torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    found = rewritten(attention(mask), q, k, books=("canonicalize", "algebra", "finite"))
    assert ("aten.any.dim" in found) == is_needed


def test_work_of_a_convolution_and_of_a_slice() -> None:
    edge = to_edge(torch.export.export(Called(lambda self, x: convolved(self, x)[:, :, ::2, 1:]), (X,)))
    works = [work_of(node) for node in edge.exported_program().graph.nodes if node.op == "call_function"]
    assert works[0] is not None
    assert works[-1] is not None
    assert works[0].macs == 8 * 20 * 20 * 4 * 9
    # Rows of 19 numbers each, of 8 channels and 10 of their rows.
    assert (works[-1].elements, works[-1].runs) == (8 * 10 * 19, 80)


def pieces(*moved: torch.Tensor) -> int:
    """Return how many runs of consecutive numbers results consist of: what can be copied at once."""
    return sum(int((one.flatten().diff() != 1).sum()) + 1 for one in moved)


NUMBERS = torch.arange(120).reshape(2, 3, 4, 5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.permute(1, 0, 2, 3),
        lambda x: x[1:].permute(0, 2, 1, 3),
        lambda x: x[1:, 2:].permute(0, 1, 3, 2),
        lambda x: x.permute(3, 0, 1, 2),
        lambda x: x.permute(1, 0, -2, -1),
        lambda x: x[1:],
        lambda x: x[:, :2],
        lambda x: x[:, :, 1:3],
        lambda x: x[..., 1:],
        lambda x: x[:, :, ::2],
        lambda x: x[:, 1],
        lambda x: x.select(-2, 3),
        lambda x: x.select(-1, 0),
        lambda x: x[:1, :1].expand(6, 1, 4, 5),
        lambda x: x[:1].expand(7, 2, 3, 4, 5)[:, :1],
        lambda x: torch.cat([x, x + 1000], 1),
        lambda x: torch.cat([x, x + 1000, x + 2000], -1),
        lambda x: torch.cat([x, x + 1000], 0),
        lambda x: x.split([1, 2], 1),
        lambda x: x.split([3, 2], -1),
    ],
)
def test_runs_of_a_copy_are_what_lies_together_in_both(function: Any) -> None:
    edge = to_edge(torch.export.export(Called(lambda self, x: function(x)), (NUMBERS,))).exported_program()
    *_, node = (one for one in edge.graph.nodes if one.op == "call_function" and "getitem" not in str(one.target))
    values: dict[torch.fx.Node, Any] = {}
    GraphSession(edge).run([NUMBERS], values.__setitem__)
    # Numbers stand for their place in what is read.
    (read, *_) = node.all_input_nodes
    given = values[read]
    if "cat" not in node.name:
        values[read] = torch.arange(given.numel()).reshape(given.shape)
    args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
    made = underlying(node.target)(*args, **kwargs)
    work = work_of(node)
    assert work is not None
    results = made if isinstance(made, list | tuple) else [made]
    assert work.runs == pieces(*results)
    assert work.elements == sum(one.numel() for one in results)


@pytest.mark.parametrize(
    ("function", "inputs", "runs"),
    [
        (lambda x: torch.softmax(x, -1), (torch.ones(2, 3, 7),), 6),
        (lambda x: torch.nn.functional.layer_norm(x, (7,)), (torch.ones(2, 3, 7),), 6),
        (lambda x: torch.nn.functional.pad(x, (1, 2, 3, 0)), (torch.ones(2, 3, 7),), 6),
        (lambda x, y: torch.bmm(x, y), (torch.ones(5, 2, 3), torch.ones(5, 3, 4)), 5),
        (lambda x: x.relu(), (torch.ones(2, 3, 7),), 0),
    ],
)
def test_runs_of_kernels_that_compute_are_rows_and_matrices(function: Any, inputs: Any, runs: int) -> None:
    edge = to_edge(torch.export.export(Called(lambda self, *given: function(*given)), inputs)).exported_program()
    works = [work_of(one) for one in edge.graph.nodes if one.op == "call_function" and "getitem" not in str(one.target)]
    assert max(one.runs for one in works if one is not None) == runs


def test_shipped_targets_and_files(tmp_path: Path) -> None:
    assert shipped_targets() == ("any", "official_host", "portable", "xnnpack")
    assert HOST.has("aten.linear.default")
    file = tmp_path / "mine.yaml"
    file.write_text("target: 1\nname: mine\nkernels:\n  aten.relu.default: {call_ns: 5, element_ns: 2}\n")
    mine = read_target(file)
    assert mine.cost_ns("aten.relu.default", elements=10) == 25
    assert mine.cost_ns("aten.gelu.default", elements=10) is None
    file.write_text("target: 1\nkernels: {aten.relu.default: {call_ns: -5}}\n")
    with pytest.raises(UsageError) as caught:
        read_target(file)
    assert caught.value.code == "EK209"


def test_numbers_to_tune_are_known_to_replacements_only() -> None:
    book = parse_book(
        """
rulebook: 1
rules:
- id: tuned
  tune: {parts: [1, 2]}
  vars: {x: "f32 [N]"}
  match: return aten.relu.default(x)
  where: parts > 1
  replace: return aten.relu.default(x)
""",
        "tuned.yaml",
    )
    assert [one.code for one in book.errors] == ["EK212"]


@pytest.mark.parametrize(
    ("out", "other", "broadcast"),
    [
        ((4, 6), (4, 6), None),
        ((4, 6), (1,), None),
        ((1, 4, 6), (4, 6), None),
        ((4, 6), (6,), "dim"),
        ((4, 6), (4, 1), "dim"),
        ((1, 4, 6), (6,), "dim"),
        ((3, 4, 6), (3, 1, 6), "dim"),
        ((3, 4, 6), (6,), "any"),
        ((3, 4, 6), (3, 1, 1), "any"),
        ((1, 3, 4, 6), (3, 1, 1), "any"),
        ((3, 4, 6), (4, 6), "any"),
    ],
)
def test_how_operands_differ_in_shape(out: tuple[int, ...], other: tuple[int, ...], broadcast: str | None) -> None:
    edge = to_edge(torch.export.export(Called(lambda self, x, y: x - y), (torch.ones(out), torch.ones(other))))
    (node,) = edge.exported_program().graph.find_nodes(op="call_function", target=SUB)
    work = work_of(node)
    assert work is not None
    assert work.broadcast == broadcast


@pytest.mark.parametrize("shape", [(1, 8, 16), (3, 8, 16), (3, 1, 16)])
@pytest.mark.parametrize("first", [False, True])
def test_operands_are_reshaped_so_that_one_repeats_along_one_dim(shape: tuple[int, ...], first: bool) -> None:
    x, y = torch.randn(3, 8, 16), torch.randn(shape)
    inputs = (y, x) if first else (x, y)

    def function(self: Any, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        return one - two

    edge = to_edge(torch.export.export(Called(function), inputs))
    rules = load_book("host").rules
    made = edge.transform([ApplyRules(rules, RewriteOptions(target=HOST))]).exported_program()
    assert torch.equal(made.module()(*inputs), function(None, *inputs))
    (node,) = made.graph.find_nodes(op="call_function", target=SUB)
    work = work_of(node)
    assert work is not None
    assert work.broadcast == (None if shape == (3, 8, 16) else "dim")


def gelu_written_out(self: Any, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


@pytest.mark.parametrize(
    ("function", "gone", "most_calls"),
    [
        (lambda self, x: torch.tanh(x), "aten::tanh", 4),
        (lambda self, x: torch.nn.functional.gelu(x, approximate="tanh"), "aten::gelu", 6),
        (gelu_written_out, "aten::tanh", 6),
        (lambda self, x: torch.softmax(x, -1), "aten::_softmax", 5),
        (lambda self, x: torch.pow(x, 3), "aten::pow", 2),
    ],
    ids=["tanh", "gelu", "gelu written out", "softmax", "cube"],
)
def test_kernels_that_are_plain_loops_are_replaced(function: Any, gone: str, most_calls: int) -> None:
    x = torch.cat([torch.linspace(-9, 9, 2048), torch.tensor([0.0, -0.0, 1e-7, -3e-5, 60.0, -60.0, 1e20, -1e20])])
    x = x[: 2048 + 8].reshape(8, 257)
    program = to_edge(torch.export.export(Called(function), (x,))).to_executorch(
        ExecutorchBackendConfig(optimization_level=2)
    )
    (plan,) = program.executorch_program.execution_plan
    assert gone not in {one.name for one in plan.operators}
    assert sum(len(chain.instructions) for chain in plan.chains) <= most_calls
    (found,) = Runtime.get().load_program(program.buffer).load_method("forward").execute([x])
    torch.testing.assert_close(found, function(None, x.double()).float(), rtol=1e-5, atol=1e-6)


def test_a_row_multiplies_from_the_left_where_the_cache_does_not_hold_the_weight() -> None:
    found = []
    for width in (64, 1024):
        module, x = torch.nn.Linear(512, width), torch.randn(1, 512)
        program = to_edge(torch.export.export(module, (x,))).to_executorch(
            ExecutorchBackendConfig(optimization_level=2)
        )
        (plan,) = program.executorch_program.execution_plan
        found.append({one.name for one in plan.operators})
        (result,) = Runtime.get().load_program(program.buffer).load_method("forward").execute([x])
        torch.testing.assert_close(result, module(x), rtol=1e-4, atol=1e-5)
    assert found == [{"aten::linear"}, {"aten::mm", "aten::add"}]


def test_conditions_on_the_target_alone_are_asked() -> None:
    rule = """
rulebook: 1
namespace: t
rules:
- id: t.when
  vars: {x: "f32 [*S]"}
  match: return aten.tanh.default(x)
  where: {expr: "target.has('aten.sin.default')", kind: target, why: made up}
  replace: return aten.sin.default(x)
  equiv: {rtol: 1, atol: 2}
"""
    edge = to_edge(torch.export.export(Called(lambda self, x: torch.tanh(x)), (X,)))
    for kernels, wanted in (({"aten.sin.default": KernelCost()}, "aten.sin.default"), ({}, "aten.tanh.default")):
        options = RewriteOptions(target=Target(target=1, name="t", kernels=kernels))
        made = edge.transform([ApplyRules(parse_book(rule).rules, options)])
        assert calls(made.exported_program()) == [wanted]


CONTEST = """
rulebook: 1
rules:
- id: into-relu-first
  choose: cost
  priority: 1
  vars: {x: "f32 [*S]"}
  match: return aten.sign.default(aten.neg.default(x))
  replace: return FIRST
- id: into-relu-last
  choose: cost
  vars: {x: "f32 [*S]"}
  match: return aten.sign.default(aten.neg.default(x))
  replace: return LAST
"""
CONTEST_COSTS = {"neg": 10.0, "sign": 10.0, "relu": 1.0, "abs": 3.0, "sigmoid": 100.0}


@pytest.mark.parametrize(
    ("first", "last", "made", "attempts"),
    [
        ("aten.relu.default(x)", "aten.abs.default(x)", "aten.relu.default", 2),
        ("aten.abs.default(x)", "aten.relu.default(x)", "aten.relu.default", 3),
        ("aten.relu.default(x)", "aten.relu.default(x)", "aten.relu.default", 2),
        ("aten.sigmoid.default(x)", "aten.abs.default(x)", "aten.abs.default", 3),
    ],
    ids=["first", "last", "equal", "first gains nothing"],
)
def test_the_rewrite_that_is_estimated_last_stays_made(
    first: str, last: str, made: str, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[str] = []
    apply = RuleApplication.apply

    def counted(self: RuleApplication, rule: Any, *args: Any, **named: Any) -> Any:
        applied.append(rule.id)
        return apply(self, rule, *args, **named)

    monkeypatch.setattr(RuleApplication, "apply", counted)
    book = parse_book(CONTEST.replace("FIRST", first).replace("LAST", last), "contest.yaml").require_valid()
    kernels = {f"aten.{name}.default": KernelCost(call_ns=cost) for name, cost in CONTEST_COSTS.items()}
    target = Target(target=1, name="contest", kernels=kernels)
    exported = torch.export.export(Called(lambda self, x: torch.sign(-x)), (X,))
    editor = GraphEditor(copy_program(exported))
    report = RuleEngine(book.rules).run(editor, RewriteOptions(target=target))
    assert calls(editor.program) == [made]
    assert len(applied) == attempts
    # Statistics and the journal count what was made, not what was estimated.
    assert [one.rule for one in report.journal] == ["into-relu-" + ("first" if made in first else "last")]
    assert sum(one.applied for one in report.statistics.values()) == 1
    assert sum(one.matched for one in report.statistics.values()) == 1
    assert not report.rejections
