"""Wrong rule books, and rules that do wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from tests.diagnostics.programs import exported
from tests.diagnostics.provocation import provokes

from exirkit.ir import Diagnostic, GraphEditor, copy_program
from exirkit.patterns import (
    PythonBook,
    RewriteOptions,
    RuleEngine,
    check_book,
    check_propagation,
    load_book,
    parse_analysis,
    parse_book,
    read_target,
    read_vocabulary,
    relations_of,
)

RULE = """rulebook: 1
rules:
- id: my-rule
  vars: {x: "f32 [*S]"}
  match: |
    return aten.relu.default(x)
  replace: |
    return x
"""


def found(text: str) -> list[Diagnostic]:
    """Return the diagnostics about a book."""
    return parse_book(text, "book.yaml").found


@provokes("EK276")
def zero_point_that_is_misspelt(_: Path) -> object:
    return found(RULE.replace("f32 [*S]", "q8 [*S]").replace("return x\n", "return dequantized(x.q, x, zero=x.zer)\n"))


@provokes("EK277")
def quantized_like_a_tensor(_: Path) -> object:
    text = RULE.replace('{x: "f32 [*S]"}', '{x: "f32 [*S]", r: "q8 params [*S]"}')
    return found(text.replace("aten.relu.default(x)", "quantized(aten.relu.default(x), x)"))


@provokes("EK278")
def result_per_channel(_: Path) -> object:
    return found(f"{RULE}  quantized: {{x: any, result: per_channel(0 -> 1)}}\n")


@provokes("EK279")
def variant_that_moves_nothing(_: Path) -> object:
    return found(f"{RULE}  quantized: {{x: any}}\n")


CONDITION = RULE.replace('{x: "f32 [*S]"}', '{p: "bool []", a: "f32 [*S]", f: body, g: body, xs: operands}')


def condition(match: str, replacement: str) -> str:
    head, _, _ = CONDITION.partition("  match:")
    return f"{head}  match: |\n    {match}\n  replace: |\n    {replacement}\n"


def of_condition(code: str, match: str, replacement: str) -> object:
    verdict = check_book(parse_book(condition(match, replacement), "book.yaml"), trials=5)
    return [one for rule in verdict.rules for one in rule.found if one.code == code]


@provokes("EK238")
def body_that_reads_from_outside(_: Path) -> object:
    match = "return *higher_order.cond(p, lambda *v: [aten.relu.default(a)], g, xs)"
    return found(condition(match, "return *g(*xs)"))


@provokes("EK239")
def functions_for_bodies(_: Path) -> object:
    same = "return *higher_order.cond(p, f, g, [a, *xs])"
    return of_condition("EK239", same, same)


@provokes("EK269")
def condition_that_becomes_itself(_: Path) -> object:
    return of_condition(
        "EK269", "return *higher_order.cond(p, f, g, [a, *xs])", "return *higher_order.cond(p, f, g, [a, *xs])"
    )


@provokes("EK270")
def restriction_for_nothing(_: Path) -> object:
    match = "return aten.zeros_like.default(higher_order.cond(p, lambda x, *v: f(*v), g, [a, *xs])[0])"
    replacement = "return aten.zeros_like.default(higher_order.cond(p, g, g, [a, *xs])[0])"
    return of_condition("EK270", match, replacement)


@provokes("EK288")
def users_of_a_list(_: Path) -> object:
    return found(RULE.replace("return aten.relu.default(x)", "return *[aten.relu.default(u) for u in users([x])]"))


@provokes("EK289")
def chain_of_convolutions(_: Path) -> object:
    line = "v = chain(aten.relu.default(x), [aten.mm.default])\n    return aten.relu.default(v)"
    return found(RULE.replace("return aten.relu.default(x)", line))


@provokes("EK299")
def attribute_that_is_lost(_: Path) -> object:
    head = "rulebook: 1\nattributes:\n  act: {lo: float, key: LIMIT, means: 'aten.clamp.default(result, lo, None)'}\n"
    text = RULE.replace("rulebook: 1\n", head).replace("relu.default(x)", "relu.default(x) @ act(lo)")
    return found(text.replace('{x: "f32 [*S]"}', '{x: "f32 [*S]", lo: float}'))


@provokes("EK201")
def repeated_key(_: Path) -> object:
    return found("rulebook: 1\nrules: []\nrules: []\n")


@provokes("EK202")
def misspelt_key(_: Path) -> object:
    return found(RULE.replace("  match:", "  matches:"))


@provokes("EK203")
def missing_import(path: Path) -> object:
    (path / "book.yaml").write_text("rulebook: 1\nimports: [other.yaml]\n")
    return load_book(path / "book.yaml").found


@provokes("EK204")
def two_rules_of_one_id(_: Path) -> object:
    return found(RULE + RULE.partition("rules:\n")[2])


@provokes("EK206")
def unknown_rule(_: Path) -> object:
    return parse_book(RULE, "book.yaml").rule("my-rul")


@provokes("EK207")
def class_without_functions(_: Path) -> object:
    return PythonBook().rule("my-rule")(type("Empty", (), {}))


@provokes("EK209")
def target_without_a_name(path: Path) -> object:
    (path / "target.yaml").write_text("target: 1\nkernels: {}\n")
    return read_target(path / "target.yaml")


@provokes("EK283")
def vocabulary_with_an_operator_that_writes(path: Path) -> object:
    text = "vocabulary: 1\nname: wrong\ndoc: Adds in place.\nsizes: {N: [2, 3, 8]}\n"
    (path / "words.yaml").write_text(text + 'variables: {x: "f32 [N]"}\noperators: ["aten.add_.Tensor(_, _)"]\n')
    return read_vocabulary(path / "words.yaml")


@provokes("EK210")
def pattern_without_an_end(_: Path) -> object:
    return found(RULE.replace("relu.default(x)", "relu.default(x"))


@provokes("EK211")
def arithmetic_in_a_pattern(_: Path) -> object:
    return found(RULE.replace("relu.default(x)", "relu.default(x + 1)"))


@provokes("EK212")
def unbound_name(_: Path) -> object:
    return found(RULE.replace("return x\n", "return aten.neg.default(y)\n"))


@provokes("EK213")
def unknown_operator(_: Path) -> object:
    return found(RULE.replace("relu.default(x)", "rellu.default(x)"))


@provokes("EK214")
def unknown_argument(_: Path) -> object:
    return found(RULE.replace("relu.default(x)", "clamp.default(x, minimum=0)"))


@provokes("EK215")
def roots_apart(_: Path) -> object:
    text = RULE.replace("relu.default(x)", "relu.default(x), aten.neg.default(y)").replace(
        "return x\n", "return x, y\n"
    )
    return found(text.replace('[*S]"}', '[*S]", y: "f32 [*T]"}'))


@provokes("EK216")
def unknown_type(_: Path) -> object:
    return found(RULE.replace("f32 [*S]", "f33 [*S]"))


@provokes("EK217")
def case_behind_one_without_condition(_: Path) -> object:
    return found(
        RULE.replace("  replace: |\n    return x\n", "  replace:\n  - replace: return x\n  - replace: return x\n")
    )


@provokes("EK218")
def unused_variable(_: Path) -> object:
    return found(RULE.replace('[*S]"}', '[*S]", y: "f32 [*S]"}'))


@provokes("EK219")
def rule_that_changes_a_dtype(_: Path) -> object:
    return [
        one
        for rule in check_book(parse_book(RULE.replace("f32", "i32").replace("relu", "exp"))).rules
        for one in rule.found
    ]


@provokes("EK220")
def unknown_word(_: Path) -> object:
    return found(RULE.replace("  replace:", "  where: rnk(x) == 2\n  replace:"))


@provokes("EK221")
def let_that_calls_an_operator(_: Path) -> object:
    return found(RULE.replace("  replace:", "  let: y = aten.neg.default(x)\n  replace:"))


@provokes("EK222")
def view_in_edge(_: Path) -> object:
    text = RULE.replace("  match:", "  dialect: {from: aten, to: edge}\n  match:")
    return found(text.replace("return x\n", "return aten.view.default(x, [-1])\n"))


@provokes("EK224")
def pattern_that_edge_decomposes(_: Path) -> object:
    text = RULE.replace("  match:", "  dialect: edge\n  match:").replace("aten.relu.default", "aten.hardswish.default")
    text = text.replace("return x\n", "return aten.mul.Tensor(x, aten.hardsigmoid.default(x))\n")
    verdict = check_book(parse_book(text + "  equiv: {rtol: 1.0e-5, atol: 1.0e-6}\n", "book.yaml"), trials=5)
    return [one for rule in verdict.rules for one in rule.found if one.code == "EK224"]


@provokes("EK225")
def library_that_is_missing(_: Path) -> object:
    return found(RULE.replace("rules:", "libraries: [no_such_library]\nrules:"))


@provokes("EK226")
def loop_of_one_turn(_: Path) -> object:
    text = RULE.replace("return x\n", "y = x\n    for i in range(1): y = aten.relu.default(y)\n    return y\n")
    verdict = check_book(parse_book(text, "book.yaml"), trials=5)
    return [one for rule in verdict.rules for one in rule.found if one.code == "EK226"]


@provokes("EK227")
def size_of_nothing(_: Path) -> object:
    return found(RULE.replace("  match:", "  varying: [N]\n  match:"))


@provokes("EK228")
def condition_on_a_size_that_varies(_: Path) -> object:
    text = RULE.replace("[*S]", "[N]").replace(
        "  match:", "  varying: [N]\n  where: {expr: N < 9, kind: profit}\n  match:"
    )
    text = text.replace("return x\n", "return aten.clamp.default(x, 0.0)\n")
    verdict = check_book(parse_book(text, "book.yaml"), trials=5)
    return [one for rule in verdict.rules for one in rule.found if one.code == "EK228"]


@provokes("EK229")
def table_of_what_is_not_there(_: Path) -> object:
    return found(RULE.replace("rules:", "tables: {variants: {aten.relu.default: aten.rellu.default}}\nrules:"))


@provokes("EK230")
def schema_without_types(_: Path) -> object:
    return found(RULE + "ops:\n  my.relu: {schema: '(x) -> Tensor', define: 'return aten.relu.default(x)'}\n")


@provokes("EK231")
def operator_of_torch(_: Path) -> object:
    return found(RULE + "ops:\n  aten.relu: {schema: '(Tensor x) -> Tensor', define: 'return aten.neg.default(x)'}\n")


SCALED = """rulebook: 1
ops: {NAME.scaled: {schema: "(Tensor x) -> Tensor", define: "return aten.mul.Scalar(x, 2)"}}
rules: []
"""


def beside_a_library(namespace: str, meaning: Callable[[torch.Tensor], torch.Tensor]) -> object:
    library = torch.library.Library(namespace, "FRAGMENT")
    if not hasattr(getattr(torch.ops, namespace), "scaled"):
        library.define("scaled(Tensor x) -> Tensor")
        library.impl("scaled", meaning, "CompositeExplicitAutograd")
    return check_book(parse_book(SCALED.replace("NAME", namespace), "book.yaml")).found


@provokes("EK236")
def operator_that_a_library_computes_otherwise(_: Path) -> object:
    return beside_a_library("provoked_otherwise", torch.neg)


@provokes("EK237")
def operator_of_a_device(_: Path) -> object:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("runs on the device alone")

    return beside_a_library("provoked_device", fails)


@provokes("EK275")
def operator_of_two_meanings(path: Path) -> object:
    text = RULE + "ops:\n  my.act: {schema: '(Tensor x) -> Tensor', define: 'return aten.relu.default(x)'}\n"
    (path / "first.yaml").write_text(text.replace("my-rule", "other"))
    text = text.replace("rules:", "imports: [first.yaml]\nrules:", 1).replace("relu.default(x)'}", "tanh.default(x)'}")
    (path / "second.yaml").write_text(text)
    return load_book(path / "second.yaml").found


STORED = """rulebook: 1
rules:
- id: my-rule
  vars: {c: "i64 [*S]"}
  match: return stored(c)
  replace: return stored(cast(c, i32))
