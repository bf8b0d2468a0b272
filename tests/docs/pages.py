"""Pages of the documentation as steps: files to write, code and commands to run, and what the commands print.

What a fenced block is follows from its language and first line:

- `python`, `yaml`, `toml`, `json` whose first line is a comment with a file name (`# rules.yaml`): that file;
- `python`: code, run with the names that earlier blocks of the page made;
- `yaml`, `toml`, `json` without a file name: an excerpt, which must parse;
- `sh`: commands; `text` after it: lines that these print, in this order;
- without a language, or `mermaid`: a display, which nothing checks.

Two comments of HTML, which a rendered page does not show, help: `<!-- setup` is Python or a named file that runs first,
and `<!-- not run: REASON -->` leaves out the block that follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])

_PIECE = re.compile(
    r"^<!-- not run: (?P<reason>[^\n]+) -->$"
    r"|^<!-- setup\n(?P<setup>.*?)^-->$"
    r"|^ *```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_NAME = re.compile(r"# (?P<name>[\w./]+\.(py|yaml|toml|json))\n")
_DISPLAYED = ("", "mermaid")
_EXCERPTS = ("yaml", "toml", "json")


@dataclass
class Step:
    """What a reader of a page does.

    Attributes:
        kind: `file`, `code`, `excerpt`, `commands` or `skipped`.
        text: Contents, code, or commands, one a line.
        name: Name of the file, language of an excerpt, or the reason why a block is not run.
        line: Line of the page where the text begins.
        output: Lines that the page shows of what the commands print.
    """

    kind: str
    text: str
    name: str = ""
    line: int = 1
    output: list[str] = field(default_factory=list)


def steps_of(page: str) -> Iterator[Step]:
    """Yield what a reader of a page does, in order.

    Raises:
        ValueError: A block shows the output of nothing, or has a language that pages do not use.
    """
    steps: list[Step] = []
    reason = ""
    for piece in _PIECE.finditer(page):
        if piece["reason"]:
            reason = piece["reason"]
            continue
        kind, text = ("python", piece["setup"]) if piece["setup"] else (piece["kind"], piece["text"])
        line = page.count("\n", 0, piece.start()) + 2
        if kind == "text" and not reason:
            if not steps or steps[-1].kind not in ("commands", "skipped"):
                raise ValueError(f"line {line}: nothing prints this")
            steps[-1].output += text.splitlines()
        elif kind not in _DISPLAYED:
            steps.append(Step("skipped", text, reason, line) if reason else _step(kind, text, line))
        reason = ""
    yield from steps


def _step(kind: str, text: str, line: int) -> Step:
    named = _NAME.match(text)
    if named and kind in ("python", *_EXCERPTS):
        return Step("file", text, named["name"], line)
    if kind == "python":
        return Step("code", text, line=line)
    if kind in _EXCERPTS:
        return Step("excerpt", text, kind, line)
    if kind == "sh":
        return Step("commands", text, line=line)
    raise ValueError(f"line {line}: a block of {kind}; pages use python, sh, text, yaml, toml and json")
