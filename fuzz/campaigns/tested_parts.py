"""What a campaign has tested: in how many programs each rule under test fired, and how many each pass changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from exirkit.fuzz.compilers import Compiler, ExirkitCompiler, rules_of_pipeline
from exirkit.fuzz.examination import Verdict
from exirkit.fuzz.generation import WAYS, ProgramWithPattern
from exirkit.ir import Diagnostic
from exirkit.patterns import CompiledRule

# Features that are noted while a program is checked begin so.
FIRES = "fires:"
CHANGES = "changes:"
# And what is inserted in it.
WITH_PATTERN = "pattern:"
NEAR = "near:"
# Noted of a program with the pattern of a rule in which something is wrong: rules that raise are not applied.
FAILED = "failed:"
# And of passes of the shipped pipelines, whatever is under test.
WORKED = "pass:"
# Noted of a program of the seed corpus, which was not made to have a share of the others' features.
SEED_CORPUS = "seed_corpus"

PREFIXES = (FIRES, CHANGES, WITH_PATTERN, NEAR, FAILED)

# Ways in which the pattern of a rule is inserted, one after the other.
_TURNS = len(WAYS)
_SHOWN = 3

Kind = Literal["rule", "interface rule", "pass", "pipeline", "stage"]


class TestedPart(BaseModel):
    """A rule, a pass or a pipeline under test, and how much of it was tested.

    Attributes:
        kind: What it is.
        name: Id of the rule, or name of the pass.
        changed: In how many programs the rule fired, or how many of them the pass changed.
        with_pattern: How many programs have its pattern.
        near: How many programs have a near miss of its pattern.
        failed: How many programs that have its pattern failed, whatever the reason.
        instead: Rules that fired in programs that have its pattern, where it did not, by how many.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    name: str
    changed: int = 0
    with_pattern: int = 0
    near: int = 0
    failed: int = 0
    instead: dict[str, int] = {}

    @property
    def must_change(self) -> bool:
        """Whether it is a finding if it never did anything; stages of a pipeline need not all be used."""
        return self.kind not in ("stage", "interface rule")


def seen_features(verdict: Verdict, inserted: frozenset[str]) -> frozenset[str]:
    """Return what the oracles have seen of the parts under test, as features of the program.

    Args:
        verdict: What they report.
        inserted: The other features of the program.
    """
    whole = [one.removeprefix(WITH_PATTERN) for one in inserted if one.startswith(WITH_PATTERN)]
    fired = {f"{FIRES}{name}" for name, count in verdict.fired.items() if count}
    changed = {f"{CHANGES}{name}" for name, has_changed in verdict.changed.items() if has_changed}
    worked = {f"{WORKED}{name}" for name in verdict.worked}
    return frozenset(fired | changed | worked | {f"{FAILED}{name}" for name in whole if verdict.failures})


def pattern_features(made: ProgramWithPattern) -> frozenset[str]:
    """Return what was inserted in a program, as features of it."""
    if made.source is None:
        return frozenset()
    return frozenset({f"{WITH_PATTERN if made.is_whole else NEAR}{made.source}"})