"""


@provokes("EK234")
def replacement_that_stores_nothing(_: Path) -> object:
    return found(STORED.replace("stored(cast(c, i32))", "aten.neg.default(c)"))


@provokes("EK235")
def uses_for_nothing(_: Path) -> object:
    text = STORED.replace("cast(c, i32)", "flip(c, [])") + "  uses: return aten._to_copy.default(new, dtype=i64)\n"
    verdict = check_book(parse_book(text, "book.yaml"), trials=5)
    return [one for rule in verdict.rules for one in rule.found if one.code == "EK235"]


@provokes("EK240")
def rule_that_is_wrong(_: Path) -> object:
    verdict = check_book(parse_book(RULE, "book.yaml"))
    return [one.model_copy(update={"notes": one.notes[1:]}) for rule in verdict.rules for one in rule.found]


@provokes("EK241")
def rule_without_samples(_: Path) -> object:
    text = RULE.replace("  replace:", "  where: rank(x) == 2 and rank(x) == 3\n  replace:")
    return [one for rule in check_book(parse_book(text, "book.yaml")).rules for one in rule.found]


@provokes("EK267")
def chain_of_any_operators(_: Path) -> object:
    text = """rulebook: 1
rules:
- id: ones
  vars: {x: 'f32 []'}
  match: |
    v = chain(x, [aten.abs.default, aten.relu.default])
    return aten.view_copy.default(aten.ones_like.default(v, dtype=f32), [1])
  replace: return aten.view_copy.default(aten.ones_like.default(x, dtype=f32), [1])
