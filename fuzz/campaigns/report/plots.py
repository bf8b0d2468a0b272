"""Plots as SVG that stands in a page: no script, no font and no picture comes from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH = 860
_LABEL = 290
_VALUE = 110
_ROW = 22


@dataclass(frozen=True)
class Bar:
    """One bar of a chart.

    Attributes:
        label: At its left.
        value: Its length.
        text: At its right.
        mark: Where to draw a tick, such as a 95th percentile or a quota.
        kind: `good`, `bad` or `plain`.
    """

    label: str
    value: float
    text: str
    mark: float | None = None
    kind: str = "plain"


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Return horizontal bars, one below the other, as an SVG element."""
    room = _WIDTH - _LABEL - _VALUE
    most = max((max(row.value, row.mark or 0) for row in rows), default=0) or 1
    parts = []
    for place, row in enumerate(rows):
        top, middle = place * _ROW, place * _ROW + 15
        width = row.value / most * room
        parts.append(f'<text x="{_LABEL - 8}" y="{middle}" text-anchor="end">{escape(_short(row.label))}</text>')
        parts.append(
            f'<rect class="{escape(row.kind)}" x="{_LABEL}" y="{top + 4}" width="{max(width, 1):.1f}" '
            f'height="{_ROW - 8}">'
            f"<title>{escape(row.label)}: {escape(row.text)}</title></rect>"
        )
        end = width
        if row.mark is not None:
            at = row.mark / most * room
            end = max(end, at)
            parts.append(
                f'<line class="mark" x1="{_LABEL + at:.1f}" x2="{_LABEL + at:.1f}" '
                f'y1="{top + 2}" y2="{top + _ROW - 2}"/>'
            )
        parts.append(f'<text class="value" x="{_LABEL + end + 6:.1f}" y="{middle}">{escape(row.text)}</text>')
    return _svg(title, len(rows) * _ROW, parts)


def line(title: str, points: Sequence[tuple[float, float]], x_text: str, y_text: str) -> str:
    """Return a line from 0 on both axes, as an SVG element."""
    height, left, bottom = 220, 60, 34
    most_x = max((x for x, _ in points), default=0) or 1
    most_y = max((y for _, y in points), default=0) or 1
    plotted = " ".join(
        f"{left + x / most_x * (_WIDTH - left - 20):.1f},{(height - bottom) * (1 - y / most_y) + 8:.1f}"
        for x, y in points
    )
    base = height - bottom + 8
    parts = [
        f'<line class="axis" x1="{left}" y1="8" x2="{left}" y2="{base}"/>',
        f'<line class="axis" x1="{left}" y1="{base}" x2="{_WIDTH - 20}" y2="{base}"/>',
        f'<text x="{left - 6}" y="16" text-anchor="end">{most_y:.3g}</text>',
        f'<text x="{left - 6}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{_WIDTH - 20}" y="{base + 18}" text-anchor="end">{most_x:.3g} {escape(x_text)}</text>',
        f'<text x="{left}" y="{base + 18}">{escape(y_text)}</text>',
        f'<polyline points="{plotted}"/>',
    ]
    return _svg(title, height, parts)


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    inside = "\n".join(parts)
    size = f'viewBox="0 0 {_WIDTH} {max(height, 1)}" width="{_WIDTH}"'
    return f'<svg role="img" {size} aria-label="{escape(title)}">\n{inside}\n</svg>'


def _short(text: str, most: int = 38) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