class Uses:
    """Counts programs by what they have of the parts under test."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.instead: Counter[tuple[str, str]] = Counter()

    def add(self, features: Iterable[str]) -> None:
        """Count a program."""
        found = {kind: [one.removeprefix(kind) for one in features if one.startswith(kind)] for kind in PREFIXES}
        self.counts.update(f"{kind}{name}" for kind, names in found.items() for name in names)
        fired = set(found[FIRES])
        self.instead.update((name, other) for name in found[WITH_PATTERN] if name not in fired for other in fired)

    def of(self, kind: Kind, name: str) -> TestedPart:
        """Return what was counted for a part."""
        instead = Counter({other: count for (one, other), count in self.instead.items() if one == name})
        return TestedPart(
            kind=kind,
            name=name,
            changed=self.counts[f"{FIRES if kind == 'rule' else CHANGES}{name}"],
            with_pattern=self.counts[f"{WITH_PATTERN}{name}"],
            near=self.counts[f"{NEAR}{name}"],
            failed=self.counts[f"{FAILED}{name}"],
            instead=dict(instead.most_common(3)) if kind == "rule" else {},
        )


def parts_under_test(compiler: Compiler) -> list[tuple[Kind, str]]:
    """Return kind and name of all that the user gave our chain: rules, pipelines, their stages and their rules."""
    if not isinstance(compiler, ExirkitCompiler):
        return []
    parts = [(_kind_of(one), one.id) for one in compiler.compiled_rules()]
    for pipeline in compiler.placed_pipelines():
        parts.append(("pipeline", pipeline.name))
        stages = [inner for one in pipeline.stages for inner in one.walk()]
        editing = [one for one in stages if one.registered is not None or one.rules is not None]
        parts += [("stage", f"{pipeline.name}: {one.stage.label}") for one in editing]
        parts += [(_kind_of(one), one.id) for one in rules_of_pipeline(pipeline)]
    return list(dict.fromkeys(parts))


def _kind_of(rule: CompiledRule) -> Kind:
    return "interface rule" if rule.pattern.kind in ("input", "output") else "rule"


def left_out(parts: Sequence[TestedPart]) -> list[Diagnostic]:
    """Return a warning about the rules under test that no program of a campaign can try, if there are any.

    It is an error if nothing else is under test.
    """
    names = [one.name for one in parts if one.kind == "interface rule"]
    if not names:
        return []
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    found = Diagnostic(
        code="EK885",
        severity="error" if len(names) == len(parts) else "warning",
        message=f"not tried, since callers would have to give and take other tensors: {shown}",
        notes=("a campaign compares a program with itself before, called with the same inputs",),
        hint="`exirkit rule check` tries rules about inputs and outputs, with what callers do",
    )
    return [found]


def untested(parts: Sequence[TestedPart], programs: int, reasons: Mapping[str, Sequence[str]]) -> list[Diagnostic]:
    """Return a finding for each part that did nothing in any program.

    Args:
        parts: What was under test.
        programs: How many programs were tried.
        reasons: Why, by the name of the part, as far as that is known.
    """
    idle = [one for one in parts if not (one.changed or one.failed) and one.must_change]
    # Rules take turns: of a large book and few programs, most have not had theirs, which is one finding.
    rules = sum(one.kind == "rule" for one in parts)
    waiting = [one for one in idle if one.kind == "rule" and not (one.with_pattern or one.near)]
    if programs >= rules or len(waiting) < 2:
        waiting = []
    found = [_no_turn(waiting, programs, _TURNS * rules)] if waiting else []
    for one in idle:
        if one in waiting:
            continue
        is_rule = one.kind == "rule"
        notes = list(reasons.get(one.name, ()))
        notes += [f"where its pattern is, rule {name} fired ({count} programs)" for name, count in one.instead.items()]
        verb = "fired in" if is_rule else "changed"
        contained = f"; its pattern was in {one.with_pattern} of them" if is_rule else ""
        found.append(
            Diagnostic(
                code="EK872" if is_rule else "EK873",
                message=f"{one.kind} {one.name} {verb} none of {programs} programs{contained}: nothing was tested",
                notes=tuple(notes),
                hint=_way_out(one),
            )
        )
    return found


def _no_turn(waiting: Sequence[TestedPart], programs: int, enough: int) -> Diagnostic:
    shown = ", ".join(one.name for one in waiting[:_SHOWN])
    more = f" and {len(waiting) - _SHOWN} more" if len(waiting) > _SHOWN else ""
    return Diagnostic(
        code="EK872",
        message=f"{len(waiting)} rules have their patterns in none of {programs} programs: {shown}{more}",
        hint=f"rules take turns, and each is tried in several ways: --seeds {enough}, or a smaller book",
    )


def _way_out(part: TestedPart) -> str:
    if part.kind != "rule":
        return "make programs with what it looks for: a policy such as {operators: [aten.mul.Tensor]}, or more seeds"
    if not part.with_pattern:
        return "more seeds: each program has the pattern of one rule; or a pattern that runs on values of its types"
    return "see `exirkit rule check`, and `exirkit rule explain` for a model in which it should fire"
