"""What a report shows, as one document of plain lists and objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exirkit.emit import PteFile
from exirkit.ir import is_users_file
from exirkit.patterns import CompiledRule, RewriteReport
from exirkit.program import ExecutorchProgramManager
from exirkit.visualization.memory_map import MethodMap, memory_map_of_manager
from exirkit.visualization.sizes import ProgramSizes, program_sizes, sizes_of_manager

from .file_stage import file_stages
from .overlays import Measured, Overlay
from .recording import LoweringRecord, RecordedStage, changes_between
from .rows import RowTable

_MOST_REJECTIONS = 2000
_MOST_FILE_LETTERS = 400_000


@dataclass(frozen=True)
class ReportOptions:
    """What a report says besides the stages.

    Attributes:
        title: What it is a report of.
        facts: What is to be said about the run: versions, options, by name.
        times: Nanoseconds by instruction.
        gaps: Distance from eager PyTorch by instruction or node.
        measure: What the gaps are.
        failure: Findings that ended the lowering, as text.
        with_sources: Whether files of the model are shown.
    """

    title: str = "program"
    facts: Mapping[str, str] = field(default_factory=dict)
    times: Overlay = field(default_factory=dict)
    gaps: Overlay = field(default_factory=dict)
    measure: str = "numeric gap"
    failure: Sequence[str] = ()
    with_sources: bool = True


def report_document(
    record: LoweringRecord, manager: ExecutorchProgramManager | None, options: ReportOptions
) -> dict[str, Any]:
    """Return all that a report shows.

    Args:
        record: What was done to the programs.
        manager: What became of them; None if the lowering failed.
        options: What else to say.

    Raises:
        ProgramVerifyError: EK601 to EK626, the emitted program is wrong.
        ModelError: EK667, a method is too large.
    """
    memory = {} if manager is None else {one.name: one for one in memory_map_of_manager(manager).methods}
    paths = {
        name: record.stages(name, None if manager is None else manager.exported_program(name))
        for name in record.methods
    }
    writer = _Writer(record.table)
    methods = [writer.method(name, stages, memory.get(name), options) for name, stages in sorted(paths.items())]
    # Texts, rows and places come last: what is written before may add to them.
    rules = {name: _rule(rule) for name, rule in sorted(record.rules.items())}
    return _document(
        record.table, methods, {} if manager is None else _sizes(sizes_of_manager(manager)), options, rules
    )


def file_document(file: PteFile, options: ReportOptions) -> dict[str, Any]:
    """Return all that a report of a program file shows: its instructions, as one stage.

    Args:
        file: The program; it is checked first.
        options: What else to say; measured numbers are those of its instructions.

    Raises:
        ProgramVerifyError: EK601 to EK626, the program is wrong.
        ModelError: EK667, a method is too large.
    """
    table = RowTable()
    stages = file_stages(file, table)
    writer = _Writer(table)
    methods = [writer.method(name, [stage], memory, options) for name, (stage, memory) in sorted(stages.items())]
    return _document(table, methods, _sizes(program_sizes(file.program)), options, {})


def _document(
    table: RowTable,
    methods: list[dict[str, Any]],
    sizes: dict[str, list[list[Any]]],
    options: ReportOptions,
    rules: dict[str, Any],
) -> dict[str, Any]:
    rows = list(table.rows)
    return {
        "version": 1,
        "title": options.title,
        "facts": dict(options.facts),
        "failure": list(options.failure),
        "measure": options.measure,
        "methods": methods,
        "sizes": sizes,
        "rules": rules,
        "texts": list(table.texts),
        "rows": {name: [row[at] for row in rows] for at, name in enumerate(rows[0]._fields)} if rows else {},
        "handles": [list(one) for one in table.handles],
        "delegates": [[one, backend, list(inside)] for one, (backend, inside) in table.delegates.items()],
        "places": [list(one) for one in table.places],
        "modules": [list(one) for one in table.modules],
        "files": _files(table) if options.with_sources else {},
    }


class _Writer:
    """Writes methods."""

    def __init__(self, table: RowTable) -> None:
        self._table = table

    def method(
        self, name: str, stages: Sequence[RecordedStage], memory: MethodMap | None, options: ReportOptions
    ) -> dict[str, Any]:
        """Return the document of a method."""
        entity_of = [row.entity for row in self._table.rows]
        written: list[dict[str, Any]] = []
        before: Sequence[int] = ()
        for stage in stages:
            written.append(self._stage(stage, before, entity_of))
            before = stage.rows
        return {
            "name": name,
            "stages": written,
            "memory": None if memory is None else _memory(memory),
            "times": [_measured(one) for one in options.times.get(name, ())],
            "gaps": [_measured(one) for one in options.gaps.get(name, ())],
        }

    def _stage(self, stage: RecordedStage, before: Sequence[int], entity_of: Sequence[int]) -> dict[str, Any]:
        changes = changes_between(entity_of, before, stage.rows)
        document: dict[str, Any] = {
            "name": stage.name,
            "number": stage.number,
            "pipeline": stage.pipeline,
            "doc": stage.doc,
            "modified": stage.modified,
            "counts": [changes.added, changes.removed, changes.changed, changes.moved],
            "nodes": len(stage.rows),
            "delta": _delta(before, stage.rows),
        }
        if stage.place is not None:
            document["place"] = stage.place
        if stage.report is not None:
            document |= self._rules_of(stage.report)
        return document

    def _rules_of(self, report: RewriteReport) -> dict[str, Any]:
        text = self._table.text
        applications = [
            [
                text(one.rule),
                one.number,
                text(one.graph),
                [text(name) for name in one.before],
                [text(name) for name in one.after],
                [text(f"{name} = {value}") for name, value in one.bindings.items()],
            ]
            for one in report.journal
        ]
        rejections = [
            [text(one.rule), text(one.graph), text(one.node), text(one.reason)]
            for one in report.rejections[:_MOST_REJECTIONS]
        ]
        tried = {
            name: [one.tried, one.matched, one.applied]
            for name, one in sorted(report.statistics.items())
            if one.matched or one.applied
        }
        return {
            "applications": applications,
            "rejections": rejections,
            "rejected": len(report.rejections),
            "statistics": tried,
        }


def _delta(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """Return a list of rows as what to take from another one.

    `0, start, count` takes rows of the other list; `1, count, row, row ...` are rows that it has not.
    """
    if not before:
        return [1, len(after), *after]
    if before is after:
        return [0, 0, len(after)]
    places = {row: at for at, row in enumerate(before)}
    found: list[int] = []
    at = 0
    while at < len(after):
        start = at
        place = places.get(after[at])
        if place is None:
            while at < len(after) and after[at] not in places:
                at += 1
            found += [1, at - start, *after[start:at]]
            continue
        while at < len(after) and places.get(after[at]) == place + at - start:
            at += 1
        found += [0, place, at - start]
    return found


def _memory(memory: MethodMap) -> dict[str, Any]:
    """Return a memory plan as columns, and the instructions."""
    return {
        "arenas": [one.model_dump() for one in memory.arenas],
        "values": [
            [
                one.name, one.type, one.kind, one.arena, one.offset, one.nbytes,
                [step for span in one.spans for step in span], one.producer, list(one.readers),
            ]
            for one in memory.values
        ],
        "steps": [[one.text, one.node, one.module] for one in memory.steps],
    }  # fmt: skip


def _sizes(sizes: ProgramSizes) -> dict[str, list[list[Any]]]:
    """Return what takes space in the constants of the file."""
    return {
        title: [[one.name, one.nbytes, one.constants, one.calls] for one in entries]
        for title, entries in (
            ("by module", sizes.by_module),
            ("by operator", sizes.by_operator),
            ("by dtype", sizes.by_dtype),
        )
    }


def _measured(one: Measured) -> list[Any]:
    return [one.instruction, one.node, one.value, one.note]


def _rule(rule: CompiledRule) -> dict[str, Any]:
    """Return the definition of a rule."""
    head = rule.texts.rule
    return {
        "doc": rule.rule.doc or "",
        "kind": rule.rule.kind or "",
        "links": list(rule.rule.links),
        "exact": rule.rule.equiv.is_exact,
        "file": _short_file(head.file) if head.lines else "",
        "line": head.line,
        "text": _text_of_rule(head.line, head.lines) if head.lines else _plain(rule),
    }


def _short_file(file: str | None) -> str:
    """Return the path of a file; for one that comes with exirkit, its place in the package."""
    path = (file or "").replace("\\", "/")
    for mark in ("/exirkit/", "/patterns/rules/"):
        _, found, rest = path.rpartition(mark)
        if found:
            return f"{found.strip('/')}/{rest}"
    return path


def _text_of_rule(line: int, lines: Sequence[str]) -> str:
    """Return the lines of an entry of a YAML list, of which one line is given."""
    first = line - 1
    while first > 0 and not lines[first].lstrip().startswith("- "):
        first -= 1
    indent = len(lines[first]) - len(lines[first].lstrip())
    last = first + 1
    while last < len(lines):
        text = lines[last]
        if text.strip() and len(text) - len(text.lstrip()) <= indent:
            break
        last += 1
    shown = [text[indent:].rstrip() for text in lines[first:last]]
    while shown and (not shown[-1] or shown[-1].lstrip().startswith("#")):
        shown.pop()
    return "\n".join(shown)


def _plain(rule: CompiledRule) -> str:
    """Return a rule that comes from no file."""
    replaced = rule.rule.replace
    cases = [replaced] if isinstance(replaced, str) else [one.replace for one in replaced]
    variables = "".join(f"  {name}: {kind}\n" for name, kind in rule.rule.vars.items())
    return f"id: {rule.id}\nvars:\n{variables}match: {rule.rule.match}\n" + "".join(
        f"replace: {one}\n" for one in cases
    )


def _files(table: RowTable) -> dict[str, str]:
    """Return the files of the model that nodes come from, as far as they can be read here."""
    found = {}
    for path in sorted({one.file for one in table.places}):
        if not is_users_file(path):
            continue
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError, ValueError):
            continue
        if len(text) <= _MOST_FILE_LETTERS:
            found[path] = text
    return found
