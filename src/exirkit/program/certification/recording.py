"""Recording what happens in a lowering, for the certificate of the file that it ends in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from exirkit.emit import open_program
from exirkit.ir import Diagnostic, ModelError
from exirkit.passes import ApplyRules, ExecutorchBackendConfig, StageEvent, watching
from exirkit.patterns import CompiledRule, LoadedBook, RuleStanding, Target, is_shipped, load_book, standings
from exirkit.program.managers import ExecutorchProgramManager
from exirkit.program.one_method import kernels_of, target_of
from exirkit.runtime_ref import OperatorRegistry, check_plan_kernels, verify_program
from exirkit.verifiers import check_program

from .document import CertifiedCheck, CertifiedFile, CertifiedPass, CertifiedRule, FileCertificate


class RecordedLowering:
    """What happened in a lowering: passes, applications of rules, and verifiers."""

    def __init__(self) -> None:
        self._runs: Counter[tuple[str, str, str]] = Counter()
        self._changed: Counter[tuple[str, str, str]] = Counter()
        self._applied: Counter[str] = Counter()
        self._rules: dict[str, CompiledRule] = {}
        self._checks: dict[tuple[str, str], CertifiedCheck] = {}

    def see(self, event: StageEvent) -> None:
        """Take note of an event."""
        if event.moment == "end" and event.pipeline:
            # What has to hold at the end of a pipeline has been verified: the run would have ended with an error.
            self._passed("what has to hold at the end", event.pipeline)
        if event.moment != "after":
            return
        key = (event.pipeline, event.number, event.name)
        if event.edit is None:
            self._passed(event.name, event.pipeline)
            return
        self._runs[key] += 1
        self._changed[key] += event.modified
        if isinstance(event.edit, ApplyRules) and event.edit.reports:
            known = {rule.id: rule for rule in event.edit.engine.rules}
            for rule, count in event.edit.reports[-1].applied.items():
                self._applied[rule] += count
                self._rules[rule] = known[rule]

    def certificate(
        self,
        manager: ExecutorchProgramManager,
        path: Path,
        data: Sequence[Path] = (),
        config: ExecutorchBackendConfig | None = None,
    ) -> FileCertificate:
        """Verify what was written, and return its certificate.

        Args:
            manager: What the lowering ended in.
            path: The program file.
            data: Data files that belong to it.
            config: As it was given to `to_executorch`: names the target.

        Raises:
            ModelError: A book of rules cannot be read any more.
            OSError: A file cannot be read.
        """
        for name in sorted(manager.methods):
            self._found("executorch dialect", name, check_program(manager.exported_program(name), "executorch"))
        delegates = self._verify_file(target_of(config or ExecutorchBackendConfig()), path)
        return FileCertificate(
            exirkit=_version("exirkit"),
            torch=str(torch.__version__),
            program=CertifiedFile.of(path),
            data=tuple(CertifiedFile.of(one) for one in data),
            delegates=delegates,
            passes=tuple(
                CertifiedPass(pipeline=at[0], number=at[1], name=at[2], runs=count, changed=self._changed[at])
                for at, count in self._runs.items()
            ),
            rules=tuple(_certified(self._rules, self._applied)),
            verifiers=tuple(self._checks.values()),
        )

    def _verify_file(self, target: Target, path: Path) -> dict[str, tuple[str, ...]]:
        kernels, registry = kernels_of(target), OperatorRegistry()
        with open_program(path) as file:
            try:
                verify_program(file, registry=registry, needs_data=False)
                self._passed("format and semantics", "file")
            except ModelError as error:
                self._found("format and semantics", "file", error.diagnostics)
            else:
                for plan in file.program.execution_plan:
                    if kernels is not None:
                        found = check_plan_kernels(plan, registry, kernels)
                        self._found(f"kernels of {target.name}", plan.name, found)
            plans = file.program.execution_plan
            return {plan.name: tuple(one.id for one in plan.delegates) for plan in plans if plan.delegates}

    def _passed(self, name: str, of: str) -> None:
        self._found(name, of, ())

    def _found(self, name: str, of: str, findings: Iterable[Diagnostic]) -> None:
        codes = tuple(dict.fromkeys(one.code for one in findings if one.severity == "error"))
        self._checks[name, of] = CertifiedCheck(name=name, of=of, findings=codes)


@contextmanager
def recording_lowering() -> Iterator[RecordedLowering]:
    """Record the lowering inside of the block, and verify at the end of each pipeline what has to hold there.

    `record.certificate(manager, path)` verifies the file that was written, and returns its certificate.
    """
    record = RecordedLowering()
    with watching(record.see, verify="end", sees_passes=True):
        yield record


def _certified(rules: Mapping[str, CompiledRule], applied: Mapping[str, int]) -> Iterator[CertifiedRule]:
    known: dict[str, dict[str, RuleStanding]] = {}
    for name in sorted(rules):
        rule = rules[name]
        book = _book_of(rule)
        if book not in known:
            known[book] = standings(load_book(book), book) if is_shipped(book) or Path(book).is_file() else {}
        standing = known[book].get(name) or standings(LoadedBook(None, book, [rule]), book)[name]
        proof = standing.certificate if standing.status in ("proved", "bounded") else None
        yield CertifiedRule(
            rule=name,
            book=book,
            hash=standing.hash,
            status=standing.status,
            applied=applied[name],
            samples=standing.samples,
            seed=standing.seed,
            ranks="" if proof is None else proof.ranks,
            arithmetic="" if proof is None else proof.arithmetic,
            digest="" if proof is None else proof.digest,
        )


def _book_of(rule: CompiledRule) -> str:
    """Return the name of the shipped book that has a rule, or the file that it comes from."""
    file = rule.texts.rule.file or f"<rule {rule.id}>"
    name = file.removesuffix(".yaml")
    if is_shipped(name) and any(one.rule == rule.rule for one in load_book(name).rules):
        return name
    return file


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