"""
    verdict = check_book(parse_book(text, "book.yaml"), trials=5, is_strict=True)
    return [one for rule in verdict.rules for one in rule.found if one.code == "EK267"]


@provokes("EK268")
def some_users_that_are_all(_: Path) -> object:
    text = """rulebook: 1
rules:
- id: doubled
  vars: {x: 'f32 [*S]'}
  match: |
    d = aten.neg.default(x)
    return *[aten.abs.default(u) for u in some(users(d))]
  replace: |
    y = aten.abs.default(aten.abs.default(x))
    return aten.abs.default(aten.abs.default(y))
"""
    verdict = check_book(parse_book(text, "book.yaml"), trials=5)
    return [one for rule in verdict.rules for one in rule.found if one.code == "EK268"]


@provokes("EK242")
def guard_for_nothing(_: Path) -> object:
    text = RULE.replace("return x\n", "return aten.clamp_min.default(x, 0)\n").replace(
        "  replace:", "  where: rank(x) == 2\n  replace:"
    )
    return [one for rule in check_book(parse_book(text, "book.yaml")).rules for one in rule.found]


SECOND = RULE.partition("rules:\n")[2].replace("my-rule", "second")


@provokes("EK243")
def rule_behind_another(_: Path) -> object:
    text = (RULE + SECOND).replace("return x\n", "return aten.clamp_min.default(x, 0)\n", 1)
    return relations_of(parse_book(text, "book.yaml").rules).found


@provokes("EK244")
def rules_that_both_match(_: Path) -> object:
    text = RULE.replace("return x\n", "return aten.clamp_min.default(x, 0)\n") + SECOND.replace(
        "  replace:", "  where: rank(x) < 9\n  replace:"
    )
    return relations_of(parse_book(text, "book.yaml").rules).notes


@provokes("EK245")
def rules_that_undo_each_other(_: Path) -> object:
    back = SECOND.replace("relu", "neg").replace("return x\n", "return aten.relu.default(x)\n")
    text = RULE.replace("return x\n", "return aten.neg.default(x)\n") + back
    (one,) = relations_of(parse_book(text, "book.yaml").rules).found
    return one.model_copy(update={"notes": one.notes[:1]})


@provokes("EK246")
def rule_that_moves_a_call(_: Path) -> object:
    moved = RULE.replace("aten.relu.default(x)", "aten.relu.default(aten.neg.default(x))")
    text = moved.replace("return x\n", "return aten.neg.default(aten.relu.default(x))\n")
    return relations_of(parse_book(text, "book.yaml").rules).notes


@provokes("EK248")
def measure_that_does_not_decrease(_: Path) -> object:
    text = RULE.replace(
        "return x\n", "return aten.clamp_min.default(aten.clone.default(x), 0)\n  measure: node_count\n"
    )
    return relations_of(parse_book(text, "book.yaml").rules).found


def editor() -> GraphEditor:
    """Return an editor of relu(x)."""
    return GraphEditor(copy_program(exported(torch.relu, torch.ones(2))))


DEMANDS = """propagation: 1
id: test.needed
demands: ranges
transfer:
- ops: [aten.relu.default]
  needs: {self: "[0, 1]"}
