"""Rules at work: what they rewrite, what they leave, and that programs compute the same afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.patterns import rule_files
from tests.patterns.exported_programs import exported, outputs, targets

from exirkit.ir import ContractError, GraphEditor, copy_program
from exirkit.ir.inference import Inference
from exirkit.patterns import RewriteOptions, RewriteReport, RuleEngine, parse_book

ATEN = torch.ops.aten


def rewritten(editor: GraphEditor, text: str, **options: Any) -> RewriteReport:
    """Apply the rules of a book given as text; the program must compute the same afterwards."""
    book = parse_book("rulebook: 1\nrules:\n" + text).require_valid()
    return RuleEngine(book.rules).run(editor, RewriteOptions(**options))


def check(editor: GraphEditor, before: list[torch.Tensor], *args: torch.Tensor) -> None:
    for one, other in zip(outputs(editor.program, *args), before, strict=False):
        torch.testing.assert_close(one, other)


MERGE = """
- id: merge
  vars: {x: "any [*S]", p: "perm of x", q: "perm of x"}
  match: return aten.permute.default(aten.permute.default(x, p), q)
  replace: return aten.permute.default(x, [p[i] for i in q])
"""
IDENTITY = """
- id: identity
  vars: {x: "any [*S]", p: "perm of x"}
  match: return aten.permute.default(x, p)
  where: p == iota(rank(x))
  replace: return x
"""


def test_chains_collapse_to_nothing() -> None:
    x = torch.randn(2, 3, 4)
    editor = exported(lambda _, x: (x.permute(1, 2, 0).permute(2, 0, 1).permute(-3, -2, -1).relu(),), x)
    before = outputs(editor.program, x)
    report = rewritten(editor, MERGE + IDENTITY)
    assert targets(editor.program) == ["relu"]
    assert report.applied["merge"] + report.applied["identity"] == len(report.journal) >= 3
    check(editor, before, x)


CASTS = """
- id: casts
  vars: {x: "f32 [*S]"}
  match: return aten._to_copy.default(aten._to_copy.default(x, dtype=f64), dtype=f32)
  replace: return aten._to_copy.default(aten._to_copy.default(x, dtype=f16), dtype=f32)
  equiv: {rtol: 1.0e-2}
