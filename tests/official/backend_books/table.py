"""The page about books of backends, class by class.

`python -m tests.official.backend_books.table` writes docs/reference/backend_books.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.official.backend_books.findings import pass_findings

from exirkit.patterns import (
    BackendClass,
    PackageClasses,
    backend_books,
    backend_classes,
    book_text,
    bucket_verdicts,
    named_books,
    other_backend_classes,
    shipped_books,
)

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "backend_books.md"

_EXTENTS = ("same", "wider", "narrower", "nothing")
_HEAD = """# Books of backends

What backends of the official package (1.5.1) do to programs in Python classes, as rules: `backends/NAME` is the book
of a package. It holds what no general book does, and operators of the target with their definitions. Nothing loads
such a book unless it is named: it is in no level of optimization, and `exirkit rule check` without a book does not
check it.

```
$ exirkit rule list backends/transforms
$ exirkit rule check backends/transforms --strict      # or `backends`, for all of them
$ exirkit lower models.py:make -o model.pte --pipeline backends/transforms
```

`--pipeline backends/NAME` is the chain of the package: a pipeline in the order in which the package runs its classes,
a stage for each class, with the rules that do its work, of general books as well. In Python it is
`Pipeline.from_file("backends/transforms")`, and `load_book("backends/transforms")` is the book. Use the chain rather
than `--rules` for several books at once: like the classes, some rules undo what those of another book do (a view that
becomes an unsqueeze, and the reverse), and a stage applies its own only. After a change to one of them run

```
$ exirkit rule check backends --strict --witnesses patterns/rules/backends/witnesses --update --fast
$ python -m tests.official.backend_books.table
```

The tables list every class of a package that rewrites programs. *Lines there* are those of the class and of the
functions of its file that it uses, *lines here* those of the rules that are named, both without comments, docstrings
and empty lines; a rule that does the work of several classes is counted for each.

| extent | meaning |
|---|---|
| same | the rules do what the class does |
| wider | they do that, and more: other ranks, dtypes, spellings of a call |
| narrower | they do a part of it |
| nothing | no rule does it, for the reason that is given; in brackets what would express it |

Whatever the extent, the rules are only those that `exirkit rule check --strict` accepts: where a class changes
results, they do not follow it, and the remark says so.

"""


_EXPRESSIBLE = {
    "rules": "rules of the language, with what is there or the addition that the remark names",
    "propagation": "a propagation: a lattice of facts about values, its rows, and what it inserts",
    "done": "nothing is left to do here",
    "neither": "neither: it changes results, plans, builds by a procedure, or orders nodes",
}

_BY = {"rules": "by rules", "propagation": "by a propagation", "done": "nothing left", "neither": "not expressible"}

_OTHERS = """
## Other packages

Packages without a book of their own: rules of other books, and passes, that do the work of their classes.

"""

_VERDICTS = """
## Verdicts on buckets

Differences that `exirkit fuzz --against backends/NAME` has found, each with a verdict, which the command prints beside
the bucket: `theirs`, the pass is wrong; `narrower` and `wider`, the rules do less or more on purpose; `equivalent`,
both are right by other calls; `ours`, the rules are wrong. They are kept in
`patterns/rules/backends/verdicts/buckets.yaml`.

"""
_DEFECTS = """
## Defects of the classes

