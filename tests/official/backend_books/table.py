"""The page about books of backends, class by class.

`python -m tests.official.backend_books.table` writes docs/reference/backend_books.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from tests.official.backend_books.findings import pass_findings

from exirkit.patterns import (
    BackendClass,
    BackendClasses,
    backend_books,
    backend_classes,
    book_text,
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
| nothing | no rule does it, for the reason that is given |

Whatever the extent, the rules are only those that `exirkit rule check --strict` accepts: where a class changes
results, they do not follow it, and the remark says so.

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
    return {rule: lines for name in (*shipped_books(), *backend_books()) for rule, lines in _lines_of(name).items()}


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
    every = {name: backend_classes(name) for name in backend_books()}
    parts = [_HEAD, _summary(every, lengths)]
    for name, classes in every.items():
        rows = [_row(one, lengths) for one in classes.entries]
        parts.append(
            f"\n## {name}\n\n`{classes.package}`\n\n"
            + _table(
                ["class", "what it does", "extent", "rules and passes", "lines there", "lines here", "remark"], rows
            )
        )
    rows = [
        [
            f"[{one.title}](../upstream/passes/{one.name}.py){' Rare.' if one.is_rare else ''}",
            one.package.removeprefix("executorch/"),
            f"`{one.class_name}`",
        ]
        for one in pass_findings()
    ]
    parts.append(_DEFECTS + _table(["what is wrong", "package", "class"], rows))
    return "".join(parts)


def _summary(every: Mapping[str, BackendClasses], lengths: Mapping[str, int]) -> str:
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
    here = str(sum(lengths[rule] for rule in one.rules)) if one.rules else ""
    return [f"`{one.name}`", one.does, one.extent, " ".join(done_by), str(one.lines), here, one.remark]


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(columns)
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