"""


def test_calls_that_are_made_again_have_the_value_of_the_replaced_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 4)
    inferred: list[str] = []
    original = Inference.value

    def value(self: Inference, target: Any, *rest: Any) -> Any:
        inferred.append(str(target))
        return original(self, target, *rest)

    editor = exported(lambda _, x: (x.permute(1, 0).exp().relu(),), x)
    monkeypatch.setattr(Inference, "value", value)
    again = MERGE + (
        "- {id: again, vars: {x: 'f32 [*S]'}, match: 'return aten.relu.default(aten.exp.default(x))', "
        "replace: 'return aten.clamp.default(aten.exp.default(x), 0.0)'}"
    )
    rewritten(editor, again)
    (made,) = [node for node in editor.graph.nodes if node.target is ATEN.exp.default]
    assert tuple(made.meta["val"].shape) == (4, 3)
    assert inferred == ["aten.clamp.default"]
    # The same operator on the same tensor, and another dtype.
    editor = exported(lambda _, x: (x.to(torch.float64).to(torch.float32),), x)
    rewritten(editor, CASTS)
    calls = editor.graph.find_nodes(op="call_function", target=ATEN._to_copy.default)
    assert [node.meta["val"].dtype for node in calls] == [torch.float16, torch.float32]


def test_a_call_with_a_number_of_another_type_is_another_call() -> None:
    text = (
        "- {id: halves, vars: {x: 'i64 [*S]'}, match: 'return aten.mul.Scalar(aten.add.Scalar(x, 1), 2)', replace: "
        "'return aten._to_copy.default(aten.mul.Scalar(aten.add.Scalar(x, 1.0), 2.0), dtype=i64)'}"
    )
    editor = exported(
        lambda _, x: (ATEN.mul.Scalar(ATEN.add.Scalar(x, 1), 2),),
        torch.arange(3),
        keep=(ATEN.mul.Scalar, ATEN.add.Scalar),
    )
    rewritten(editor, text)
    (made,) = editor.graph.find_nodes(op="call_function", target=ATEN.add.Scalar)
    assert made.args[1] == 1.0
    assert made.meta["val"].dtype is torch.float32


def test_folding_normalisation_into_a_convolution() -> None:
    x = torch.randn(2, 3, 8, 8)
    norm = torch.nn.BatchNorm2d(4)
    with torch.no_grad():
        for values in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            assert values is not None
            values.uniform_(0.5, 1.5)
    conv = torch.nn.Conv2d(3, 4, 3, bias=False)
    editor = exported(lambda m, x: (m.norm(m.conv(x)),), x, norm=norm, conv=conv)
    before = outputs(editor.program, x)
    report = RuleEngine(rule_files.book("example_rules").rules).run(editor)
    assert report.applied == {"fold.conv_bn": 1}
    assert targets(editor.program) == ["convolution"]
    # What only the normalisation used is not part of the program any more; the counter was unused before too.
    stored = [spec.target for spec in editor.program.graph_signature.input_specs if spec.target is not None]
    assert stored == ["norm.num_batches_tracked", "_fold_conv_bn_constant", "_fold_conv_bn_constant_1"]
    assert set(editor.program.state_dict) == {"norm.num_batches_tracked"}
    check(editor, before, x)


def test_shared_weights_stay() -> None:
    x = torch.randn(2, 3, 8, 8)
    norm, conv = torch.nn.BatchNorm2d(3), torch.nn.Conv2d(3, 3, 3)
    editor = exported(lambda m, x: (m.norm(m.conv(x)), m.conv(x) * 2), x, norm=norm, conv=conv)
    before = outputs(editor.program, x)
    RuleEngine(rule_files.book("example_rules").rules).run(editor)
    assert "conv.weight" in editor.program.state_dict
    check(editor, before, x)


def test_value_that_others_use_is_not_computed_twice() -> None:
    x = torch.randn(2, 4)
    linear = torch.nn.Linear(4, 4)
    editor = exported(lambda m, x: (m.linear(x).relu(), m.linear(x)), x, linear=linear, keep=(ATEN.linear.default,))
    report = RuleEngine(rule_files.book("example_rules").rules).run(editor)
    assert report.applied == {"fuse.linear_act": 1}
    shared = exported(
        lambda m, x: (lambda y: (y.relu(), y + 1))(m.linear(x)), x, linear=linear, keep=(ATEN.linear.default,)
    )
    assert not RuleEngine(rule_files.book("example_rules").rules).run(shared).journal


@pytest.mark.parametrize("order", [0, 1])
def test_operands_in_either_order(order: int) -> None:
    x = torch.randn(3)
    editor = exported(lambda _, x: (x * x.sigmoid() if order else x.sigmoid() * x,), x)
    before = outputs(editor.program, x)
    assert RuleEngine(rule_files.book("example_rules").rules).run(editor).applied == {"fuse.silu": 1}
    check(editor, before, x)


def test_repeated_variable_is_one_value() -> None:
    x, y = torch.randn(3), torch.randn(3)
    editor = exported(lambda _, x, y: (x * y.sigmoid(),), x, y)
    assert not RuleEngine(rule_files.book("example_rules").rules).run(editor).journal


def test_omitted_argument_means_its_default() -> None:
    x, y = torch.randn(3), torch.randn(3)
    plain = exported(lambda _, x, y: (torch.add(x, y).relu(),), x, y)
    scaled = exported(lambda _, x, y: (torch.add(x, y, alpha=2).relu(),), x, y)
    assert RuleEngine(rule_files.book("example_rules").rules).run(plain).applied == {"fuse.add_relu": 1}
    assert not RuleEngine(rule_files.book("example_rules").rules).run(scaled).journal


def test_several_results() -> None:
    x = torch.randn(5, 4)

    def use(_: Any, x: torch.Tensor) -> Any:
        first, _, last = ATEN.split_with_sizes_copy.default(x, [1, 2, 2])
        return first.relu(), last

    program = torch.export.export(_module(use), (x,), strict=False)
    editor = GraphEditor(copy_program(program))
    before = outputs(editor.program, x)
    report = RuleEngine(rule_files.book("example_rules").rules).run(editor)
    assert report.applied == {"decompose.split_to_slices": 1}
    # Nothing is made for the unused result.
    assert sorted(targets(editor.program)) == ["relu", "slice_copy", "slice_copy"]
    check(editor, before, x)


def _module(function: Any) -> torch.nn.Module:
    from tests.patterns.exported_programs import Computes

    return Computes(function).eval()


PICKED = """
- id: picked
  vars: {x: "f32 [*S, D]", w: "f32 [D]", b: "f32 [D]"}
  match: |
    n = aten.native_layer_norm.default(x, [D], w, b, 1e-05)
    y = n[0]
    return aten.relu.default(y)
  replace: return aten.abs.default(aten.relu.default(aten.native_layer_norm.default(x, [D], w, b, 1e-05)[0]))
  equiv: {mode: exact}
  measure: once
