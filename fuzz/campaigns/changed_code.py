"""Which functions, rules and rows of analyses differ from a revision, for campaigns that are to reach them."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from exirkit.fuzz.generation import focusable
from exirkit.ir import Diagnostic, UsageError

# Not resolved: folders of the package may be links to others of the repository.
_PACKAGE = Path(__file__).parents[2]
_FILE = re.compile(r"\+\+\+ b/(.*)")
_LINES = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")
_RULE, _ROW = re.compile(r"- id: (\S+)"), re.compile(r"- ops:")
_OPERATOR = re.compile(r"\b\w+\.\w+\.\w+\b")
_PROPAGATIONS = "propagations"


def changed_since(revision: str) -> tuple[str, ...]:
    """Return what differs from a revision and can be asked of a campaign.

    These are `MODULE:FUNCTION`, `rule:ID`, and `analysis:ID:OPERATOR` for rows of analyses.

    Args:
        revision: Of the git repository that exirkit is run from.

    Raises:
        UsageError: EK848, an unknown revision, or nothing that programs reach differs from it.
    """
    options = ("--unified=0", "--no-color", "--no-ext-diff", "--end-of-options", revision, "--")
    diff = _git(f"git does not know what differs from {revision!r}", "diff", *options)
    top = _git("exirkit is not run from a git repository", "rev-parse", "--show-toplevel")
    packages = {one.resolve(): one.name for one in _PACKAGE.iterdir() if one.is_dir()}
    found = dict.fromkeys(_changed(diff, Path(top.strip()).resolve(), packages))
    known = focusable()
    if chosen := tuple(one for one in found if one in known):
        return chosen
    raise _nothing(f"no function or rule that generated programs reach differs from {revision!r}", "")


def _git(message: str, *arguments: str) -> str:
    try:
        run = subprocess.run(["git", "-C", str(_PACKAGE), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise _nothing("git is not installed", "") from None
    if run.returncode:
        raise _nothing(message, run.stderr.strip())
    return run.stdout


def _changed(diff: str, top: Path, packages: dict[Path, str]) -> Iterator[str]:
    path, lines = None, list[range]()
    for line in (*diff.splitlines(), "+++ b/"):
        if name := _FILE.fullmatch(line):
            if path is not None:
                yield from _names(path, lines, packages)
            path, lines = top / name[1], []
        elif place := _LINES.match(line):
            first, count = int(place[1]), int(place[2] or 1)
            # What was taken out stood between two lines.
            lines.append(range(first, first + max(count, 1)))


def _names(path: Path, lines: list[range], packages: dict[Path, str]) -> Iterator[str]:
    package = next((one for one in packages if path.is_relative_to(one)), None)
    if package is None or not path.is_file():
        return
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        parts = path.relative_to(package).with_suffix("").parts
        module = ".".join((packages[package], *parts)).removesuffix(".__init__")
        found = [(f"{module}:{name}", place) for name, place in functions_of(ast.parse(text))]
    elif path.suffix == ".yaml":
        found = list(_entries(path, text.splitlines()))
    else:
        return
    for name, place in found:
        if any(one.start < place.stop and place.start < one.stop for one in lines):
            yield name


def names_with(text: str) -> tuple[str, ...]:
    """Return the rules and rows of analyses in which a text stands, as `changed_since` has them."""
    found: dict[str, None] = {}
    for path in sorted((_PACKAGE / "patterns").rglob("*.yaml")):
        written = path.read_text(encoding="utf-8")
        places = [match.start() for match in re.finditer(re.escape(text), written)]
        lines = [written.count("\n", 0, place) + 1 for place in places]
        if lines:
            entries = _entries(path, written.splitlines())
            found |= {name: None for name, place in entries if any(line in place for line in lines)}
    return tuple(found)


def _entries(path: Path, written: Sequence[str]) -> Iterator[tuple[str, range]]:
    """Yield the rules of a book, or what an analysis knows of operators, with their lines."""
    begins = _ROW if path.parent.name == _PROPAGATIONS else _RULE
    starts = [(match, at) for at, line in enumerate(written, 1) if (match := begins.match(line))]
    ends = [*(at for _, at in starts), len(written) + 1][1:]
    for (match, first), end in zip(starts, ends, strict=True):
        if begins is _RULE:
            yield f"rule:{match[1]}", range(first, end)
            continue
        row = "\n".join(written[first - 1 : end - 1]).partition("\n  result")[0]
        yield from ((f"analysis:{path.stem}:{op}", range(first, end)) for op in _OPERATOR.findall(row))


def functions_of(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, range]]:
    """Yield the functions of a module and its classes, with their lines; what stands in a function is part of it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", range(child.lineno, (child.end_lineno or child.lineno) + 1)
        elif isinstance(child, ast.ClassDef):
            yield from functions_of(child, f"{prefix}{child.name}.")
        else:
            yield from functions_of(child, prefix)


def _nothing(message: str, note: str) -> UsageError:
    return UsageError(
        Diagnostic(
            code="EK848",
            message=message,
            notes=(note,) if note else (),
            expected="a revision of the repository that exirkit is run from, such as main or HEAD~1",
        )
    )
