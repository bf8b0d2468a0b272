"""Rules from traces: every literal is decided on by the author, and then the rule is the one written by hand."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from tests.patterns.exported_programs import exported, targets
from torch._higher_order_ops.while_loop import while_loop

from exirkit import ChangeInterface, to_edge
from exirkit.ir import GraphEditor, UsageError, copy_program
from exirkit.passes import decomposition_passes, run_passes
from exirkit.patterns import BodyExample, RuleEngine, check_book, parse_book, trace_rule

X = torch.ones(2, 3)
DECIDED = {"softmax_dim": "exact", "mul_other": "any", "new_softmax_dim": "exact", "new_mul_other": "mul_other"}


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1) * 2.0


def softmax_of_last(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 1) * 2.0


BY_HAND = """rulebook: 1
rules:
- id: mine.softmax
  vars: {x: "f32 [N, K]", mul_other: float}
  match: |
    return aten.mul.Tensor(aten.softmax.int(x, -1), mul_other)
  replace: |
    return aten.mul.Tensor(aten.softmax.int(x, 1), mul_other)
"""


def traced(pattern: Any, replacement: Any, *, decide: dict[str, str] | None = None, **examples: Any) -> Any:
    return trace_rule(pattern, replacement, examples or {"x": X}, rule_id="mine.softmax", decide=decide)


def test_a_rule_with_marks_does_not_load() -> None:
    made = traced(softmax, softmax_of_last)
    assert made.undecided == ("softmax_dim", "mul_other", "new_softmax_dim", "new_mul_other")
    loaded = parse_book(made.text, "book.yaml")
    assert not loaded.rules
    assert [one.code for one in loaded.found] == ["EK264"] * 4
    for name, one in zip(made.undecided, loaded.found, strict=True):
        assert f"{name}, " in one.message
        place = one.location
        assert place.text is not None
        assert place.column is not None
        assert place.span is not None
        assert place.text[place.column - 1 : place.column - 1 + place.span].startswith(f"DECIDE({name}, ")
        assert place.text == made.text.splitlines()[(place.line or 0) - 1]


@pytest.mark.parametrize("left", sorted(DECIDED))
def test_one_mark_is_enough_not_to_load(left: str) -> None:
    made = traced(softmax, softmax_of_last, decide={key: way for key, way in DECIDED.items() if key != left})
    assert made.undecided == (left,) if left != "mul_other" else "mul_other" in made.undecided
    assert parse_book(made.text).errors


def test_decided_it_is_the_rule_written_by_hand() -> None:
    made = traced(softmax, softmax_of_last, decide=DECIDED)
    assert made.undecided == ()
    by_hand = parse_book(BY_HAND).require_valid()
    loaded = parse_book(made.text).require_valid()
    assert loaded.book == by_hand.book
    assert loaded.rules[0].pattern == by_hand.rules[0].pattern
    assert check_book(loaded, trials=20).is_accepted


def test_decided_in_the_file_it_is_the_same() -> None:
    text = traced(softmax, softmax_of_last).text
    for name, value in (
        ("softmax_dim", "-1"),
        ("mul_other", "2.0"),
        ("new_softmax_dim", "1"),
        ("new_mul_other", "2.0"),
    ):
        text = text.replace(f"DECIDE({name}, {value})", value)
    decided = traced(softmax, softmax_of_last, decide=dict.fromkeys(DECIDED, "exact"))
    assert parse_book(text).require_valid().book == parse_book(decided.text).require_valid().book


def test_the_rule_fires_where_it_was_traced() -> None:
    def lower(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
        from exirkit.ir import GraphEditor, copy_program

        editor = GraphEditor(copy_program(program))
        run_passes(editor, decomposition_passes(frozenset()))
        return editor.program

    def pattern(x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)

    def replacement(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.hardswish(x)

    made = trace_rule(pattern, replacement, {"x": X}, rule_id="it", lower=lower,
                      decide={})  # fmt: skip
    assert "aten.mul.Tensor(x, aten.sigmoid.default(x))" in made.rule.match
    book = parse_book(made.text.replace("replace: |", "replace: return aten.abs.default(x)\n  doc: |")).require_valid()
    editor = exported(lambda _, x: x * x.sigmoid(), torch.ones(4, 5))
    assert [one.rule for one in RuleEngine(book.rules).run(editor).journal] == ["it"]
    assert targets(editor.program) == ["abs"]


def test_numbers_take_the_names_of_arguments() -> None:
    def pattern(x: torch.Tensor, slope: float) -> torch.Tensor:
        return torch.nn.functional.leaky_relu(x, slope)

    def replacement(x: torch.Tensor, slope: float) -> torch.Tensor:
        return torch.maximum(x, x * slope)

    made = traced(pattern, replacement, decide={"slope": "float in [0.1, 0.5]"}, x=X, slope=0.25)
    assert made.rule.vars == {"x": "f32 [N, K]", "slope": "float in [0.1, 0.5]"}
    assert made.rule.match == "return aten.leaky_relu.default(x, slope)\n"
    assert made.rule.replace == "return aten.maximum.default(x, aten.mul.Tensor(x, slope))\n"
    assert check_book(parse_book(made.text), trials=20).is_accepted


def test_example_numbers_are_found_again_after_lowering() -> None:
    """Lowering rounds 0.1 to float32, and makes a tensor of it."""

    def scaled(x: torch.Tensor, c: float, eps: float) -> torch.Tensor:
        return torch.rsqrt(x * c + eps) * 0.7

    def replaced(x: torch.Tensor, c: float, eps: float) -> torch.Tensor:
        return torch.rsqrt(x * c + eps) * 0.7

    decide = {"c": "any", "eps": "any", "mul_other": "exact", "new_mul_other": "exact"}
    made = trace_rule(
        scaled, replaced, {"x": X, "c": 0.1, "eps": 1e-6}, rule_id="mine.scaled", decide=decide,
        lower=lambda program: to_edge(program).exported_program(),
    )  # fmt: skip
    assert made.undecided == ()
    assert "aten.add.Tensor(aten.mul.Tensor(x, c), eps)" in made.rule.match
    assert "0.7)" in made.rule.match
    assert made.rule.vars == {"x": "f32 [N, K]", "c": "float", "eps": "float"}


def test_types_of_tensors_come_from_the_examples() -> None:
    def pattern(x: Any, w: Any, m: Any) -> Any:
        return torch.where(m, x @ w, x @ w)

    examples = {
        "x": torch.ones(2, 3, dtype=torch.float64),
        "w": torch.ones(3, 5, dtype=torch.float64),
        "m": torch.ones(1, 5, dtype=torch.bool),
    }
    rule = trace_rule(pattern, lambda x, w, m: x @ w, examples, rule_id="it", qualifiers={"w": "const"}).rule
    assert rule.vars == {"x": "f64 [N, K]", "w": "const f64 [K, M]", "m": "bool [1, M]"}
    assert "where.self(m, " in rule.match


@pytest.mark.parametrize(
    ("way", "text", "variables"),
    [
        ("exact", "[3, 2]", {}),
        ("sizes", "[K, N]", {}),
        ("any", "view_size", {"view_size": "ints"}),
        ("shape", "view_size", {"view_size": "shape"}),
    ],
)
def test_ways_to_decide_on_sizes(way: str, text: str, variables: dict[str, str]) -> None:
    made = traced(lambda x: x.view(3, 2), lambda x: x.reshape([3, 2]).abs(), decide={"view_size": way}, x=X)
    assert made.rule.match == f"return aten.view.default(x, {text})\n"
    assert made.rule.vars == {"x": "f32 [N, K]", **variables}


def summed(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.sum.dim_IntList(x, [0], False, dtype=torch.float32)


def test_what_has_its_default_is_told_and_can_be_widened() -> None:
    decide = {"sum_dim": "exact", "sum_dtype": "exact"}
    made = traced(summed, torch.abs, decide=decide)
    assert made.rule.match == "return aten.sum.dim_IntList(x, [0], dtype=f32)\n"
    assert made.defaults == ("sum_keepdim (keepdim=False of aten.sum.dim_IntList)",)
    said = "# The pattern asks for these defaults:\n# - sum_keepdim (keepdim=False of aten.sum.dim_IntList)\n"
    assert made.text.startswith(said)
    wider = traced(summed, torch.abs, decide={**decide, "sum_keepdim": "any"})
    assert wider.rule.match == "return aten.sum.dim_IntList(x, [0], keepdim=sum_keepdim, dtype=f32)\n"
    assert wider.rule.vars["sum_keepdim"] == "bool"
    assert wider.defaults == ()


def test_results_and_dims() -> None:
    decide = {"topk_k": "exact", "topk_dim": "any"}
    made = traced(lambda x: torch.topk(x, 2, 0)[0], torch.abs, decide=decide)
    assert made.rule.match == "topk = aten.topk.default(x, 2, topk_dim)\nreturn topk[0]\n"
    assert made.rule.vars["topk_dim"] == "axis of x"


@pytest.mark.parametrize(
    ("decide", "said"),
    [
        ({"softmax_dm": "exact"}, "did you mean softmax_dim?"),
        ({"softmax_dim": "default"}, "is not the default"),
        ({"softmax_dim": "sizes"}, "has no size"),
        ({"softmax_dim": "flaot"}, "is not a decision"),
        ({"new_softmax_dim": "any"}, "it is in the replacement"),
    ],
)
def test_impossible_decisions(decide: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as error:
        traced(softmax, softmax_of_last, decide=decide)
    assert error.value.code == "EK265"
    assert said in str(error.value)


def captures(x: torch.Tensor) -> torch.Tensor:
    return x + CAPTURED


def branches(x: torch.Tensor) -> torch.Tensor:
    return x.abs() if x.sum() > 0 else x


CAPTURED = torch.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("pattern", "replacement", "said"),
    [
        (captures, torch.abs, "uses a tensor"),
        (branches, torch.abs, "torch.export failed"),
        (torch.abs, lambda x: x.add_(1), "writes to a tensor"),
        (lambda x: x, torch.abs, "root stored, input or output"),
        (torch.abs, lambda x: 3, "the replacement cannot be part of a rule"),
        (lambda x: torch.ones(3), torch.abs, "does not use its argument 'x'"),
    ],
)
def test_functions_that_cannot_be_rules(pattern: Any, replacement: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        traced(pattern, replacement)
    assert error.value.code == "EK266"
    assert said in str(error.value)


def test_special_numbers_and_names() -> None:
    def pattern(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.clone.default(
            torch.ops.aten.clamp.default(x, float("-inf"), float("inf")), memory_format=torch.contiguous_format
        )

    decide = dict.fromkeys(("clamp_min", "clamp_max", "clone_memory_format"), "exact")
    made = traced(pattern, torch.abs, decide=decide)
    (rule,) = parse_book(made.text).require_valid().rules
    assert "clamp.default(x, -inf, inf), memory_format=contiguous_format" in rule.rule.match


def same(x: torch.Tensor) -> torch.Tensor:
    return x


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 3, 1)


def channels_first(new: torch.Tensor) -> torch.Tensor:
    return new.permute(0, 3, 1, 2)


def to_ints(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.int32)


def to_longs(new: torch.Tensor) -> torch.Tensor:
    return new.to(torch.int64)


class Stored(torch.nn.Module):
    indices: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("indices", torch.tensor([[1, 0, 2]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.gather(1, self.indices)


def about(root: str, replacement: Any, uses: Any, x: torch.Tensor, **decide: str) -> Any:
    return trace_rule(same, replacement, {"x": x}, rule_id="mine.value", root=root, uses=uses, decide=decide)


def test_a_rule_about_an_input() -> None:
    x = torch.randn(2, 3, 4, 5)
    exact = {"new_permute_dims": "exact", "new_permute_dims_2": "exact"}
    made = about("input", channels_last, channels_first, x, **exact)
    assert made.rule.match == "return input(x)\n"
    assert made.rule.uses == "return aten.permute.default(new, [0, 3, 1, 2])\n"
    assert made.rule.measure == "once"
    book = parse_book(made.text).require_valid()
    assert check_book(book, trials=20).is_accepted
    edge = to_edge(torch.export.export(torch.nn.Conv2d(3, 6, 1), (x,)))
    changed = edge.transform([ChangeInterface(book.rules)]).exported_program()
    before = edge.exported_program().module()(x)
    torch.testing.assert_close(changed.module()(channels_last(x).contiguous()), before)


def test_a_rule_about_a_stored_tensor() -> None:
    x = torch.ones(1, 3, dtype=torch.int64)
    undecided = about("stored", to_ints, to_longs, x).undecided
    made = about("stored", to_ints, to_longs, x, **dict.fromkeys(undecided, "exact"))
    assert made.rule.replace == "return stored(cast(x, i32))\n"
    assert made.rule.measure is None
    # What the trace does not know, the check finds: not all integers are small.
    book = parse_book(made.text).require_valid()
    assert not check_book(book, trials=40).is_accepted
    guarded = made.text.replace("  replace:", "  where: in_range(x, -2147483648, 2147483647)\n  replace:")
    book = parse_book(guarded).require_valid()
    verdict = check_book(book, trials=40)
    assert verdict.is_accepted, [one.render() for each in verdict.rules for one in each.found]
    given = torch.randn(1, 3)
    editor = GraphEditor(copy_program(torch.export.export(Stored(), (given,))))
    assert RuleEngine(book.rules).run(editor).journal
    assert [one.dtype for one in editor.program.state_dict.values()] == [torch.int32]
    torch.testing.assert_close(editor.program.module()(given), Stored()(given))


@pytest.mark.parametrize(("root", "replacement", "uses", "said"), [
    ("input", channels_last, None, "its result is f32 [2, 4, 5, 3], and the value f32 [2, 3, 4, 5]"),
    ("input", channels_last, channels_last, "`uses` cannot be part of a rule: its result is f32 [2, 5, 3, 4]"),
    ("constant", channels_last, channels_first, "it is one of stored, input, output"),
    ("output", lambda x: (x, x), None, "its result is not one tensor"),
    ("stored", torch.abs, None, "no word computes aten.abs.default"),
    ("output", torch.abs, lambda new: new + CAPTURED.sum(), "uses a tensor"),
])  # fmt: skip
def test_functions_that_cannot_be_about_values(root: str, replacement: Any, uses: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        about(root, replacement, uses, torch.randn(2, 3, 4, 5))
    assert error.value.code == "EK266"
    assert said in str(error.value)


def test_a_pattern_about_a_value_computes_nothing() -> None:
    with pytest.raises(UsageError, match="returns its argument 'x' as it is"):
        trace_rule(torch.abs, torch.abs, {"x": X}, rule_id="mine.value", root="input")
    with pytest.raises(UsageError, match="has one argument, a tensor"):
        trace_rule(same, torch.abs, {"x": X, "k": 2}, rule_id="mine.value", root="input")


# Bodies of control flow

YES = torch.tensor(True)
BODIES = {"xs": BodyExample("operands"), "f": BodyExample("body"), "g": BodyExample("body")}
LOOP = {"a": X, "xs": BodyExample("operands"), "hs": BodyExample("operands"), "c": BodyExample("condition"),
        "f": BodyExample("body like xs"), "g": BodyExample("body like a")}  # fmt: skip


def edge(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    return to_edge(program).exported_program()


def test_rules_about_control_flow() -> None:
    """Each is what one writes by hand, loads, and is right."""
    made = trace_rule(
        lambda p, x, xs, f, g: torch.cond(
            p, lambda x, *v: f(x.tanh(), *v), lambda x, *v: g(x.tanh() * 2.5, *v), (x, *xs)
        ),
        lambda p, x, xs, f, g: torch.cond(p, f, lambda x, *v: g(x * 2.5, *v), (x.tanh(), *xs)),
        {"p": YES, "x": X, **BODIES},
        rule_id="mine.common", decide={"mul_other": "exact", "new_mul_other": "exact"}, lower=edge,
    )  # fmt: skip
    tanh = "aten.tanh.default(in_0)"
    assert made.rule.vars == {"p": "bool []", "x": "f32 [N, K]", "xs": "operands", "f": "body", "g": "body"}
    assert made.rule.match == (
        f"return *higher_order.cond(p, lambda in_0, *rest: f({tanh}, *rest), "
        f"lambda in_0, *rest: g(aten.mul.Tensor({tanh}, 2.5), *rest), [x, *xs])\n"
    )
    carried = trace_rule(
        lambda a, xs, hs, c, f, g: tuple(
            while_loop(lambda x, *v: c(*v, *hs), lambda x, *v: (g(x, *v, *hs), *f(*v, *hs)), (a, *xs))[1:]
        ),
        lambda a, xs, hs, c, f, g: tuple(while_loop(lambda *v: c(*v, *hs), lambda *v: f(*v, *hs), tuple(xs))),
        LOOP, rule_id="mine.carried",
    )  # fmt: skip
    assert carried.rule.match == (
        "_, *others = higher_order.while_loop(lambda in_0, *rest: c(*rest), "
        "lambda in_0, *rest: [g(in_0, *rest), *f(*rest)], [a, *xs], hs)\nreturn *others\n"
    )
    assert carried.rule.replace == "return *higher_order.while_loop(c, f, xs, hs)\n"
    two = trace_rule(
        lambda p, x: torch.cond(p, lambda x: (x.tanh(), x.sin()), lambda x: (x.cos(), x.exp()), (x,))[::-1],
        lambda p, x: (torch.where(p, x.sin(), x.exp()), torch.where(p, x.tanh(), x.cos())),
        {"p": YES, "x": X}, rule_id="mine.two",
    )  # fmt: skip
    assert two.rule.match.endswith("return result_2, result\n")
    for one in (made, carried, two):
        parse_book(one.text).require_valid()


@pytest.mark.parametrize(
    ("pattern", "replacement", "code", "said"),
    [
        (lambda p, xs, f: torch.cond(p, lambda *v: f(v[0]), f, tuple(xs)), torch.abs, "EK266", "takes rest apart"),
        (lambda x, f: f(x), torch.abs, "EK266", "applied outside of bodies"),
        (lambda p, x, f: torch.cond(p, lambda x: (lambda y: f(y * y))(x.cos()), f, (x,)), torch.abs, "EK266",
         "uses what aten.cos.default computes twice"),
        (lambda a, xs, hs, c, f: tuple(
            while_loop(lambda *v: c(*v, *hs), lambda *v: (*f(*v, *hs), v[-1].clone()), (*xs, a))
         ), torch.abs, "EK266", "another operand between"),
        (lambda p, x, g: torch.cond(p, g, g, (x,)), torch.abs, "EK256", "is like q"),
    ],
)  # fmt: skip
def test_bodies_that_cannot_be_in_rules(pattern: Any, replacement: Any, code: str, said: str) -> None:
    known = {**LOOP, "p": YES, "x": X, "g": BodyExample("body like q")}
    known["f"] = LOOP["f"] if "hs" in inspect.signature(pattern).parameters else BODIES["f"]
    examples = {name: known[name] for name in inspect.signature(pattern).parameters}
    with pytest.raises(UsageError) as error:
        trace_rule(pattern, replacement, examples, rule_id="it")
    assert error.value.diagnostics[0].code == code
    assert said in error.value.diagnostics[0].message