"""


@pytest.mark.parametrize("is_used_elsewhere", [False, True])
def test_one_of_several_results_inside(is_used_elsewhere: bool) -> None:
    """What takes a result of a call with several is part of the match, if only the match uses it."""
    x = torch.randn(3, 4)
    w, b = torch.randn(4), torch.randn(4)

    def function(_: Any, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.native_layer_norm(x, [4], w, b, 1e-5)[0]
        return (y.relu(), y) if is_used_elsewhere else (y.relu(),)

    editor = exported(function, x, w, b)
    before = outputs(editor.program, x, w, b)
    report = rewritten(editor, PICKED)
    assert report.applied["picked"] == (0 if is_used_elsewhere else 1), report.rejections
    check(editor, before, x, w, b)


def test_cycles_are_named() -> None:
    x = torch.randn(3)
    editor = exported(lambda _, x: (x.sin(),), x)
    text = str(editor.graph)
    there_and_back = """
- id: there
  vars: {x: "f32 [*S]"}
  match: return aten.sin.default(x)
  replace: return aten.cos.default(x)
- id: back
  vars: {x: "f32 [*S]"}
  match: return aten.cos.default(x)
  replace: return aten.sin.default(x)
"""
    with pytest.raises(ContractError, match=r"there -> back|back -> there") as caught:
        rewritten(editor, there_and_back)
    assert caught.value.code == "EK250"
    assert str(editor.graph) == text


def test_limit() -> None:
    x = torch.randn(3)
    editor = exported(lambda _, x: (x * x.sigmoid(), x.exp() * x.exp().sigmoid()), x)
    report = RuleEngine(rule_files.book("example_rules").rules).run(editor, RewriteOptions(limit=1))
    assert len(report.journal) == 1
    assert report.is_limited


def test_broken_word_is_undone() -> None:
    x = torch.randn(3)
    editor = exported(lambda _, x: (x.sin(),), x)
    text = str(editor.graph)
    wrong = """
- id: wrong
  vars: {x: "f32 [*S]"}
  match: return aten.sin.default(x)
  replace: return aten.unsqueeze_copy.default(x, 0)
"""
    report = rewritten(editor, wrong)
    assert [one.is_fault for one in report.rejections] == [True]
    assert str(editor.graph) == text
    with pytest.raises(ContractError, match="broke its word"):
        rewritten(editor, wrong, is_strict=True)
    assert str(editor.graph) == text


def test_journal_records_what_happened() -> None:
    x = torch.randn(3)
    editor = exported(lambda _, x: (x * x.sigmoid(),), x)
    (application,) = RuleEngine(rule_files.book("example_rules").rules).run(editor).journal
    assert (application.rule, application.root, set(application.before)) == ("fuse.silu", "mul", {"mul", "sigmoid"})
    assert application.after == ("silu_default",)
    assert application.bindings["x"] == "%args_0"
    (made,) = [node for node in editor.graph.nodes if node.target is ATEN.silu.default]
    assert made.meta["rewritten_by"] == ("fuse.silu",)
    assert made.meta["stack_trace"]


EXPAND = """
- id: expand-noop
  vars: {x: "any [*S]", s: "shape"}
  match: return aten.expand_copy.default(x, s)
  where: shape(x) == s
  replace: return x
"""


@pytest.mark.parametrize("is_same", [True, False])
def test_sizes_that_vary(is_same: bool) -> None:
    """A guard that the sizes do not decide is not a match, and nothing fixes a size."""
    x, y = torch.randn(4, 3), torch.randn(5, 3)

    def expand(_: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        return ATEN.expand_copy.default(x, [x.shape[0], 3]).relu(), y.relu(), x.shape[0] + y.shape[0]

    dims = torch.export.Dim("rows", max=16), torch.export.Dim("others", max=16)
    shapes = (({0: dims[0]}, {0: dims[1]}),)
    program = torch.export.export(_module(expand), (x, y), dynamic_shapes=shapes, strict=False)
    editor = GraphEditor(copy_program(program))
    text = EXPAND if is_same else EXPAND.replace("shape(x) == s", "s[0] == 4")
    assert rewritten(editor, text).applied == ({"expand-noop": 1} if is_same else {})
    larger = torch.randn(9, 3), torch.randn(2, 3)
    check(editor, [larger[0].relu(), larger[1].relu()], *larger)


def test_same_result_whatever_the_order_of_rules() -> None:
    x = torch.randn(2, 3, 4)
    texts = []
    for rules in (MERGE + IDENTITY, IDENTITY + MERGE):
        editor = exported(lambda _, x: (x.permute(1, 2, 0).permute(2, 1, 0).exp(),), x)
        rewritten(editor, rules)
        texts.append(str(editor.graph))
    assert texts[0] == texts[1]


def test_a_rule_that_changes_nothing_ends() -> None:
    x, y = torch.randn(3), torch.randn(3)
    through = """
