"""The memory map as one SVG file: bytes upwards, instructions to the right, one shape for each value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from .memory_map import ArenaMap, MappedValue, MemoryMap, MethodMap, live_bytes

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def axis_marks(end: int, most: int, *, binary: bool = False) -> list[int]:
    """Return round numbers from 0 to `end`, at most about `most`: multiples of 1, 2 or 5 times a power.

    Args:
        end: The last number of the axis, at least 1.
        most: How many marks there is room for.
        binary: Powers of two, for bytes, instead of those of ten.
    """
    step = 1
    while end / step > most:
        step = step * 2 if binary else _next_step(step)
    return list(range(0, end + 1, step))


def nbytes_short(nbytes: int) -> str:
    """Return a number of bytes with at most one decimal, `1.5 MiB`."""
    size, unit = float(nbytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def _next_step(step: int) -> int:
    """Return the next of 1, 2, 5, 10, 20, 50 ..."""
    lead = int(str(step)[0])
    return step // lead * {1: 2, 2: 5, 5: 10}[lead]


# In units of the drawing, which are pixels at its natural size.
_LEFT, _RIGHT, _PLOT_WIDTH, _PLOT_HEIGHT, _LIVE_HEIGHT = 92, 28, 1180, 460, 70
_HEAD, _PANEL_HEAD, _PANEL_FOOT, _GAP = 64, 40, 46, 18
_WIDTH = _LEFT + _PLOT_WIDTH + _RIGHT
# Narrower or lower shapes have no room for a name.
_NAME_WIDTH, _NAME_HEIGHT, _LETTER = 40, 11, 5.6
# So many shades of each colour, so that neighbours can be told apart.
_SHADES = 3

_STYLE = """
svg { background: #fff; color: #1c2330; font: 11px system-ui, sans-serif }
text { fill: currentColor } .dim { opacity: .65 } .title { font-size: 17px; font-weight: 600 } .b { font-weight: 600 }
.frame { fill: #f6f7f9; stroke: #c9ced8 } .grid { stroke: #c9ced8; stroke-opacity: .55 }
.v { stroke: #fff; stroke-width: .6; vector-effect: non-scaling-stroke } .n { font-size: 10px; fill: #10151f }
.activation0 { fill: #6ea8dc } .activation1 { fill: #8fc1e8 } .activation2 { fill: #5792cb }
.input0 { fill: #74c08a } .input1 { fill: #93d0a4 } .input2 { fill: #5cae76 }
.output0 { fill: #eda35c } .output1 { fill: #f4bb82 } .output2 { fill: #e08f43 }
.state0 { fill: #b48ad0 } .state1 { fill: #c6a4dd } .state2 { fill: #a274c3 }
.mark { stroke: #c62f43; stroke-dasharray: 5 4; fill: none } .marktext { fill: #c62f43 } .limit { stroke: #1c2330 }
.live { fill: #8792a6; fill-opacity: .55 } .halo { mark-order: stroke; stroke: #fff; stroke-width: 3px }
@media (prefers-color-scheme: dark) {
  svg { background: #14181f; color: #dfe4ee } .frame { fill: #1b212b; stroke: #3b4453 } .grid { stroke: #3b4453 }
  .v { stroke: #14181f } .mark { stroke: #ff7a88 } .marktext { fill: #ff7a88 } .limit { stroke: #dfe4ee }
  .halo { stroke: #14181f }
}
"""


def memory_map_svg(memory_map: MemoryMap) -> str:
    """Return the memory map as SVG: a panel for each arena of each method, one below the other.

    Values have titles, which browsers show on hovering: name, type, place, life and source line.
    """
    panels = [(method, arena) for method in memory_map.methods for arena in method.arenas]
    height = _HEAD + sum(_panel_height() for _ in panels) + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="memory plan of {_text(memory_map.title)}">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{_LEFT}" y="30">{_text(memory_map.title)}</text>',
        *_legend(),
    ]
    top = _HEAD
    for method, arena in panels:
        parts.extend(_Panel(method, arena, top).drawn())
        top += _panel_height()
    if not panels:
        parts.append(f'<text x="{_LEFT}" y="{_HEAD + 10}">no planned memory</text>')
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True)
class _Panel:
    """One arena of one method."""

    method: MethodMap
    arena: ArenaMap
    top: float

    @property
    def _plot_top(self) -> float:
        return self.top + _PANEL_HEAD

    @property
    def _height_nbytes(self) -> int:
        return max(self.arena.nbytes, self.arena.limit or 0, 1)

    def drawn(self) -> Iterator[str]:
        """Yield the elements of the panel, what lies in front last."""
        values = self.method.values_of(self.arena.number)
        yield '<g class="arena">'
        yield from self._words()
        yield (f'<rect class="frame" x="{_LEFT}" y="{self._plot_top}" width="{_PLOT_WIDTH}" height="{_PLOT_HEIGHT}"/>')
        yield from self._byte_axis()
        yield from self._step_axis()
        # Long lives behind short ones: where values share bytes the one that took the place over is to be seen.
        for value in sorted(values, key=lambda value: (value.spans[0][0] - value.spans[-1][1], value.value)):
            yield self._shape(value)
        for value in values:
            yield from self._name(value)
        yield from self._marks()
        yield from self._live(values)
        yield "</g>"

    def _x(self, step: float) -> float:
        return round(_LEFT + _PLOT_WIDTH * step / self.method.step_count(), 2)

    def _y(self, offset: float) -> float:
        return round(self._plot_top + _PLOT_HEIGHT * (1 - offset / self._height_nbytes), 2)

    def _words(self) -> Iterator[str]:
        arena = self.arena
        facts = [
            f"{arena.nbytes:,} bytes",
            f"bound {arena.lower_bound:,}",
            f"waste {arena.waste:,}",
            f"without reuse {arena.total_nbytes:,}",
        ]
        if arena.limit is not None:
            facts.append(f"limit {arena.limit:,}")
        head = f"method {self.method.name}, arena {arena.number}"
        yield f'<text class="b" x="{_LEFT}" y="{self.top + 22}">{_text(head)}</text>'
        yield (
            f'<text class="dim" x="{_LEFT + _PLOT_WIDTH}" y="{self.top + 22}" text-anchor="end">'
            f"{_text(', '.join(facts))}</text>"
        )

    def _byte_axis(self) -> Iterator[str]:
        for mark in axis_marks(self._height_nbytes, 7, binary=True):
            y = self._y(mark)
            yield f'<path class="grid" d="M{_LEFT} {y}h{_PLOT_WIDTH}"/>'
            yield f'<text class="dim" x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{nbytes_short(mark)}</text>'

    def _step_axis(self) -> Iterator[str]:
        y = self._plot_top + _PLOT_HEIGHT + _LIVE_HEIGHT + 10
        for mark in axis_marks(self.method.step_count(), 12):
            yield f'<text class="dim" x="{self._x(mark)}" y="{y + 14}" text-anchor="middle">{mark}</text>'
        yield f'<text class="dim" x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">instruction</text>'

    def _shape(self, value: MappedValue) -> str:
        shade = value.value % _SHADES
        path = "".join(self._rectangle(value, first, last) for first, last in value.spans)
        return (
            f'<path class="v {value.kind}{shade}" d="{path}"><title>{_text(_title(self.method, value))}</title></path>'
        )

    def _rectangle(self, value: MappedValue, first: int, last: int) -> str:
        left, right = self._x(first), self._x(last + 1)
        upper, lower = self._y(value.offset + value.nbytes), self._y(value.offset)
        return f"M{left} {upper}H{right}V{lower}H{left}z"

    def _name(self, value: MappedValue) -> Iterator[str]:
        first, last = max(value.spans, key=lambda span: span[1] - span[0])
        left, right = self._x(first), self._x(last + 1)
        upper, lower = self._y(value.offset + value.nbytes), self._y(value.offset)
        room = int((right - left - 8) / _LETTER)
        if right - left < _NAME_WIDTH or lower - upper < _NAME_HEIGHT or room < 3:
            return
        name = value.name if len(value.name) <= room else value.name[: room - 1] + "…"
        yield f'<text class="n" x="{left + 4}" y="{(upper + lower) / 2 + 3.5}">{_text(name)}</text>'

    def _marks(self) -> Iterator[str]:
        arena = self.arena
        y, x = self._y(arena.lower_bound), self._x(arena.at + 0.5)
        bottom = self._plot_top + _PLOT_HEIGHT
        yield f'<path class="mark" d="M{_LEFT} {y}h{_PLOT_WIDTH}M{x} {self._plot_top}V{bottom + _LIVE_HEIGHT}"/>'
        middle = _LEFT + _PLOT_WIDTH / 2
        anchor, shift = ("start", 6) if x < middle else ("end", -6)
        step = self.method.steps[arena.at].text if self.method.steps else "nothing"
        words = f"most is needed at {arena.at}: {step}"
        yield (
            f'<text class="marktext halo" x="{x + shift}" y="{self._plot_top + 14}" text-anchor="{anchor}">'
            f"{_text(words)}</text>"
        )
        if arena.limit is not None:
            y = self._y(arena.limit)
            yield f'<path class="mark limit" d="M{_LEFT} {y}h{_PLOT_WIDTH}"/>'
            yield (
                f'<text class="halo" x="{_LEFT + _PLOT_WIDTH - 6}" y="{y + 13}" text-anchor="end">'
                f"limit {nbytes_short(arena.limit)}</text>"
            )

    def _live(self, values: Sequence[MappedValue]) -> Iterator[str]:
        """Yield the area of live bytes below the plot."""
        live = live_bytes(values, self.method.step_count())
        base = self._plot_top + _PLOT_HEIGHT + _LIVE_HEIGHT
        high = max(*live, self.arena.lower_bound, 1)
        path = [f"M{_LEFT} {base}"]
        for step, nbytes in enumerate(live):
            path.append(f"V{round(base - (_LIVE_HEIGHT - 8) * nbytes / high, 2)}H{self._x(step + 1)}")
        yield f'<path class="live" d="{"".join(path)}V{base}z"/>'
        yield f'<text class="dim" x="{_LEFT - 8}" y="{base - 4}" text-anchor="end">live bytes</text>'


def _legend() -> Iterator[str]:
    x = _LEFT
    for kind in ("input", "activation", "output", "state"):
        yield f'<rect class="{kind}0" x="{x}" y="44" width="12" height="12" rx="2"/>'
        yield f'<text x="{x + 17}" y="54">{kind}</text>'
        x += 90


def _title(method: MethodMap, value: MappedValue) -> str:
    lives = ", ".join(f"{first} to {last}" for first, last in value.spans)
    lines = [
        f"{value.name}: {value.type}, {value.kind}",
        f"{value.nbytes:,} bytes at {value.offset:,}, needed from {lives}",
    ]
    if value.producer is not None:
        step = method.steps[value.producer]
        lines.append(f"made by {step.text}")
        lines.extend(part for part in (step.module, step.source) if part)
    return "\n".join(lines)


def _panel_height() -> int:
    return _PANEL_HEAD + _PLOT_HEIGHT + _LIVE_HEIGHT + _PANEL_FOOT


def _text(text: str) -> str:
    """Return text for SVG; control characters, which XML cannot hold, are spelled out."""
    printable = "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape", "replace").decode()
        for each in text
    )
    return escape(printable)
