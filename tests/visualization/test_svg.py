"""The drawing is well-formed, complete, and to scale."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from tests.visualization.conftest import Draw

from exirkit.visualization import ArenaMap, MemoryMap, memory_map_svg

NAMESPACE = "{http://www.w3.org/2000/svg}"


def shapes(text: str) -> dict[str, list[tuple[float, float, float, float]]]:
    """Return the rectangles of each value by the first line of its title: left, top, right, bottom."""
    found = {}
    for path in ElementTree.fromstring(text).iter(f"{NAMESPACE}path"):
        title = path.find(f"{NAMESPACE}title")
        if title is None or title.text is None:
            continue
        numbers = re.findall(r"M([\d.]+) ([\d.]+)H([\d.]+)V([\d.]+)H[\d.]+z", path.attrib["d"])
        found[title.text] = [(float(a), float(b), float(c), float(d)) for a, b, c, d in numbers]
    return found


@pytest.mark.parametrize("count", [10, 2000])
def test_every_value_is_drawn_to_scale(made_up: Draw, count: int) -> None:
    memory_map = made_up(count)
    text = memory_map_svg(memory_map)
    found = {key.partition(": ")[0]: drawn for key, drawn in shapes(text).items()}
    (method,) = memory_map.methods
    assert len(found) == len(method.values) > 5
    frame = next(one for one in ElementTree.fromstring(text).iter(f"{NAMESPACE}rect") if one.get("class") == "frame")
    left, top, width, height = (float(frame.attrib[name]) for name in ("x", "y", "width", "height"))
    for value in method.values:
        ((x0, y0, x1, y1),) = found[value.name]
        ((first, last),) = value.spans
        assert x0 == pytest.approx(left + width * first / count, abs=0.01)
        assert x1 == pytest.approx(left + width * (last + 1) / count, abs=0.01)
        assert y1 == pytest.approx(top + height * (1 - value.offset / 40960), abs=0.01)
        assert y1 - y0 == pytest.approx(height * value.nbytes / 40960, abs=0.02)


def test_titles_tell_operator_source_and_place(memory_map: MemoryMap) -> None:
    titles = list(shapes(memory_map_svg(memory_map)))
    sine = next(title for title in titles if "aten::sin.out" in title)
    for fact in ("float32[3, 8], activation", "96 bytes at", "needed from", "left = self.linear(x).sin()"):
        assert fact in sine


def test_names_cannot_leave_their_place(made_up: Draw) -> None:
    evil = '</title><script>alert(1)</script>&"\x1b\x00\ud800'
    text = memory_map_svg(made_up(12, title=evil, name=evil))
    root = ElementTree.fromstring(text)
    assert not list(root.iter(f"{NAMESPACE}script"))
    assert "\\x1b" in text
    assert text.encode()


def test_a_limit_is_drawn_where_it_is(made_up: Draw) -> None:
    assert ">limit 64 KiB<" in memory_map_svg(made_up(12, limit=65536))
    assert ">limit" not in memory_map_svg(made_up(12))


def test_nothing_to_draw(made_up: Draw) -> None:
    assert "no planned memory" in memory_map_svg(MemoryMap(title="empty", methods=()))
    empty = made_up(0)
    assert "most is needed at 0: nothing" in memory_map_svg(empty)
    method = empty.methods[0]
    arena = ArenaMap(number=1, nbytes=0, live_nbytes=0, lower_bound=0, at=0, alignment=16, total_nbytes=0)
    bare = method.model_copy(update={"arenas": (arena,)})
    ElementTree.fromstring(memory_map_svg(empty.model_copy(update={"methods": (bare,)})))


def test_the_same_memory_map_gives_the_same_bytes(memory_map: MemoryMap) -> None:
    assert memory_map_svg(memory_map) == memory_map_svg(MemoryMap.model_validate_json(memory_map.model_dump_json()))