shorten:
- ops: [aten.relu.default]
  call: return self
"""


def trials_of(text: str) -> list[Diagnostic]:
    """Return what trials of an analysis find."""
    return check_propagation(parse_analysis(text, "analysis.yaml"), trials=12).found


@provokes("EK257")
def need_that_is_too_small(_: Path) -> object:
    (found,) = [one for one in trials_of(DEMANDS) if one.code == "EK257"]
    return found.model_copy(update={"notes": ()})


@provokes("EK258")
def shorter_call_that_is_another(_: Path) -> object:
    (found,) = [one for one in trials_of(DEMANDS) if one.code == "EK258"]
    return found.model_copy(update={"notes": ()})


@provokes("EK259")
def note_of_a_grid(_: Path) -> object:
    return trials_of(
        "propagation: 1\nid: test.notes\nuses: quantize.grids\nwrite: {attribute: q, fields: {all: grid(x)}}\n"
    )


@provokes("EK250")
def rules_in_a_cycle(_: Path) -> object:
    back = RULE.partition("rules:\n")[2].replace("my-rule", "back").replace("relu", "neg")
    text = RULE.replace("return x\n", "return aten.neg.default(x)\n") + back.replace(
        "return x\n", "return aten.relu.default(x)\n"
    )
    return RuleEngine(parse_book(text).require_valid().rules).run(editor())


@provokes("EK251")
def rule_that_changes_a_shape(_: Path) -> object:
    text = RULE.replace("return x\n", "return aten.unsqueeze_copy.default(x, 0)\n")
    rules = parse_book(text, "book.yaml").require_valid().rules
    return RuleEngine(rules).run(editor(), RewriteOptions(is_strict=True))