Programs that classes get wrong, found with samples and near misses of the rules that do their work, with generated
programs around the operators that their code mentions (`exirkit fuzz --against`,
[see there](../how_to/fuzzing.md#passes-beside-rules)), and by reading. Each script runs on its own and fails while the
defect is there; `tests/official/backend_books/test_findings.py` runs all of them, and for packages that have a book
the rules on the same programs, whose results they keep. Few programs have what is marked as rare.

"""


def rule_lines() -> dict[str, int]:
    """Return the number of lines of every shipped rule, of general books and of those of backends."""
    books = (*shipped_books(), *named_books(), *backend_books())
    return {rule: lines for name in books for rule, lines in _lines_of(name).items()}


@cache
def _lines_of(name: str) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    rule = None
    for line in book_text(name).splitlines():
        start = re.match(r"- id: (\S+)", line)
        if start:
            rule = start[1]
        elif line and not line.startswith((" ", "#")):
            rule = None
        if rule is not None and line.strip() and not line.strip().startswith("#"):
            found[rule] += 1
    return found


def page() -> str:
    """Return the text of the page."""
    lengths = rule_lines()
    books: dict[str, PackageClasses] = {name: backend_classes(name) for name in backend_books()}
    others = {one.package.removeprefix("executorch/"): one for one in other_backend_classes()}
    parts = [_HEAD, _summary(books, lengths), _coverage([*books.values(), *others.values()])]
    for name, classes in books.items():
        parts.append(f"\n## {name}\n\n`{classes.package}`\n\n" + _entries(classes, lengths))
    parts.append(_OTHERS + _summary(others, lengths))
    for name, classes in others.items():
        parts.append(f"\n### {name}\n\n" + _entries(classes, lengths))
    rows = [
        [
            f"[{one.title}](../upstream/passes/{one.name}.py){' Rare.' if one.is_rare else ''}",
            one.package.removeprefix("executorch/"),
            f"`{one.class_name}`",
        ]
        for one in pass_findings()
    ]
    parts.append(_DEFECTS + _table(["what is wrong", "package", "class"], rows))
    judged = [[f"`{one.bucket.replace('|', '/')}`", one.verdict, one.because] for one in bucket_verdicts()]
    parts.append(_VERDICTS + _table(["bucket", "verdict", "because"], judged))
    return "".join(parts)


def _coverage(every: Sequence[PackageClasses]) -> str:
    """Say what share of the classes that rewrite programs is done or can be said."""
    entries = [one for classes in every for one in classes.entries if one.expressible != "base"]
    done = sum(one.extent != "nothing" for one in entries)
    counts: Counter[str] = Counter(one.expressible for one in entries if one.expressible is not None)
    said = len(entries) - counts["neither"]
    bases = sum(len(classes.entries) for classes in every) - len(entries)
    rows = [["done by rules or passes, all of it or a part", str(done)]]
    rows += [[meaning, str(counts[kind])] for kind, meaning in _EXPRESSIBLE.items()]
    text = f"""
Of {len(entries)} classes that rewrite programs, in these packages and those without a book ({bases} more are bases,
settings and checks), {done} have their work done, all of it or a part.
{said} are expressible, {said / len(entries):.1%}: those, and the ones whose entries say what would express them.

"""
    return text + _table(["what expresses the work of a class", "classes"], rows)


def _entries(classes: PackageClasses, lengths: Mapping[str, int]) -> str:
    rows = [_row(one, lengths) for one in classes.entries]
    return _table(
        ["class", "what it does", "extent", "rules, passes and propagations", "lines there", "lines here", "remark"],
        rows,
    )


def _summary(every: Mapping[str, PackageClasses], lengths: Mapping[str, int]) -> str:
    rows = []
    for name, classes in every.items():
        done = [one for one in classes.entries if one.extent != "nothing"]
        extents: Counter[str] = Counter(one.extent for one in classes.entries)
        rules = {rule for one in done for rule in one.rules}
        rows.append(
            [
                f"[{name}](#{name.replace('/', '')})",
                str(len(classes.entries)),
                *(str(extents[each]) for each in _EXTENTS),
                str(sum(one.lines for one in done)),
                str(sum(lengths[rule] for rule in rules)),
            ]
        )
    columns = ["book", "classes", *_EXTENTS, "lines there, of what is done", "lines here, each rule once"]
    return _table(columns, rows)


def _row(one: BackendClass, lengths: Mapping[str, int]) -> list[str]:
    done_by = [f"`{each}`" for each in one.rules] + [f"pass `{each}`" for each in one.passes]
    done_by += [f"propagation `{each}`" for each in one.propagations]
    here = str(sum(lengths[rule] for rule in one.rules)) if one.rules else ""
    by = f" ({_BY[one.expressible]})" if one.expressible is not None and one.expressible in _BY else ""
    return [f"`{one.name}`", one.does, one.extent + by, " ".join(done_by), str(one.lines), here, one.remark]


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(columns)
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
