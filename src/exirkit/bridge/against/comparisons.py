"""What a campaign compares: a pass of the official package, or several in a row, and the rules that do their work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from torch.export import ExportedProgram

from exirkit.bridge.incoming import edge_from_official
from exirkit.fuzz import Policy, place_pipelines, rules_of_book, shipped_operators
from exirkit.ir import Diagnostic, ModelError, UsageError
from exirkit.passes import ApplyRules, Pipeline, StageEvent, watching
from exirkit.patterns import (
    BackendClass,
    CompiledRule,
    RewriteReport,
    backend_books,
    backend_classes,
    beside_other_libraries,
    load_book,
    named_books,
    shipped_books,
    with_meanings,
)

from .leeway import Leeway, leeway_of
from .original_passes import OriginalPass, original_pass
from .target_operators import with_operators_of_books, with_operators_of_package

_MENTIONED = re.compile(r"\b(?:edge|ops)\.(aten|quantized_decomposed)\.(\w+)")
# What exporters call, by what it is decomposed to.
_SOURCES: Mapping[str, tuple[str, ...]] = {
    "convolution": ("conv1d", "conv2d", "conv_transpose2d"),
    "addmm": ("linear", "addmm"),
    "native_layer_norm": ("layer_norm",),
    "_native_batch_norm_legit_no_training": ("batch_norm",),
    "native_batch_norm": ("batch_norm",),
    "permute": ("permute", "transpose", "t"),
    "view": ("view", "reshape", "flatten"),
}
_SURROUNDINGS = ("add.Tensor", "mul.Tensor", "relu.default", "view.default", "permute.default")


@dataclass(frozen=True)
class SideResult:
    """What a side made of a program: a pass, or rules.

    Attributes:
        program: The result.
        fired: How often each rule was applied.
        leeway: Where rules with a tolerance were applied.
    """

    program: ExportedProgram
    fired: Mapping[str, int] = field(default_factory=dict)
    leeway: Leeway | None = None


class _AppliedRules:
    """What rules did, in a pipeline and alone, in the order in which they did it."""

    def __init__(self) -> None:
        self.rules: dict[str, CompiledRule] = {}
        self.reports: list[RewriteReport] = []

    def see(self, event: StageEvent) -> None:
        """Take note of a stage that has run."""
        if event.moment == "after" and isinstance(event.edit, ApplyRules):
            self.take(event.edit, event.edit.reports[-1:])

    def take(self, applied: ApplyRules, reports: Sequence[RewriteReport]) -> None:
        """Take note of what rules did."""
        self.rules.update({one.id: one for one in applied.engine.rules})
        self.reports += reports


@dataclass(frozen=True)
class Comparison:
    """One or more passes of the official package, run one after the other, beside rules.

    Attributes:
        originals: The passes.
        rules: The rules that do their work.
        pipelines: Pipelines instead, run one after the other.
        keeps: Operators that lowering to Edge keeps whole.
    """

    originals: tuple[OriginalPass, ...]
    rules: tuple[CompiledRule, ...] = ()
    pipelines: tuple[Pipeline, ...] = ()
    keeps: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Names of the passes."""
        return ", ".join(one.name for one in self.originals)

    @property
    def has_ours(self) -> bool:
        """Whether there is anything to compare the passes with, besides eager PyTorch."""
        return bool(self.rules or self.pipelines)

    @property
    def is_on_edge(self) -> bool:
        """Whether the passes run on Edge programs."""
        return self.originals[0].dialect == "edge"

    @cached_property
    def policy(self) -> Policy:
        """Programs with calls of the operators that the code of the passes mentions."""
        return Policy(
            least_calls=1,
            most_calls=5,
            operators=frozenset(_mentioned(self.originals)),
            shares={"two_symbols": 0.05, "several_methods": 0.0, "mutable_buffer": 0.05},
            rule_patterns=0.0,
            unsupported=True,
        )

    def theirs(self, program: ExportedProgram) -> ExportedProgram:
        """Run the passes, on the operators of their package where a book has defined the same ones beside them.

        Raises:
            Exception: Whatever a pass raises.
        """
        program = with_operators_of_package(program)
        for one in self.originals:
            program = one(program)
        return with_operators_of_books(program)

    def ours(self, program: ExportedProgram) -> SideResult:
        """Apply the rules.

        Raises:
            DiagnosticError: Whatever an engine or a pipeline finds.
        """
        before = program = edge_from_official(program).exported_program() if self.is_on_edge else program
        seen = _AppliedRules()
        with watching(seen.see):
            for pipeline in self.pipelines:
                program = pipeline.run(program).program
        if self.rules:
            applied = ApplyRules(list(self.rules))
            program = applied(program).exported_program
            seen.take(applied, applied.reports)
        fired: Counter[str] = Counter()
        for report in seen.reports:
            fired.update(report.applied)
        journal = [one for report in seen.reports for one in report.journal]
        return SideResult(program, dict(fired), leeway_of(before, list(seen.rules.values()), journal))

    def meant(self, program: ExportedProgram) -> ExportedProgram:
        """Return a program that computes what attributes of the rules mean, whichever side wrote them."""
        attributes = {each.key: each for rule in self.rules for each in rule.attributes.values()}
        return with_meanings(program, attributes.values()) if attributes else program


