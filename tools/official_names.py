"""What the wheel's backends, extensions and examples import from `executorch.exir`, and the counterparts here.

python -m tools.official_names           # writes docs/reference/official_names.md
python -m tools.official_names --check   # says whether the page is up to date
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import exirkit
from exirkit.exir import OFFICIAL, Absence, Home, Mention, counterpart, mentions_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "official_names.md"
FOLDERS = ("backends", "extension", "examples")

HEAD = """# Names of `executorch.exir`

What the backends, extensions and examples in the wheel of ExecuTorch {version} import from `executorch.exir` is, in
practice, the interface of pass authors. This page lists each name, how many files import it, and its counterpart.
`exirkit.exir` has the same tree of modules: `from exirkit.exir.pass_base import ExportPass` gives the class that the
table names, and [`exirkit migrate`](../how_to/official_backends.md#their-code-on-exirkit) rewrites the imports of a
folder.

{names} names, {imports} imports; **{present} names and {share:.1%} of the imports have a counterpart**. A name that has
none raises EK757 where it is imported, with what to use instead.

`python -m tools.official_names` writes this page, and a test checks it.
"""


@dataclass(frozen=True)
class NameUse:
    """How one name is used.

    Attributes:
        mention: The name; its line means nothing.
        imports: How many imports name it.
        files: How many files do.
        place: Its counterpart, or why it has none.
    """

    mention: Mention
    imports: int
    files: int
    place: Home | Absence | None


def wheel() -> Path | None:
    """Return the folder of the official package, or None where it is not installed."""
    found = find_spec("executorch")
    return Path(next(iter(found.submodule_search_locations or ()))) if found is not None else None


def uses(root: Path) -> list[NameUse]:
    """Return how the names are used, in order of modules and names.

    Args:
        root: Folder of the official package.
    """
    imports: dict[Mention, int] = defaultdict(int)
    files: dict[Mention, set[Path]] = defaultdict(set)
    for path in _sources(root):
        for one in mentions_of(ast.parse(path.read_bytes())):
            if one.is_import:
                key = Mention(0, one.module, one.name, True)
                imports[key] += 1
                files[key].add(path)
    return [NameUse(one, imports[one], len(files[one]), counterpart(one)) for one in sorted(imports)]


def _sources(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob("*.py"))


def share(found: list[NameUse]) -> float:
    """Return which part of the imports has a counterpart."""
    return sum(one.imports for one in found if isinstance(one.place, Home)) / sum(one.imports for one in found)


def page(found: list[NameUse]) -> str:
    """Return the page."""
    here = [one for one in found if isinstance(one.place, Home)]
    head = HEAD.format(
        version=version("executorch"),
        names=len(found),
        imports=sum(one.imports for one in found),
        present=len(here),
        share=share(found),
    )
    lines = [head, "## Names with a counterpart", "", "| module | name | files | counterpart |", "|---|---|---|---|"]
    lines += [f"| `{_module(one)}` | {_name(one)} | {one.files} | `{_shown(one)}` |" for one in here]
    lines += ["", "## Names without", "", "| module | name | files | why | instead |", "|---|---|---|---|---|"]
    for one in found:
        if not isinstance(one.place, Home):
            why = one.place or Absence("not decided", "")
            lines.append(f"| `{_module(one)}` | {_name(one)} | {one.files} | {why.reason} | {why.instead} |")
    return "\n".join(lines) + "\n"


def _module(use: NameUse) -> str:
    return f"exir.{use.mention.module}" if use.mention.module else "exir"


def _name(use: NameUse) -> str:
    return f"`{use.mention.name}`" if use.mention.name else "(the module)"


def _shown(use: NameUse) -> str:
    """Return where users import the counterpart from: the front door, or the tree."""
    home = use.place
    assert isinstance(home, Home)
    if not home.name or home.module.startswith("exirkit.exir."):
        return use.mention.qualified.replace(OFFICIAL, "exirkit.exir", 1)
    return f"exirkit.{home.name}" if home.name in exirkit.__all__ else str(home)


def main() -> int:
    root = wheel()
    if root is None:
        print("the executorch wheel is not installed")
        return 2
    text = page(uses(root))
    if "--check" in sys.argv:
        return int(text != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")
    print(text.split("\n\n")[2])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
