"""Diagnostics of pipeline files before anything runs: place, reason, and what was probably meant."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exirkit.ir import Diagnostic, GraphEditor, ModelError, UsageError
from exirkit.passes import Pass, PassOptions, Pipeline, RegisteredPass, shipped_pipelines, shipped_text

HEAD = "pipeline: 1\nname: mine\ndialect: {from: edge, to: edge}\n"


def complaints(text: str, **options: Any) -> list[Diagnostic]:
    with pytest.raises(ModelError) as caught:
        Pipeline.parse(text, "mine.yaml", **options)
    return list(caught.value.diagnostics)


def only(text: str, **options: Any) -> Diagnostic:
    (found,) = complaints(text, **options)
    return found


def place(one: Diagnostic) -> tuple[int | None, int | None]:
    return one.location.line, one.location.column


def stages(*lines: str) -> str:
    return HEAD + "stages:\n" + "".join(f"  {line}\n" for line in lines)


@pytest.mark.parametrize("name", shipped_pipelines())
def test_shipped_files_are_valid_and_can_be_copied(name: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(shipped_text(name))
    assert Pipeline.from_file(file).model == Pipeline.shipped(name).model


def test_a_shipped_pipeline_is_read_once() -> None:
    assert Pipeline.shipped("to_edge") is Pipeline.shipped("to_edge")
    with pytest.raises(UsageError, match="EK478"):
        Pipeline.shipped("to_egde")


def test_an_unknown_pass() -> None:
    found = only(stages("- pass: eliminate-ded-code"))
    assert (found.code, *place(found), found.location.span) == ("EK472", 5, 11, len("eliminate-ded-code"))
    assert found.hint == "did you mean eliminate-dead-code?"


def test_all_that_is_wrong_is_said_at_once() -> None:
    found = complaints(
        stages(
            "- {pass: lift-constnats}",
            "- {check: edge-dialekt, when: not skip-dim-ordr}",
            "- {rules: canonicalise}",
            "- {pass: lift-constants, requires: spces, ensures: [no-viws], after: promote-tipes}",
        )
    )
    hints = {"lift-constants", "edge-dialect", "skip-dim-order", "canonicalize", "specs", "no-views", "promote-types"}
    assert {one.hint for one in found} == {f"did you mean {name}?" for name in hints}
    assert {one.code for one in found} == {"EK472"}


def test_options_have_types() -> None:
    found = complaints(stages("- pass: separate-outputs", "  options: {skip_dim_order: sometimes, alloc_output: true}"))
    assert [(one.code, place(one)) for one in found] == [("EK473", (6, 31)), ("EK473", (6, 42))]
    assert found[1].hint == "did you mean alloc_graph_output?"


def test_operators_in_options_are_looked_up() -> None:
    line = "- {pass: decompose-to-core, options: {preserve: [aten.silu.default, aten.sillu.default]}}"
    found = only(stages(line))
    assert found.code == "EK473"
    assert "there is no operator aten.sillu.default" in found.message


def test_a_setting_must_exist_and_fit() -> None:
    wrong = "- {pass: separate-outputs, options: {skip_dim_order: {setting: %s}}}"
    assert only(stages(wrong % "skip-dim-ordre")).hint == "did you mean skip-dim-order?"
    assert only(stages(wrong % "preserved-operators")).code == "EK473"
    own = HEAD + "settings: {skip-dim-order: 3}\nstages: [{pass: eliminate-dead-code}]\n"
    assert (only(own).code, place(only(own))) == ("EK471", (4, 28))


def test_only_booleans_are_conditions() -> None:
    found = only(stages("- {pass: eliminate-dead-code, when: preserved-operators}"))
    assert found.message == "there is no condition 'preserved-operators'"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("- {pass: lift-constants, rules: algebra}", "this one has pass and rules"),
        ("- {when: skip-dim-order}", "this one has none of them"),
        ("- {check: edge-dialect, options: {}}", "'options' belongs to stages with 'pass'"),
        ("- {group: one}", "the group 'one' has no 'stages'"),
        ("- {pass: Lift}", "should match pattern"),
        ("- {repeat: [], bound: 3}", "the list 'repeat' is empty"),
        ("- {repeat: [{pass: lift-constants}], bound: 0}", "greater than or equal to 1"),
        ("- {pass: lift-constants, when: a or b}", "should match pattern"),
    ],
)
def test_the_form_of_a_stage(line: str, message: str) -> None:
    found = only(stages(line))
    assert found.code == "EK471"
    assert message in found.message
    assert found.location.line == 5


@pytest.mark.parametrize(
    "text",
    ["a: [", "pipeline: 1\npipeline: 1\n", "a: &x 1\nb: *x\n", "", "a: 1\n" + "#" * (1 << 20), "- !!python/name:os.x"],
)
def test_what_is_not_read(text: str) -> None:
    assert only(text).code == "EK470"


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"pipeline: \xff")
    with pytest.raises(ModelError, match="EK470"):
        Pipeline.from_file(file)


def test_a_requirement_that_nothing_ensures() -> None:
    text = shipped_text("to_edge").replace("      - pass: lift-constants\n", "")
    found = only(text)
    assert found.code == "EK474"
    assert "'constants-lifted', which nothing before it ensures" in found.message
    assert "lift-constants ensures it" in str(found.hint)


def test_a_requirement_that_a_stage_in_between_breaks() -> None:
    text = shipped_text("to_executorch").replace(
        "      - pass: bound-symbolic-shapes\n", "      - rules: canonicalize\n      - pass: bound-symbolic-shapes\n"
    )
    found = next(one.message for one in complaints(text) if "specs" in one.message)
    assert found.startswith(
        "stage 2.11, bound-symbolic-shapes, requires 'specs', which stage 2.10, rules canonicalize,"
    )


def test_what_a_pass_may_break_can_be_overruled() -> None:
    text = shipped_text("to_executorch").replace(
        "      - pass: bound-symbolic-shapes\n",
        "      - {rules: canonicalize, ensures: [specs, outputs-separate, dim-orders-agree]}\n"
        "      - pass: bound-symbolic-shapes\n",
    )
    Pipeline.parse(text)


def test_a_requirement_that_depends_on_a_condition() -> None:
    text = shipped_text("to_edge").replace(
        "- pass: lift-constants\n", "- {pass: lift-constants, when: skip-dim-order}\n"
    )
    found = only(text)
    assert found.code == "EK474"
    assert found.notes == ("where skip-dim-order is false",)


def test_the_end_must_be_of_the_dialect_that_was_promised() -> None:
    text = "pipeline: 1\nname: mine\ndialect: {from: edge, to: executorch}\nstages: [{pass: eliminate-dead-code}]\n"
    found = complaints(text)
    assert {place(one) for one in found} == {(3, 27)}
    assert any("must end with 'out-variants'" in one.message for one in found)


def test_invariants_of_the_files_own() -> None:
    own = HEAD + "invariants: {quantized: weights are integers}\n"
    needs = "- {pass: eliminate-dead-code, requires: quantized}"
    makes = "- {pass: lift-constants, ensures: quantized}"
    Pipeline.parse(f"{own}stages:\n{makes}\n{needs}\n")
    assert only(f"{own}stages:\n{needs}\n{makes}\n").code == "EK474"
    assert only(f"{own}ensures: [quantized]\nstages:\n- pass: lift-constants\n").code == "EK474"
    Pipeline.parse(f"{own}requires: [quantized]\nstages:\n{needs}\n")
    assert only(f"{HEAD}stages:\n{needs}\n").code == "EK472"


def test_the_second_round_of_a_repetition_is_checked() -> None:
    body = "{pass: lift-constants, requires: specs, invalidates: specs}"
    head = HEAD + "requires: [specs]\n"
    Pipeline.parse(f"{head}stages:\n- {body}\n")
    assert only(f"{head}stages:\n- repeat: [{body}]\n").code == "EK474"


def test_order() -> None:
    first, second = "- {pass: lift-constants, after: late}", "- {pass: remove-noops, name: late}"
    found = only(stages(first, second))
    assert (found.code, place(found)) == ("EK475", (5, 12))
    assert found.message == "stage 1, lift-constants, must come after late, which is stage 2"
    Pipeline.parse(stages(second, first))
    Pipeline.parse(stages("- {pass: lift-constants, after: promote-types}"))
    found = only(stages("- pass: eliminate-dead-code", "- {pass: lift-constants, before: eliminate-dead-code}"))
    assert found.message == "stage 2, lift-constants, must come before eliminate-dead-code, which is stage 1"


def test_passes_know_their_order() -> None:
    text = shipped_text("to_edge")
    moved = text.replace("      - pass: promote-types\n", "").replace(
        "      - pass: convert-to-edge-operators\n",
        "      - pass: convert-to-edge-operators\n      - pass: promote-types\n",
    )
    assert {one.code for one in complaints(moved)} == {"EK475"}


def test_too_many_conditions() -> None:
    names = [f"flag{at}" for at in range(9)]
    own = HEAD + "settings: {" + ", ".join(f"{name}: true" for name in names) + "}\n"
    text = own + "stages:\n" + "".join(f"- {{pass: lift-constants, when: {name}}}\n" for name in names)
    assert only(text).code == "EK471"


def test_errors_of_rule_books_point_into_the_book(tmp_path: Path) -> None:
    (tmp_path / "book.yaml").write_text("rulebook: 1\nrules:\n- {id: a.b, match: nothing(, replace: x}\n")
    file = tmp_path / "mine.yaml"
    file.write_text(stages("- rules: book.yaml"))
    with pytest.raises(ModelError) as caught:
        Pipeline.from_file(file)
    assert caught.value.diagnostics[0].location.file == str(tmp_path / "book.yaml")


NEEDS_LAYOUTS = "  - {pass: remove-asserts, requires: [dim-orders-agree]}\n"


class Mark(Pass):
    """A pass of a caller else's."""

    name = "mark"

    class Options(PassOptions):
        text: str = "x"

    def __init__(self, text: str = "x") -> None:
        self.text = text

    def edit(self, editor: GraphEditor) -> None:
        for node in editor.graph.nodes:
            editor.set_meta(node, "mark", self.text)