def comparisons_of(
    against: Sequence[str], rules: Sequence[str] = (), pipelines: Sequence[str] = ()
) -> tuple[list[Comparison], dict[str, str]]:
    """Return what is to be compared, and by the name of a class why it is left out.

    Args:
        against: `MODULE:CLASS` for each pass of a chain; or the name of a backend's book alone: each class of its table
            that rules do the work of, beside these rules.
        rules: Books to compare with; if there is neither a rule nor a pipeline, the rules that the tables of backends
            name for the class.
        pipelines: Files of pipelines, or names of backends' books, likewise.

    Raises:
        ModelError: EK863, there is no such module or class.
        UsageError: EK766, a pass cannot be made.
    """
    books = [one for one in against if one in backend_books()]
    if not books:
        entries = [_entry_of(one) for one in against]
        originals = tuple(
            original_pass(one if "@" in one or entry is None else f"{one}@{entry.runs_on}")
            for one, entry in zip(against, entries, strict=True)
        )
        with beside_other_libraries():
            chosen = tuple(rule for book in rules for rule in rules_of_book(book))
            placed = tuple(place_pipelines(pipelines))
        if not chosen and not placed:
            chosen = tuple(_rules_named(name for one in entries if one is not None for name in one.rules))
        if len({one.dialect for one in originals}) > 1:
            raise UsageError(Diagnostic(code="EK766", message="the passes of a chain run on different dialects"))
        keeps = tuple(dict.fromkeys(name for one in entries if one is not None for name in one.keeps))
        return [Comparison(originals, chosen, placed, keeps)], {}
    if len(against) > 1:
        message = f"{books[0]} stands for all classes of its table, and is compared alone"
        raise UsageError(Diagnostic(code="EK766", message=message))
    made: dict[str, OriginalPass] = {}
    left_out = {}
    for entry in backend_classes(books[0]).entries:
        if not entry.rules:
            left_out[entry.name] = entry.remark or f"done by {', '.join(entry.passes)}"
            continue
        try:
            made[entry.name] = original_pass(f"{_module_of(books[0], entry)}:{entry.name}@{entry.runs_on}")
        except (ModelError, UsageError) as error:
            left_out[entry.name] = error.diagnostics[0].message
    # All modules are imported before any book is read: operators of a target are registered once.
    found = [
        Comparison((made[entry.name],), tuple(_rules_named(entry.rules)), keeps=entry.keeps)
        for entry in backend_classes(books[0]).entries
        if entry.name in made
    ]
    return found, left_out


def _module_of(book: str, entry: BackendClass) -> str:
    path = PurePosixPath(backend_classes(book).package, entry.file).with_suffix("")
    return ".".join(path.parts)


def _entry_of(name: str) -> BackendClass | None:
    """Return what the tables of backends say of a class, which is named with or without a dialect."""
    target = name.partition("@")[0]
    for book in backend_books():
        for entry in backend_classes(book).entries:
            if target == f"{_module_of(book, entry)}:{entry.name}":
                return entry
    return None


_KNOWN: dict[str, list[CompiledRule]] = {}
"""Rules by the ids of the rules of their books, of which some become several."""


def _rules_named(names: Iterable[str]) -> list[CompiledRule]:
    if not _KNOWN:
        with beside_other_libraries():
            for book in (*shipped_books(), *named_books(), *backend_books()):
                for one in load_book(book).require_valid().rules:
                    _KNOWN.setdefault(one.rule.origin, []).append(one)
    return [rule for name in names for rule in _KNOWN[name]]


def _mentioned(originals: Sequence[OriginalPass]) -> set[str]:
    """Return operators of the catalogue that the code of passes mentions, and a few to put around them."""
    words: set[str] = set()
    for one in originals:
        words |= {match[1].removesuffix("_copy") for match in _MENTIONED.finditer(one.source)}
    names = {source for word in words for source in (word, *_SOURCES.get(word, ()))}
    known = {one.name for one in shipped_operators() if one.name.split(".")[1] in names}
    return known | {f"aten.{one}" for one in _SURROUNDINGS}