- id: through
  vars: {x: "f32 [*S]", y: "f32 [*S]"}
  match: return thru(aten.add.Tensor(x, y), [aten.clone.default])
  replace: return aten.add.Tensor(x, y)
"""
    editor = exported(lambda _, x, y: ((x + y).clone().clone().exp(),), x, y)
    before = outputs(editor.program, x, y)
    rewritten(editor, through)
    assert targets(editor.program) == ["add", "exp"]
    check(editor, before, x, y)


def test_replaced_random_calls_go() -> None:
    """A call with a draw of numbers is not pure, but once it is replaced nothing is left of it to match."""
    q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))
    mask = torch.randn(4, 4)
    sdpa = ATEN.scaled_dot_product_attention.default
    editor = exported(lambda _, q, k, v, m: (sdpa(q, k, v, m),), q, k, v, mask, keep=(sdpa,))
    before = outputs(editor.program, q, k, v, mask)
    rules = [*rule_files.book("decompose").rules, *rule_files.book("attention").rules]
    chosen = [rule for rule in rules if rule.id in ("decompose.sdpa-masked", "attention.unsafe-softmax")]
    report = RuleEngine(chosen).run(editor)
    assert report.applied == {"decompose.sdpa-masked": 1}
    assert "scaled_dot_product_attention" not in targets(editor.program)
    for one, other in zip(outputs(editor.program, q, k, v, mask), before, strict=True):
        torch.testing.assert_close(one, other)


def test_unused_calls_do_not_match() -> None:
    x = torch.randn(3)
    editor = exported(lambda _, x: (x * 2,), x)
    product = next(node for node in editor.graph.nodes if node.op == "call_function")
    with editor.transaction("test"):
        editor.call(ATEN.exp.default, (product,), before=editor.graph.output_node())
    text = (
        "- {id: e, vars: {x: 'f32 [*S]'}, match: 'return aten.exp.default(x)', replace: 'return aten.exp2.default(x)'}"
    )
    assert not rewritten(editor, text).journal


def test_replacement_that_is_there_already_is_none() -> None:
    x, m = torch.randn(3), torch.randn(3)
    text = """
- id: again
  vars: {x: "f32 [*S]", m: "f32 [~S] | none"}
  match: return aten.exp.default(opt(aten.add.Tensor(x, m)))
  replace: return aten.exp.default(aten.add.Tensor(x, m, alpha=1)) if m is not None else aten.exp.default(x)
"""
    for editor in (exported(lambda _, x, m: ((x + m).exp(),), x, m), exported(lambda _, x, m: (x.exp() * m,), x, m)):
        report = rewritten(editor, text)
        assert not report.journal
        assert {one.reason for one in report.rejections} == {"the replacement is what is there already"}


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_equal_constants_are_what_is_there_already(factor: float) -> None:
    x = torch.randn(3)
    text = f"""
- id: scale
  vars: {{x: "f32 [*S]", c: "const f32 [K]"}}
  match: return aten.mul.Tensor(x, c)
  let: "d = c * {factor}"
  replace: return aten.mul.Tensor(x, d)
"""
    editor = exported(lambda m, x: (x * m.scale.weight,), x, scale=_Holder(torch.full((3,), 2.0)))
    assert len(rewritten(editor, text, limit=3).journal) == (0 if factor == 1.0 else 3)


def test_what_is_assigned_follows_the_names_in_every_way_to_match() -> None:
    """The first order of the factors fails for one value of `n`; the second order has another one."""
    text = """
- id: halves
  vars: {x: "f32 [*S]", y: "f32 [*T]"}
  match: return aten.mul.Tensor(x, y)
  let: "n = numel(x)"
  where: ["n >= 3", "n <= 3"]
  replace: return aten.mul.Tensor(y, aten.view.default(x, [n]))
  measure: once
"""
    editor = exported(lambda _, x, y: (x * y,), torch.randn(2, 3), torch.randn(3))
    (done,) = rewritten(editor, text).journal
    assert done.bindings == {"x": "%args_1", "y": "%args_0", "S": "[3]", "T": "[2, 3]"}
    (view,) = [node for node in editor.graph.nodes if "view" in str(node.target)]
    assert view.args[1] == [3]


class _Holder(torch.nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Buffer(weight)
