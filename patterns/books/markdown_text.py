"""Text of any origin inside Markdown: it shows as it is, and makes no headings, links or markup of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|])")


def plain(text: str) -> str:
    """Return text on one line that is shown as it is; what stands in single backticks is code."""
    parts = re.split(r"(`[^`\n]+`)", " ".join(text.split()))
    return "".join(part if at % 2 else _SPECIAL.sub(r"\\\1", part) for at, part in enumerate(parts))


def code(text: str) -> str:
    """Return text as code inside a line; a table may be around it."""
    text = " ".join(text.split())
    ticks = "`" * (_longest_ticks(text) + 1)
    padded = f" {text} " if text.startswith("`") or text.endswith("`") else text
    return f"{ticks}{padded}{ticks}" if text else ""


def block(text: str, language: str = "python") -> list[str]:
    """Return the lines of a block of code."""
    fence = "`" * max(3, _longest_ticks(text) + 1)
    return [f"{fence}{language}", *text.rstrip("\n").splitlines(), fence]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; cells are Markdown already."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return lines + [f"| {' | '.join(_cell(one) for one in row)} |" for row in rows]


class Anchors:
    """Anchors of headings, as Markdown viewers make them: one page, in order."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, heading: str) -> str:
        """Return the anchor of the next heading with this text."""
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = self._seen.get(slug, 0)
        self._seen[slug] = count + 1
        return f"{slug}-{count}" if count else slug


def _cell(text: str) -> str:
    # In code a table splits cells at bars as well.
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def _longest_ticks(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
