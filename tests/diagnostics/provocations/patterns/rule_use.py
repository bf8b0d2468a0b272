"""Explanations of rules, and rules made from traces."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from tests.diagnostics.programs import exported
from tests.diagnostics.provocation import provokes

from exirkit import ApplyRules, to_edge
from exirkit.ir import Diagnostic, GraphEditor, copy_program
from exirkit.patterns import (
    BodyExample,
    RuleEngine,
    bind_pattern_to_op,
    bisect_rewrites,
    check_book,
    explain_rule,
    load_book,
    parse_book,
    predicate,
    read_witnesses,
    rule_pages,
    stored_rule,
    trace_rule,
    witness_text,
)

BOOK = """rulebook: 1
rules:
- id: my-rule
  vars: {x: "f32 [*S]"}
  match: |
    return aten.relu.default(aten.neg.default(x))
  replace: |
    return aten.clamp_min.default(aten.neg.default(x), 0)
"""


def explained(text: str, node: str | None = None) -> list[Diagnostic]:
    """Explain the rule in relu(x)."""
    rule = parse_book(text, "book.yaml").require_valid().rules[0]
    editor = GraphEditor(copy_program(exported(torch.relu, torch.ones(2))))
    return [one.diagnostic() for one in explain_rule(rule, editor, node).nodes]


@provokes("EK260")
def rule_that_does_not_fire(_: Path) -> object:
    return explained(BOOK)


@provokes("EK261")
def rule_that_fires(_: Path) -> object:
    return explained(BOOK.replace("aten.neg.default(x)", "x"))


@provokes("EK262")
def rule_at_no_node(_: Path) -> object:
    return explained(BOOK, "rellu")


@provokes("EK263")
def books_of_one_name(_: Path) -> object:
    return rule_pages([parse_book(BOOK, "one/book.yaml"), parse_book(BOOK, "two/book.yaml")])


@provokes("EK264")
def literal_of_a_trace(_: Path) -> object:
    return parse_book(BOOK.replace("(x), 0)", "(x), DECIDE(new_clamp_min_min, 0))"), "book.yaml").found


@provokes("EK256")
def body_like_nothing(_: Path) -> object:
    return trace_rule(torch.relu, torch.abs, {"f": BodyExample("body like y")}, rule_id="my-rule")


@provokes("EK265")
def decision_about_nothing(_: Path) -> object:
    return trace_rule(torch.relu, torch.abs, {"x": torch.ones(2)}, rule_id="my-rule", decide={"relu_dim": "any"})


@provokes("EK266")
def function_of_nothing(_: Path) -> object:
    return trace_rule(lambda x: torch.ones(2), torch.abs, {"x": torch.ones(2)}, rule_id="my-rule")


@provokes("EK252")
def program_that_is_bad_already(_: Path) -> object:
    return bisect_rewrites(exported(torch.relu, torch.ones(2)), [], lambda program: False)


@provokes("EK253")
def nothing_to_undo(_: Path) -> object:
    with RuleEngine([]).reversible(GraphEditor(copy_program(exported(torch.relu, torch.ones(2))))) as history:
        return history.undo()


@provokes("EK247")
def rule_with_a_predicate(_: Path) -> object:
    predicate("provoked_is_even", pure=True)(_is_even)
    text = BOOK.replace("  match:", "  where: provoked_is_even(len(S) * 2)\n  match:").replace("clamp_min", "relu")
    return check_book(parse_book(text.replace("(x), 0)", "(x))"), "book.yaml"), trials=5).rules[0].found


def _is_even(n: int) -> bool:
    return n % 2 == 0


@provokes("EK254")
def predicate_with_the_name_of_a_word(_: Path) -> None:
    predicate("rank", pure=True)(_is_even)


@provokes("EK232")
def pattern_for_no_operator(_: Path) -> None:
    bind_pattern_to_op(torch.library.Library("provoked", "FRAGMENT"), "add_relu")(torch.relu)


POWERS = """rulebook: 1
rules:
- id: my-rule
  vars: {x: "f32 [*S]", n: "int in [0, 3]"}
  match: return aten.pow.Tensor_Scalar(aten.abs.default(x), n)
  where: {expr: "n == 2", kind: sound}
  replace: return aten.mul.Tensor(x, x)
"""


def witnesses(scratch: Path) -> Path:
    """Write the witnesses of the book above and return their file."""
    book = parse_book(POWERS, "book.yaml")
    verdict = check_book(book, trials=5).rules[0]
    stored = stored_rule(book.rules[0], book, 0, 5, verdict.near_misses)
    file = scratch / "book.json"
    file.write_text(witness_text([stored]))
    return file


def tried_again(text: str, file: Path) -> object:
    """Check a book with witnesses that were stored."""
    return check_book(parse_book(text, "book.yaml"), trials=5, witnesses=read_witnesses(file)).rules[0].found


@provokes("EK271")
def guard_that_is_called_profit(_: Path) -> object:
    text = POWERS.replace("kind: sound", "kind: profit")
    return check_book(parse_book(text, "book.yaml"), trials=5).rules[0].found


@provokes("EK272")
def witnesses_of_another_text(scratch: Path) -> object:
    return tried_again(POWERS.replace("[0, 3]", "[0, 4]"), witnesses(scratch))


@provokes("EK273")
def witness_that_shows_nothing(scratch: Path) -> object:
    file = witnesses(scratch)
    text = file.read_text()
    for number in range(20):
        file.write_text(re.sub(r'"seed": ?"0:\d+"', f'"seed": "0:{number}"', text))
        found = tried_again(POWERS, file)
        if found:
            return found
    raise AssertionError("every seed gives a witness")


@provokes("EK274")
def file_of_witnesses_that_is_none(scratch: Path) -> object:
    (scratch / "book.json").write_text('{"witnesses": 2}')
    return read_witnesses(scratch / "book.json")


@provokes("EK726")
def attribute_outside_of_a_delegate(_: Path) -> None:
    program = to_edge(exported(lambda x: torch.nn.functional.relu6(x + x), torch.ones(2)))
    program.transform([ApplyRules(load_book("backends/xnnpack"))]).to_executorch()
