"""The page in a real browser: what it shows, and what mouse and keys do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.visualization.browser import Browser
from tests.visualization.conftest import Draw

from exirkit.visualization import MappedValue, MemoryMap, memory_map_page

Write = Callable[[str], Path]


def shown(browser: Browser) -> list[float]:
    """Return what is in view: first and last step, first and last byte."""
    return list(json.loads(browser.value("document.getElementById('plot').dataset.view")))


def place_of(browser: Browser, value: MappedValue) -> tuple[float, float]:
    """Return the middle of a value in the window."""
    x0, x1, y0, y1 = shown(browser)
    box: Any = browser.value(
        "(({x, y, width, height}) => [x, y, width, height])(document.getElementById('plot').getBoundingClientRect())"
    )
    left, top, width, height = box[0] + 78, box[1] + 14, box[2] - 92, box[3] - 110
    first, last = value.spans[0]
    x = left + ((first + last + 1) / 2 - x0) / (x1 - x0) * width
    return x, top + (y1 - value.offset - value.nbytes / 2) / (y1 - y0) * height


def test_the_page_needs_nothing_else(made_up: Draw) -> None:
    text = memory_map_page(made_up(30))
    assert "http" not in text.replace("http-equiv", "")
    assert "default-src 'none'" in text
    assert text.count("<script") == text.count("</script>") == 2
    assert "@" not in text.replace("@media", "")


def test_hovering_tells_about_a_value(browser: Browser, memory_map: MemoryMap, written: Write) -> None:
    browser.requests.clear()
    browser.errors.clear()
    path = written(memory_map_page(memory_map))
    browser.open(path)
    assert browser.requests == [path.as_uri()]
    sine = next(value for value in memory_map.methods[0].values if "sin" in value.name)
    browser.mouse("mouseMoved", *place_of(browser, sine))
    assert not browser.value("document.getElementById('tip').hidden")
    for element in ("tip", "value"):
        text = browser.text(element)
        for fact in (sine.name, "float32[3, 8]", "aten::sin.out", "left = self.linear(x).sin()", "96", "activation"):
            assert fact in text, (element, fact)
    first, last = sine.spans[0]
    assert f"needed from {first} to {last}" in browser.text("tip")
    arena = memory_map.methods[0].arenas[0]
    assert f"{arena.nbytes:,}" in browser.text("arena")
    browser.mouse("mouseMoved", 5, 5)
    assert browser.value("document.getElementById('tip').hidden")
    assert browser.errors == []


def test_wheel_drag_and_buttons_change_what_is_in_view(browser: Browser, made_up: Draw, written: Write) -> None:
    memory_map = made_up(400)
    browser.open(written(memory_map_page(memory_map)))
    whole = shown(browser)
    assert whole[:2] == [0, 400]
    value = max(memory_map.methods[0].values, key=lambda value: value.nbytes)
    x, y = place_of(browser, value)
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200)
    nearer = shown(browser)
    assert nearer[1] - nearer[0] < 400 * 0.7
    assert nearer[3] - nearer[2] < whole[3] * 0.7
    # What was under the pointer still is.
    assert place_of(browser, value) == pytest.approx((x, y), abs=1.5)
    browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    browser.mouse("mouseMoved", x - 60, y, button="left", buttons=1)
    browser.mouse("mouseReleased", x - 60, y, button="left", clickCount=1)
    dragged = shown(browser)
    assert dragged[0] > nearer[0]
    assert dragged[1] - dragged[0] == pytest.approx(nearer[1] - nearer[0])
    assert browser.text("value") == "" or "name" in browser.text("value")
    browser.value("document.getElementById('whole').click()")
    browser.settle()
    assert shown(browser) == whole
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200, modifiers=8)
    assert shown(browser)[2:] == whole[2:]
    assert shown(browser)[1] - shown(browser)[0] < 400


def test_clicking_keeps_a_value_and_escape_lets_go(browser: Browser, made_up: Draw, written: Write) -> None:
    memory_map = made_up(25, seed=3)
    browser.open(written(memory_map_page(memory_map)))
    value = max(memory_map.methods[0].values, key=lambda value: value.nbytes)
    browser.click(*place_of(browser, value))
    browser.mouse("mouseMoved", 5, 5)
    assert value.name in browser.text("value")
    browser.press("Escape")
    assert browser.text("value") == ""


def test_the_keyboard_does_it_all(browser: Browser, made_up: Draw, written: Write) -> None:
    memory_map = made_up(300)
    values = sorted(memory_map.methods[0].values, key=lambda value: (value.spans[0][0], value.offset))
    browser.open(written(memory_map_page(memory_map)))
    whole = shown(browser)
    browser.press("n")
    assert values[0].name in browser.text("value")
    browser.press("n")
    assert values[1].name in browser.text("value")
    assert values[1].name in browser.text("spoken")
    browser.press("p")
    browser.press("p")
    assert values[-1].name in browser.text("value")
    browser.press("Enter")
    near = shown(browser)
    assert near[0] <= values[-1].spans[0][0]
    assert near[1] >= values[-1].spans[0][1] + 1
    assert near[1] - near[0] < 100
    browser.press("ArrowLeft")
    assert shown(browser)[0] < near[0]
    browser.press("0")
    assert shown(browser) == whole
    browser.press("+")
    assert shown(browser)[1] - shown(browser)[0] == pytest.approx(210)
    browser.press("-")
    assert shown(browser) == pytest.approx(whole, abs=1e-6)
    browser.press("m")
    peak = memory_map.methods[0].arenas[0].at
    assert shown(browser)[0] <= peak < shown(browser)[1]
    assert f"live at {peak}:" in browser.text("atstep")
    theme = browser.value("document.documentElement.dataset.theme")
    browser.press("t")
    assert {theme, browser.value("document.documentElement.dataset.theme")} == {"light", "dark"}


def test_filtering_by_words_and_kinds(browser: Browser, made_up: Draw, written: Write) -> None:
    memory_map = made_up(300)
    values = memory_map.methods[0].values
    browser.open(written(memory_map_page(memory_map)))
    assert browser.text("matches") == f"{len(values)} values"
    browser.press("/")
    browser.write("op3 layer1")
    steps = memory_map.methods[0].steps
    wanted = [
        v
        for v in values
        if v.producer is not None and "op3" in steps[v.producer].text and "layer1" in (steps[v.producer].module or "")
    ]
    assert browser.text("matches") == f"{len(wanted)} of {len(values)}"
    browser.press("Escape")
    assert browser.text("matches") == f"{len(values)} values"
    browser.value("document.querySelector('#kinds input').click()")
    inputs = sum(value.kind == "input" for value in values)
    assert inputs
    assert browser.text("matches") == f"{len(values) - inputs} of {len(values)}"
    browser.value("document.activeElement.blur()")
    browser.press("n")
    first = min((v for v in values if v.kind != "input"), key=lambda value: (value.spans[0][0], value.offset))
    assert first.name in browser.text("value")


def test_five_thousand_values_are_drawn(browser: Browser, made_up: Draw, written: Write) -> None:
    memory_map = made_up(5000)
    assert len(memory_map.methods[0].values) > 1200
    crowd = tuple(
        value.model_copy(update={"value": value.value + 5000 * copy, "offset": value.offset + 40960 * copy})
        for copy in range(5000 // len(memory_map.methods[0].values) + 1)
        for value in memory_map.methods[0].values
    )[:5000]
    method = memory_map.methods[0].model_copy(update={"values": crowd})
    browser.open(written(memory_map_page(memory_map.model_copy(update={"methods": (method,)}))))
    assert browser.text("matches") == "5000 values"


def test_the_theme_follows_the_system(browser: Browser, made_up: Draw, written: Write) -> None:
    path = written(memory_map_page(made_up(12)))
    grounds = []
    for dark in (False, True):
        browser.open(path, dark=dark)
        grounds.append(browser.value("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(20, 24, 31)"]


def test_names_cannot_run(browser: Browser, made_up: Draw, written: Write) -> None:
    evil = "</script><script>window.broken=1</script><img src=x onerror='window.broken=1'>@SCRIPT@"
    browser.errors.clear()
    memory_map = made_up(8, title=evil, name=evil)
    browser.open(written(memory_map_page(memory_map)))
    browser.press("n")
    assert evil in browser.text("value")
    assert browser.value("document.querySelector('h1').textContent") == evil
    assert browser.value("window.broken") is None
    assert browser.errors == []


@pytest.mark.parametrize("methods", [0, 2])
def test_none_or_several_arenas(browser: Browser, made_up: Draw, written: Write, methods: int) -> None:
    browser.errors.clear()
    other = made_up(40, seed=9).methods[0].model_copy(update={"name": "other"})
    memory_map = MemoryMap(title="some", methods=(*made_up(30).methods, other)[:methods])
    browser.open(written(memory_map_page(memory_map)))
    assert browser.value("document.querySelectorAll('#panel option').length") == methods
    if methods:
        browser.value("document.getElementById('panel').value = '1'")
        browser.value("document.getElementById('panel').dispatchEvent(new Event('change'))")
        browser.settle()
        assert shown(browser)[1] == 40
    else:
        browser.press("n")
        assert "plans no memory" in browser.text("hint")
    assert browser.errors == []