@dataclass(frozen=True)
class Count(Pass):
    """Its options are its fields, and its facts are attributes."""

    name = "count"
    requires = ("edge-operators",)
    invalidates = ()
    after = ("mark",)

    bound: int
    text: str = "x"
    names: tuple[str, ...] = field(default_factory=tuple)
    seen: list[str] = field(default_factory=list, init=False)

    def edit(self, editor: GraphEditor) -> None:
        self.seen.append(self.text)


def test_options_and_facts_of_a_dataclass() -> None:
    brought = {"count": Count, "mark": Mark}
    (made,) = Pipeline.parse(stages("- {pass: count, options: {bound: 3, names: [a]}}"), passes=brought).passes()
    assert isinstance(made, Count)
    assert (made.bound, made.text, made.names) == (3, "x", ("a",))
    for options, expected in (
        ("{}", "missing key 'bound'"),
        ("{bound: x}", "input should be a valid integer, unable to parse string as an integer"),
        ("{bound: 1, seen: [a]}", "unknown key 'seen'"),
    ):
        assert only(stages(f"- {{pass: count, options: {options}}}"), passes=brought).message == expected
    count = "- {pass: count, options: {bound: 3}}"
    assert "mark" in only(stages(count, "- pass: mark"), passes=brought).message
    # `mark` does not state what it breaks; `count` states that it breaks nothing.
    Pipeline.parse(stages("- check: layouts", count) + NEEDS_LAYOUTS, passes=brought)
    assert only(stages("- check: layouts", "- pass: mark") + NEEDS_LAYOUTS, passes=brought).code == "EK474"


def test_passes_that_the_caller_brings() -> None:
    made = Pipeline.parse(stages("- {pass: mark, options: {text: y}}"), passes={"mark": Mark})
    assert [one.text for one in made.passes() if isinstance(one, Mark)] == ["y"]
    assert only(stages("- {pass: mark, options: {txt: y}}"), passes={"mark": Mark}).hint == "did you mean text?"
    facts = RegisteredPass("mark", lambda given: Mark(), requires=frozenset({"specs"}))
    assert only(stages("- pass: mark"), passes={"mark": facts}).code == "EK474"


def test_single_rules_of_books() -> None:
    pipeline = Pipeline.parse(
        stages("- {rules: [algebra, canonicalize], only: [canonicalize.t-to-permute, simplify.neg-neg-remove]}")
    )
    (stage,) = pipeline.stages
    assert [one.id for one in stage.rules or ()] == ["canonicalize.t-to-permute", "simplify.neg-neg-remove"]
    found = only(stages("- {rules: canonicalize, only: [canonicalize.t-to-permute, canonicalize.t-to-permut]}"))
    assert (found.code, found.hint) == ("EK472", "did you mean canonicalize.t-to-permute?")
    assert "there is no rule 'canonicalize.t-to-permut'" in found.message
