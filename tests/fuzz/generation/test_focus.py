"""Campaigns with a focus: programs that reach a part of the compiler, and what says which do."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tools.seed_corpus import reaching
from tools.seed_corpus.entries import Entry, number_of

from exirkit.fuzz.campaigns import CampaignConfig, changed_code
from exirkit.fuzz.campaigns.standard import StandardBench
from exirkit.fuzz.compilers import ExirkitCompiler, drawn_choices, unusual_choices
from exirkit.fuzz.generation import Focus, Policy, SeededChoices, features_of, focus, focusable, generate, program_of
from exirkit.fuzz.generation.policy import draw_plan
from exirkit.fuzz.generation.seed_corpus import corpus
from exirkit.fuzz.mutants import Mutant, shipped_mutants
from exirkit.fuzz.mutants.bench import _Programs
from exirkit.fuzz.programs import check_program, program_text
from exirkit.ir import UsageError

RARE = "aten.cummax.default"


def share(feature: str, policy: Policy) -> float:
    return sum(feature in features_of(generate(seed, policy)) for seed in range(40)) / 40


@pytest.mark.parametrize("feature", [f"op:{RARE}", "op:aten.pixel_shuffle.default", "delayed_buffers", "scan"])
def test_programs_have_what_they_are_to_have(feature: str) -> None:
    usual, focused = share(feature, Policy()), share(feature, Policy(focus=frozenset({feature})))
    assert focused > max(0.3, 3 * usual)


def test_an_operator_that_only_samples_have_is_in_most_programs() -> None:
    assert share("op:aten.histc.default", Policy(focus=frozenset({"op:aten.histc.default"}))) > 0.75


def test_half_of_the_programs_with_a_focus_have_nothing_else() -> None:
    focused = Policy(focus=frozenset({"delayed_buffers"}))
    wanted = {"delayed_buffers", "stored", "mutable_buffer"}
    narrow = [draw_plan(SeededChoices(seed), focused).requests <= wanted for seed in range(60)]
    assert 20 < sum(narrow) < 40
    assert not any(draw_plan(SeededChoices(seed), Policy()).requests <= wanted for seed in range(60))


def test_patterns_of_a_rule_are_inserted() -> None:
    rules = {one for one in focusable() if one.startswith("rule:")}
    assert len(rules) > 50
    usual = share("op:aten.sigmoid.default", Policy())
    focused = Policy(focus=frozenset({"rule:simplify.relu-of-sigmoid-drop"}))
    assert focused.focused_rules <= {one.removeprefix("rule:") for one in rules}
    assert share("op:aten.sigmoid.default", focused) > usual + 0.15


def test_what_reaches_functions_is_known() -> None:
    """The table is made from time to time: names may have changed since, but most have not."""
    table = json.loads(focus.FILE.read_text(encoding="utf-8"))
    known = [f"{module}:{name}" for module, entries in table["functions"].items() for name in entries]
    now = {f"{module}:{name}" for module, name in reaching._functions().values()}
    assert len(known) > 2000
    assert len(now.intersection(known)) > 0.9 * len(known)


def test_a_focus_takes_programs_of_the_corpus_and_generated_ones_in_turn() -> None:
    names = ["runtime_ref.kernels.arithmetic"]
    texts = [program_text(Focus(names).program_of(seed)) for seed in range(8)]
    stored = {text for _, text in corpus()}
    assert [text in stored for text in texts] == [True, False] * 4
    assert len(set(texts)) == 8
    assert texts == [program_text(Focus(names).program_of(seed)) for seed in range(8)]
    for seed in range(40):
        check_program(Focus(names).program_of(seed))


def test_the_first_programs_are_those_that_reach_the_function() -> None:
    name = next(
        name for name in sorted(focusable()) if not name.startswith("rule:") and len(Focus([name]).features) > 3
    )
    module, _, function = name.partition(":")
    seeds = json.loads(focus.FILE.read_text(encoding="utf-8"))["functions"][module][function][1]
    assert seeds
    texts = dict(corpus())
    assert program_text(Focus([name]).program_of(0)) == texts[seeds[0]]


def test_packages_modules_and_classes_can_be_named() -> None:
    package, module = Focus(["passes.legalize"]), Focus(["passes.legalize.volumes"])
    assert {*module.features} < {*package.features}
    assert {*Focus(["passes.optimize.fold_constants:KnownValues"]).features} <= {
        *Focus(["passes.optimize.fold_constants"]).features
    }


def test_a_bench_has_the_programs_of_its_focus() -> None:
    names = ("passes.legalize.special_values",)
    bench = StandardBench(CampaignConfig(focus=names))
    assert bench.make(1).text == program_text(Focus(names).program_of(1))
    assert bench.check(bench.make(1)).verdict == "passed"
    assert CampaignConfig().identity("") != CampaignConfig(focus=names).identity("")
    assert StandardBench.quotas(CampaignConfig(focus=names)) == {}


@pytest.mark.parametrize(
    "other", [{"policy": {"dtypes": ["float32"]}}, {"target": "official"}, {"against": ("json:dumps",)}]
)
def test_a_focus_has_programs_of_its_own(other: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="a focus is for our own chain"):
        CampaignConfig(focus=("passes.legalize",), **other)


def test_names_that_nothing_reaches_are_an_error() -> None:
    with pytest.raises(UsageError, match=r"EK847(?s:.*)did you mean.*fold_constants:is_small"):
        Focus(["passes.optimize.fold_constants:is_smal"])
    with pytest.raises(UsageError, match="EK847"):
        Focus(["rule:none-of-that-name"])


def test_choices_that_shall_not_be_the_usual_ones() -> None:
    assert sum("schedule" in unusual_choices(drawn_choices(ExirkitCompiler(), seed)) for seed in range(20)) < 10
    for seed in range(20):
        drawn = drawn_choices(ExirkitCompiler(level=2), seed, {"schedule", "planner"})
        assert {"schedule", "planner"} <= {*unusual_choices(drawn)}
        assert drawn.level == 2
        assert drawn == drawn_choices(ExirkitCompiler(level=2), seed, {"planner", "schedule"})


def test_programs_for_a_mutant_reach_what_it_changes() -> None:
    mutant: Mutant = shipped_mutants()[0]
    known = next(name for name in focusable() if name.startswith("passes.") and Focus([name]).features)
    module, _, function = known.partition(":")
    changed = mutant.model_copy(update={"module": module, "function": function})
    focused, usual = _Programs(changed, is_focused=True), _Programs(changed, is_focused=False)
    assert program_text(usual.program(1)) == program_text(program_of(1))
    assert program_text(focused.program(1)) == program_text(Focus([known]).program_of(1)) != program_text(program_of(1))
    never = mutant.model_copy(update={"function": "no_program_reaches_it"})
    assert program_text(_Programs(never, is_focused=True).program(1)) == program_text(program_of(1))


def test_the_likeliest_features_of_a_function_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = {number_of("rare"): ("passes.one", "Rare.edit"), number_of("usual"): ("passes.one", "usual")}
    monkeypatch.setattr(reaching, "_functions", lambda: outcomes)

    programs = {seed: generate(seed) for seed in range(60)}
    counts = Counter(feature for one in programs.values() for feature in features_of(one) if feature.startswith("op:"))
    rare = next(feature for feature, count in sorted(counts.items()) if 4 <= count <= 8)

    def entry(seed: int) -> Entry:
        reached = {"usual", *(["rare"] if rare in features_of(programs[seed]) else [])}
        return Entry(seed, program_text(programs[seed]), 1.0, "passed", frozenset(map(number_of, reached)))

    pool = [entry(seed) for seed in programs]
    has = [one.seed for one in pool if number_of("rare") in one.reached]
    written = json.loads(reaching.reach_text(pool, pool))
    features, seeds = written["functions"]["passes.one"]["Rare.edit"]
    # Another feature may come with it always.
    best = written["features"][features[0]]
    assert best == rare or [one.seed for one in pool if best in reaching._features(one)] == has
    assert seeds == has[:8]
    assert written["functions"]["passes.one"]["usual"] == [[], []]


def test_what_differs_from_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    (tmp_path / "src/exirkit").mkdir(parents=True)
    (tmp_path / "passes").mkdir()
    (tmp_path / "src/exirkit/passes").symlink_to("../../passes")
    code = tmp_path / "passes/one.py"
    code.write_text(
        "class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n\n\ndef h():\n    pass\n"
    )
    book = tmp_path / "passes/book.yaml"
    book.write_text("rules:\n- id: first\n  doc: a\n- id: second\n  doc: b\n")
    (tmp_path / "other.py").write_text("def f(): pass\n")
    (tmp_path / "passes/no_book.yaml").write_text("a: 1\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "all")
    monkeypatch.setattr(changed_code, "_PACKAGE", tmp_path / "src/exirkit")
    known = {"passes.one:A.f", "passes.one:A.g", "passes.one:h", "rule:first", "rule:second"}
    monkeypatch.setattr(changed_code, "focusable", lambda: known)
    with pytest.raises(UsageError, match=r"EK848\]: no function"):
        changed_code.changed_since("HEAD")
    code.write_text(code.read_text().replace("return 2", "return 3").replace("\ndef h():\n    pass\n", ""))
    book.write_text(book.read_text().replace("doc: b", "doc: c"))
    (tmp_path / "other.py").write_text("def f(): return 1\n")
    (tmp_path / "passes/no_book.yaml").write_text("a: 2\n")
    assert changed_code.changed_since("HEAD") == ("rule:second", "passes.one:A.g")
    with pytest.raises(UsageError, match=r"EK848\]: git does not know"):
        changed_code.changed_since("no-such-revision")


def test_rows_of_analyses_have_their_operators_on_bounded_values() -> None:
    name = "analysis:ranges.elements:aten.constant_pad_nd.default"
    programs = [Focus([name]).program_of(seed) for seed in range(1, 60, 2)]
    calls = [{call.op for call in one.methods[0].steps} for one in programs]
    assert sum({"aten.constant_pad_nd.default", "aten.clamp.default"} <= one for one in calls) > 10


def test_texts_of_rules_and_rows_are_found_by_what_stands_in_them() -> None:
    assert changed_code.names_with("hull(range(self), value)") == (
        "analysis:ranges.elements:aten.constant_pad_nd.default",
        "analysis:ranges.elements:aten.masked_fill.Scalar",
    )
    assert changed_code.names_with("- id: simplify.relu-of-sigmoid-drop\n") == ("rule:simplify.relu-of-sigmoid-drop",)
    assert changed_code.names_with("not in any of them") == ()


def test_operators_of_our_decompositions_are_known_without_a_measurement() -> None:
    name, op = (
        "passes.to_aten.decompositions:attention_backward",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
    )
    assert name in focusable()
    assert f"op:aten.{op}.default" in Focus([name]).features
    programs = [Focus([name]).program_of(seed) for seed in range(1, 40, 2)]
    assert sum(any(op in call.op for call in one.methods[0].steps) for one in programs) > 10
