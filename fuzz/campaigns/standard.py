"""The usual bench: generated programs, the oracles, fault localization and reduction."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from exirkit.fuzz.compilers import Compiler, ExirkitCompiler, compiler_of, drawn_choices
from exirkit.fuzz.examination import Failure, Verdict
from exirkit.fuzz.generation import (
    FLOORS,
    Focus,
    PatternSource,
    Policy,
    ProgramWithPattern,
    RulePatterns,
    features_of,
    generate_with_pattern,
    is_of_corpus,
    program_of,
    require_programs,
    seed_of_choices,
)
from exirkit.fuzz.oracles import DEFAULT_ORACLES, check, oracles_named
from exirkit.fuzz.programs import Program, program_text
from exirkit.fuzz.triage import bucket, localized, repro_script
from exirkit.ir import Diagnostic, UsageError

from .bench import Case, Checked
from .config import Attachment, CampaignConfig
from .idle_rules import why_idle
from .results import Analysis, Found
from .tested_parts import SEED_CORPUS, parts_under_test, pattern_features, seen_features

# Programs that are tried to reduce one.
_TRIALS = 600


class StandardBench:
    """Generates programs by the policy of a campaign, and asks the oracles that it names.

    Raises:
        UsageError: EK830, EK831, EK847, EK870, EK874: an unknown oracle, compiler, focus or policy, or a compiler that
            takes no rules.
        ModelError: All that is wrong with a book or a pipeline.
        OSError: A book or a pipeline cannot be read.
    """

    def __init__(self, config: CampaignConfig) -> None:
        self._config = config
        self._policy = policy_of(config.policy)
        self._oracles = DEFAULT_ORACLES if config.oracles is None else config.oracles
        oracles_named(self._oracles)
        require_programs(self._policy)
        self._compilers = {level: _compiler(config, level) for level in config.optimization_levels}

        # Read here, so that what is wrong with them is one error and not a failure of every program.
        first = next(iter(self._compilers.values()))
        self.parts = parts_under_test(first)
        rules = first.rules_under_test() if isinstance(first, ExirkitCompiler) else []
        self._rules = {one.id: one for one in first.compiled_rules()} if isinstance(first, ExirkitCompiler) else {}
        planted = [one for one in rules if one.pattern.kind not in ("input", "output")]
        self._sources: list[PatternSource] = [RulePatterns(one) for one in planted]
        self._around = None if config.policy is None else self._policy
        # It has neither the patterns of rules under test nor what a policy asks for.
        self._has_corpus = self._around is None and not self._sources
        self._focus = Focus(config.focus) if config.focus else None

    @staticmethod
    def quotas(config: CampaignConfig) -> Mapping[str, float]:
        """Return the share of programs that shall have a feature at least, by feature."""
        # Programs with a focus have what reaches it.
        return {} if config.focus else {**FLOORS, **policy_of(config.policy).shares}

    def make(self, seed: int) -> Case[Program]:
        """Return the program of a seed; the patterns of rules under test are inserted."""
        if self._focus is not None:
            made = ProgramWithPattern(self._focus.program_of(seed))
        elif self._has_corpus:
            made = ProgramWithPattern(program_of(seed))
        else:
            made = generate_with_pattern(seed, self._sources, self._around)
        program = made.program
        steps = sum(len(method.steps) for method in program.methods)
        features = frozenset(features_of(program)) | pattern_features(made)
        if self._focus is None and self._has_corpus and is_of_corpus(seed):
            features |= {SEED_CORPUS}
        return Case(seed, program, program_text(program), steps, features)

    def check(self, case: Case[Program]) -> Checked:
        """Ask the oracles, from cheap to expensive, until one finds something."""
        verdict = self._verdict(case)
        told = verdict.comparisons
        seconds = dict(verdict.seconds)
        compared = told.bitwise + told.tolerant
        not_run = {} if verdict.unsupported else dict(verdict.not_run)
        rest = (seconds, compared, told.bitwise, not_run, seen_features(verdict, case.features))
        if verdict.failures:
            is_ours = verdict.failures[0].oracle == "eager-run"
            found = tuple(found_of(one) for one in _different(verdict.failures))
            return Checked("invalid" if is_ours else "failed", found, *rest)
        if verdict.unsupported is not None:
            reason = Found(
                oracle="compiler", symptom=verdict.unsupported, message="not supported", bucket=verdict.unsupported
            )
            return Checked("unsupported", (reason,), *rest)
        return Checked("passed", (), *rest)

    def analyse(self, case: Case[Program], number: int) -> Analysis:
        """Reduce a program, find the culprit, and write a script."""
        failure = _different(self._verdict(case).failures)[number]
        made, _ = analysed(case.program, failure, self._compiler(case.seed), case.seed, number)
        return made

    def why_idle(self, name: str) -> list[str]:
        """Return why a rule under test never fired, as far as that is known."""
        return why_idle(self._rules[name]) if name in self._rules else []

    def _verdict(self, case: Case[Program]) -> Verdict:
        return check(case.program, compiler=self._compiler(case.seed), oracles=self._oracles, seed=case.seed)

    def _compiler(self, seed: int) -> Compiler:
        compiler = self._compilers[self._config.level_of(seed)]
        if self._config.choices == "drawn" and isinstance(compiler, ExirkitCompiler):
            if self._focus is not None:
                drawn = drawn_choices(compiler, *self._focus.choices_of(seed))
            else:
                drawn = drawn_choices(compiler, seed_of_choices(seed) if self._has_corpus else seed)
            # This oracle has something to say of files for the official runtime only.
            return replace(drawn, kernels="official") if "runtimes-agree" in self._oracles else drawn
        return compiler


def _different(failures: Iterable[Failure]) -> list[Failure]:
    """Return the first failure of each bucket: one bug shows in many runs and outputs."""
    found: dict[str, Failure] = {}
    for one in failures:
        found.setdefault(found_of(one).bucket, one)
    return list(found.values())


def found_of(failure: Failure) -> Found:
    """Return a failure as campaigns keep it, in a bucket that does not need the reduced program."""
    return Found(
        oracle=failure.oracle,
        symptom=failure.symptom,
        message=failure.message,
        stage=failure.stage,
        node=failure.node,
        bucket=" | ".join((failure.oracle, failure.stage or "?", failure.symptom)),
    )


def analysed(
    program: Program, failure: Failure, compiler: Compiler, seed: int, number: int = 0
) -> tuple[Analysis, Failure]:
    """Return everything that can be found out about a failure, and how the reduced program fails."""
    found = localized(program, failure, compiler, seed, trials=_TRIALS)
    small, shown, culprit = found.program, found.failure, found.culprit
    made = Analysis(
        seed=seed,
        number=number,
        bucket=bucket(shown, small, culprit),
        culprit=culprit.part,
        rule=culprit.rule,
        application=culprit.application,
        reduced=program_text(small),
        repro=repro_script(small, shown, compiler=found.compiler, seed=seed, culprit=culprit),
        note=None if found.is_repeated else "the reduced program does not fail again: something is not deterministic",
    )
    return made, shown


_FORMER_FIELDS = {"refused": "unsupported"}


def policy_of(given: Mapping[str, Any] | None) -> Policy:
    """Return the policy that a mapping describes: names of its fields, dtypes by their names in torch.

    Raises:
        UsageError: EK870, it describes none.
    """
    values: dict[str, Any] = {}
    known = {one.name: one for one in fields(Policy)}
    for name, value in (given or {}).items():
        name = _FORMER_FIELDS.get(name, name)
        if name not in known:
            raise _no_policy(f"a policy has no {name!r}", f"fields: {', '.join(known)}")
        usual = getattr(Policy(), name)
        if name == "dtypes" and isinstance(value, list):
            value = tuple(_dtype(one) for one in value)
        elif isinstance(usual, frozenset) and isinstance(value, list):
            value = frozenset(value)
        elif isinstance(usual, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if isinstance(value, Mapping) != isinstance(usual, Mapping) or (
            not isinstance(value, Mapping) and type(value) is not type(usual)
        ):
            raise _no_policy(f"{name} of a policy is {value!r}", f"expected something like {usual!r}")
        values[name] = value
    return Policy(**values)


def _dtype(name: object) -> torch.dtype:
    found = getattr(torch, str(name), None)
    if not isinstance(found, torch.dtype):
        raise _no_policy(f"there is no dtype {name!r}", "names are those of torch: float32, int64, bool ...")
    return found


def _no_policy(message: str, note: str) -> UsageError:
    return UsageError(Diagnostic(code="EK870", message=message, notes=(note,)))


def _compiler(config: CampaignConfig, level: int) -> Compiler:
    if config.target != "exirkit":
        if config.rules or config.pipelines:
            raise _not_taken(config)
        return compiler_of(_importable(config.target))
    pipelines = [attached_path(one) for one in config.pipelines]
    return ExirkitCompiler(
        level=level,
        pipeline=pipelines[0] if len(pipelines) == 1 else pipelines or None,
        rules=tuple(attached_path(one) for one in config.rules),
    )


def _not_taken(config: CampaignConfig) -> UsageError:
    what = "rules" if config.rules else "pipelines"
    return UsageError(
        Diagnostic(
            code="EK874",
            message=f"{what} are for our own chain, and the target is {config.target}",
            hint=f"leave out --target, or let {config.target} apply them itself",
        )
    )


def _importable(target: str) -> str:
    """Return a target with a dotted module: a file is imported like a script, so that its neighbours can be."""
    head, _, name = target.rpartition(":")
    if not head.endswith(".py"):
        return target
    path = Path(head).resolve()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    return f"{path.stem}:{name}"


def attached_path(file: Attachment) -> str:
    """Return where a file is on this machine; one that was sent along is written to a temporary directory."""
    path = Path(file.name)
    if file.text is None or (path.is_file() and path.read_text(encoding="utf-8") == file.text):
        # A script that shows a failure is run anywhere.
        return str(path.resolve()) if file.text is not None else file.name
    digest = hashlib.blake2b(file.text.encode(), digest_size=8).hexdigest()
    directory = Path(tempfile.gettempdir(), f"exirkit-{digest}")
    directory.mkdir(exist_ok=True)
    copy = directory / path.name
    copy.write_text(file.text, encoding="utf-8")
    return str(copy)
