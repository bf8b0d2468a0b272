"""Rewrites the imports of Python code from one tree of modules to another, and leaves every other byte as it is."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .mentions import Mention, counterpart, mentions_of
from .names import OFFICIAL, Home

TO_EXIRKIT = {OFFICIAL: "exirkit.exir"}
"""What is rewritten by default: old prefixes of module names, and the new ones."""


@dataclass(frozen=True)
class Migration:
    """What became of one file.

    Attributes:
        before: The file as it was.
        after: The file as it is to be.
        missing: Mentions of names without a counterpart.
        notes: What was left as it is although it may have to change, by line.
    """

    before: bytes
    after: bytes
    missing: tuple[Mention, ...] = ()
    notes: tuple[tuple[int, str], ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether the file is to change."""
        return self.before != self.after


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


def migrate_source(source: bytes, prefixes: Mapping[str, str] = TO_EXIRKIT) -> Migration:
    """Return a Python file with other imports.

    Rewritten are the names of modules in `import` and `from` statements, and dotted names in code that such an import
    made (`executorch.exir.EdgeCompileConfig()` behind `import executorch.exir`). Comments, line ends, encoding and
    layout stay as they are.

    Args:
        source: The file.
        prefixes: New prefixes of names of modules by old ones.

    Raises:
        SyntaxError: The file is not Python of this version.
        UnicodeDecodeError: It is not text of its encoding.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    text = source.decode(encoding)
    tree = ast.parse(text)
    rewriting = _Rewriting(text.encode(), tree, prefixes)
    after = rewriting.result().decode()
    missing: tuple[Mention, ...] = ()
    if OFFICIAL in prefixes:
        missing = tuple(one for one in mentions_of(tree) if not isinstance(counterpart(one), Home))
    ast.parse(after)
    return Migration(source, after.encode(encoding), missing, tuple(sorted(rewriting.notes)))


class _Rewriting:
    """Finds the edits of one file; places are offsets in its bytes as UTF-8, in which syntax trees count columns."""

    def __init__(self, data: bytes, tree: ast.Module, prefixes: Mapping[str, str]) -> None:
        self.data = data
        self.tree = tree
        # The longest prefix of a name counts.
        self.prefixes = dict(sorted(prefixes.items(), key=lambda item: -len(item[0])))
        self.notes: set[tuple[int, str]] = set()
        self._starts = [0]
        for line in data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def result(self) -> bytes:
        edits = sorted({*self._import_edits(), *self._dotted_edits()}, key=lambda edit: (edit.start, edit.end))
        self._note_strings()
        self._note_official_imports()
        pieces, place = [], 0
        for edit in edits:
            pieces += [self.data[place : edit.start], edit.text.encode()]
            place = edit.end
        return b"".join([*pieces, self.data[place:]])

    def _import_edits(self) -> Iterator[_Edit]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    old = self._prefix(alias.name)
                    if old is not None:
                        yield self._prefix_edit(self._start(alias), self._end(alias), old)
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                old = self._prefix(node.module)
                if old is not None:
                    yield self._prefix_edit(self._start(node) + len("from"), self._start(node.names[0]), old)
                else:
                    yield from self._parent_edits(node, node.module)

    def _parent_edits(self, node: ast.ImportFrom, parent: str) -> Iterator[_Edit]:
        """Yield the edits of `from executorch import exir`, which names the module as a member of its package."""
        moved = [alias for alias in node.names if f"{parent}.{alias.name}" in self.prefixes]
        kept = [alias for alias in node.names if alias not in moved]
        lines = [_import_line(alias, self.prefixes[f"{parent}.{alias.name}"]) for alias in moved]
        if not moved:
            return
        start = self._start(node)
        if not kept:
            yield _Edit(start, self._end(node), self._joined(start, lines))
            return
        yield _Edit(start, start, self._joined(start, [*lines, ""]))
        pieces = [
            self.data[self._start(alias) : self._start(node.names[place + 1])]
            for place, alias in enumerate(node.names)
            if alias in kept[:-1]
        ]
        pieces.append(self.data[self._start(kept[-1]) : self._end(kept[-1])])
        yield _Edit(self._start(node.names[0]), self._end(node.names[-1]), b"".join(pieces).decode())

    def _joined(self, start: int, statements: Sequence[str]) -> str:
        """Join statements: as lines of their own where the first begins its line, else on one line."""
        line_start = max(self.data.rfind(b"\n", 0, start), self.data.rfind(b"\r", 0, start)) + 1
        indent = self.data[line_start:start].decode()
        newline = "\r\n" if b"\r\n" in self.data else "\n"
        return (newline + indent if not indent.strip() else "; ").join(statements)

    def _dotted_edits(self) -> Iterator[_Edit]:
        """Yield the edits of dotted names that `import executorch.exir` made, without `as`."""
        bound = self._bound()
        rewritten: set[int] = set()
        for node in ast.walk(self.tree):
            root, name = _root(node), _dotted(node)
            if isinstance(node, ast.Attribute) and root is not None and root.id in bound and name in self.prefixes:
                rewritten.add(id(root))
                if not self._imports_below(name):
                    yield self._import_edit(root.id, self.prefixes[name])
                yield _Edit(self._start(node), self._end(node), self.prefixes[name])
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and not bound.get(node.id, True) and id(node) not in rewritten:
                self.notes.add((node.lineno, f"{node.id} is used, and no import makes that name any more"))

    def _bound(self) -> dict[str, bool]:
        """Return the packages that `import a.b` makes names of, and whether one of these imports stays."""
        bound: dict[str, bool] = {}
        for node in ast.walk(self.tree):
            for alias in node.names if isinstance(node, ast.Import) else ():
                if alias.asname is None:
                    root = alias.name.partition(".")[0]
                    bound[root] = bound.get(root, False) or self._prefix(alias.name) is None
        return bound

    def _import_edit(self, root: str, new: str) -> _Edit:
        """Return the edit that imports a module in front of the first `import` of the package that was used instead."""
        statements = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import)
            and any(alias.asname is None and alias.name.partition(".")[0] == root for alias in node.names)
        ]
        start = min(map(self._start, statements))
        return _Edit(start, start, self._joined(start, [f"import {new}", ""]))

    def _imports_below(self, name: str) -> bool:
        return any(
            isinstance(node, ast.Import)
            and any(alias.asname is None and self._prefix(alias.name) == name for alias in node.names)
            for node in ast.walk(self.tree)
        )

    def _note_strings(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = re.fullmatch(r"[\w.:]+", node.value)
                if named and self._prefix(node.value.replace(":", ".")) is not None:
                    self.notes.add((node.lineno, f"a string names {node.value}"))

    def _note_official_imports(self) -> None:
        """Note imports of other parts of the official package: these import `executorch.exir` themselves."""
        root = OFFICIAL.partition(".")[0]
        for node in ast.walk(self.tree) if OFFICIAL in self.prefixes else ():
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            for name in _modules_of(node, root):
                if name.startswith(f"{root}.") and self._prefix(name) is None:
                    self.notes.add((node.lineno, f"{name} stays, which needs the official package"))

    def _prefix(self, name: str) -> str | None:
        return next((old for old in self.prefixes if name == old or name.startswith(f"{old}.")), None)

    def _prefix_edit(self, start: int, end: int, old: str) -> _Edit:
        """Return the edit of the name of a module between two places; it may have blanks around its dots."""
        blank = rb"(?:\s|\\\r?\n)*"
        found = re.compile(rb"\b" + (blank + rb"\." + blank).join(map(str.encode, old.split("."))) + rb"\b").search(
            self.data, start, end
        )
        assert found is not None, old
        return _Edit(found.start(), found.end(), self.prefixes[old])

    def _start(self, node: ast.expr | ast.stmt | ast.alias) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt | ast.alias) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset


def _modules_of(node: ast.Import | ast.ImportFrom, root: str) -> list[str]:
    """Return the modules that a statement imports; what it takes from the package `root` itself counts as modules."""
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    if node.level or not node.module:
        return []
    return [f"{root}.{one.name}" for one in node.names] if node.module == root else [node.module]


def _import_line(alias: ast.alias, new: str) -> str:
    parent, _, name = new.rpartition(".")
    local = alias.asname or alias.name
    renamed = "" if local == name else f" as {local}"
    return f"from {parent} import {name}{renamed}" if parent else f"import {name}{renamed}"


def _root(node: ast.AST) -> ast.Name | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def _dotted(node: ast.AST) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id if isinstance(node, ast.Name) else "?", *reversed(parts)])
