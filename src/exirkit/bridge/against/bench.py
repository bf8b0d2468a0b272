"""The bench of `exirkit fuzz --against`: passes of the official package beside rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from torch.export import ExportedProgram

from exirkit.fuzz import (
    Analysis,
    CampaignConfig,
    Case,
    Checked,
    Found,
    PatternSource,
    Program,
    RulePatterns,
    attached_path,
    check_program,
    features_of,
    generate_with_pattern,
    pattern_features,
    policy_of,
    program_text,
    reduce,
    rules_of_pipeline,
    skeleton,
    why_idle,
)
from exirkit.ir import Diagnostic, DiagnosticError, UsageError
from exirkit.patterns import CompiledRule

from .comparisons import Comparison, comparisons_of
from .differences import ORACLES, Outcome, differences
from .scripts import script_of
from .subjects import GeneratedSubject, RealSubject, Subject, as_exported, real_programs

# Programs that are tried to reduce one; the official exporter takes a tenth of a second for each.
_TRIALS = 200
# Every so many programs is a random one, with operators that the code of the passes mentions.
_FREE_TURN = 4


@dataclass(frozen=True)
class AgainstCase:
    """A program and what is compared on it.

    Attributes:
        number: Of the comparison.
        program: A generated program, or None.
        model: Name of a real one.
    """

    number: int
    program: Program | None = None
    model: str | None = None


_Case: TypeAlias = Case[AgainstCase]


class AgainstBench:
    """Runs programs through passes of the official package and through rules, and compares what becomes of them.

    The first seeds are real models, each for every comparison; the others take turns with the comparisons. Three of
    four programs have the pattern of one of the rules, or a near miss of it, and others operators that the code of the
    pass mentions.

    Raises:
        ModelError: EK863, there is no such pass; all that is wrong with a book or a pipeline.
        UsageError: EK768, EK766, EK767: there is no such oracle, or a pass or a model cannot be used.
    """

    def __init__(self, config: CampaignConfig) -> None:
        self._config = config
        self._oracles = _oracles(config)
        rules, pipelines = (list(map(attached_path, files)) for files in (config.rules, config.pipelines))
        self.comparisons, self.left_out = comparisons_of(config.against, rules, pipelines)
        if not self.comparisons:
            message = f"{', '.join(config.against)} gives no pass that can be made"
            reasons = tuple(f"{name}: {text}" for name, text in self.left_out.items())
            raise UsageError(Diagnostic(code="EK766", message=message, notes=reasons[:5]))
        self._models = {f"{name}": one for source in config.models for name, one in real_programs(source).items()}
        self._sources = [self._patterns_of(one) for one in self.comparisons]
        self._around = None if config.policy is None else policy_of(config.policy)
        self._rules = {one.id: one for each in self.comparisons for one in _rules_under_test(each)}
        self.parts = [("pass", one.name) for one in self.comparisons] + [("rule", one) for one in self._rules]

    def make(self, seed: int) -> _Case:
        """Return the model or generate the program of a seed."""
        models = list(self._models)
        real = len(models) * len(self.comparisons)
        if seed < real:
            number, place = divmod(seed, len(models))
            name = models[place]
            steps = sum(node.op == "call_function" for node in self._models[name].graph.nodes)
            return Case(seed, AgainstCase(number, model=name), f"# {name}\n", steps, frozenset({"real model"}))
        turn, number = divmod(seed - real, len(self.comparisons))
        is_free = turn % _FREE_TURN == _FREE_TURN - 1 or not self._sources[number]
        policy = self._around or (self.comparisons[number].policy if is_free else None)
        # Programs of turns with a pattern are counted on their own, so that none of its ways is left out.
        patterned = turn - turn // _FREE_TURN
        made = generate_with_pattern(turn if is_free else patterned, [] if is_free else self._sources[number], policy)
        program = made.program if self.comparisons[number].is_on_edge else as_exported(made.program)
        steps = sum(len(method.steps) for method in program.methods)
        features = frozenset(features_of(program)) | pattern_features(made)
        return Case(seed, AgainstCase(number, program), program_text(program), steps, features)

    def check(self, case: _Case) -> Checked:
        """Run the passes and the rules, and compare."""
        comparison = self.comparisons[case.program.number]
        outcome = differences(self.subject(case.program), comparison, self._oracles)
        features = {f"fires:{name}" for name, count in outcome.fired.items() if count}
        features |= {f"changes:{comparison.name}"} if outcome.theirs_changed else set()
        features |= {f"failed:{comparison.name}"} if outcome.found else set()
        counts = {one.bucket.partition(" | ")[0]: 1 for one in outcome.found}
        failures = tuple(_first_of_each(outcome))
        if outcome.unsupported is not None:
            symptom, text = outcome.unsupported
            failures = (Found(oracle="official exporter", symptom=symptom, message=text, bucket=symptom),)
        return Checked(
            "unsupported" if outcome.unsupported is not None else "failed" if failures else "passed",
            failures,
            compared=outcome.compared,
            not_run=outcome.not_run,
            features=frozenset(features),
            counts=counts,
        )

    def analyse(self, case: _Case, number: int) -> Analysis:
        """Reduce a program, and write a script."""
        given = case.program
        comparison = self.comparisons[given.number]
        found = self.check(case).failures[number]
        culprit = "rules" if found.oracle == "our-results" else comparison.name
        if given.program is None:
            note = f"{given.model} is a model, which is not reduced"
            return Analysis(seed=case.seed, number=number, bucket=found.bucket, culprit=culprit, note=note)
        small = reduce(given.program, lambda one: self._is_alike(one, given.number, found.bucket), trials=_TRIALS)
        again = [
            one
            for one in differences(GeneratedSubject(small), comparison, self._oracles).found
            if one.bucket == found.bucket
        ]
        return Analysis(
            seed=case.seed,
            number=number,
            bucket=f"{found.bucket} | {skeleton(small)}",
            culprit=culprit,
            reduced=program_text(small),
            repro=script_of(small, again[0] if again else found, comparison, self._config),
            note=None if again else "the reduced program does not fail again: something is not deterministic",
        )

    def why_idle(self, name: str) -> list[str]:
        """Return why a rule never fired, as far as that is known."""
        return why_idle(self._rules[name]) if name in self._rules else []

    def subject(self, case: AgainstCase) -> Subject:
        """Return a case as programs and inputs."""
        if case.program is not None:
            return GeneratedSubject(case.program)
        programs: Mapping[str, ExportedProgram] = {"forward": self._models[str(case.model)]}
        return RealSubject(programs)

    def _is_alike(self, program: Program, number: int, bucket: str) -> bool:
        try:
            check_program(program)
            outcome = differences(GeneratedSubject(program), self.comparisons[number], self._oracles)
        except DiagnosticError:
            return False
        return any(one.bucket == bucket for one in outcome.found)

    @staticmethod
    def _patterns_of(comparison: Comparison) -> list[PatternSource]:
        return [RulePatterns(one) for one in _rules_under_test(comparison)]


def _rules_under_test(comparison: Comparison) -> list[CompiledRule]:
    found = {one.id: one for one in comparison.rules}
    found.update({one.id: one for pipeline in comparison.pipelines for one in rules_of_pipeline(pipeline)})
    return list(found.values())


def _first_of_each(outcome: Outcome) -> list[Found]:
    return list({one.bucket: one for one in reversed(outcome.found)}.values())[::-1]


def _oracles(config: CampaignConfig) -> tuple[str, ...]:
    asked = config.oracles if config.oracles is not None else ORACLES
    unknown = [one for one in asked if one not in ORACLES]
    if unknown:
        raise UsageError(
            Diagnostic(code="EK768", message=f"there is no oracle {unknown[0]!r}", expected=", ".join(ORACLES))
        )
    return tuple(asked)
