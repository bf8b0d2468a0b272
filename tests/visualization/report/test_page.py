"""The page of a report in a real browser: what it shows, and what mouse and keys do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.visualization.browser import Browser
from tests.visualization.report.programs import LOWERINGS

from exirkit.passes import load_partitioner
from exirkit.visualization import LoweringRecord, Measured, ReportOptions, report_document, report_page, write_report

MARKUP = "</script><img src=x onerror=\"document.body.dataset.broken='1'\">"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    lowering = LOWERINGS["layers, rules"]
    programs = lowering.programs()
    record = LoweringRecord(programs)
    with record.watching():
        manager = lowering.run(programs)
    times = {"forward": [Measured(1000.0 * (at + 1), at) for at in range(3)]}
    gaps = {"forward": [Measured(0.25, node="aten_mul_tensor")]}
    return report_document(record, manager, ReportOptions(title="layers", times=times, gaps=gaps))


@pytest.fixture(scope="module")
def page(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_page(document), encoding="utf-8")
    return path


def opened(browser: Browser, path: Path, address: str = "") -> Browser:
    """Open a page as if it had never been open, and wait until it is drawn."""
    browser.requests.clear()
    browser.errors.clear()
    browser.open(path)
    if address:
        browser.value(f"(location.hash = {json.dumps(address)}, 1)")
    browser.wait_for("document.body.dataset.ready === 'true'")
    browser.settle()
    return browser


def lines(browser: Browser, kind: str = "row") -> list[str]:
    """Return the lines of the program in view."""
    found: list[str] = browser.value(f"[...document.querySelectorAll('.row.{kind} .t')].map((one) => one.textContent)")
    return found


def choose(browser: Browser, stage: str) -> None:
    """Click on a stage."""
    found = (
        f"[...document.querySelectorAll('#stagelist li')].find((one) => one.textContent.includes({json.dumps(stage)}))"
    )
    browser.value(f"{found}.click()")
    browser.settle()


def pick(browser: Browser, element: str, value: str) -> None:
    """Choose an entry of a list."""
    one = f"document.getElementById({json.dumps(element)})"
    browser.value(f"({one}.value = {json.dumps(value)}, {one}.dispatchEvent(new Event('change')))")
    browser.settle()


def test_parts_of_delegates_have_colors(browser: Browser, tmp_path: Path) -> None:
    partitioner, path = tmp_path / "npu.yaml", tmp_path / "page.html"
    partitioner.write_text(
        "partitioning: 1\nname: npu\nbackend: ReferenceBackend\nrules:\n- {name: products, op: aten.addmm.default}\n"
    )
    write_report(LOWERINGS["layers"].programs(), path, partitioner=[load_partitioner(partitioner)])
    opened(browser, path)
    choose(browser, "to-backend")
    # At this stage are the calls of the two delegates, and above them the nodes that they were given.
    calls = lines(browser, "added.part")
    assert len(calls) == 2
    assert all("executorch_call_delegate(" in line for line in calls)
    first, second = lines(browser, "removed.part0"), lines(browser, "removed.part1")
    for given in (first, second):
        assert any("aten.addmm.default" in line for line in given)
    assert not set(first) & set(second)
    assert not any("aten.addmm" in line for line in set(lines(browser)) - set(lines(browser, "part")))
    browser.value("document.querySelector('.row.removed.part1').click()")
    browser.settle()
    assert "ReferenceBackend, part 2" in browser.text("node")
    assert browser.errors == []


def test_the_page_asks_no_network(browser: Browser, page: Path) -> None:
    opened(browser, page)
    for tab in ("rules", "memory", "sizes", "times", "gaps", "source", "about", "program"):
        browser.value(f"document.querySelector('[data-tab={tab}]').click()")
        browser.settle()
        assert not browser.value(f"document.getElementById('view-{tab}').hidden")
    assert browser.requests == [page.as_uri()]
    assert browser.errors == []
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert text.count("<script") == text.count("</script>") == 2
    assert "://" not in text.replace(text[text.index('id="data"') : text.index("</script>")], "")


def test_stages_show_what_changed_and_by_which_rule(browser: Browser, page: Path, document: dict[str, Any]) -> None:
    opened(browser, page)
    stages = document["methods"][0]["stages"]
    listed = browser.value(
        "[...document.querySelectorAll('#stagelist [data-stage]')].map((one) => Number(one.dataset.stage))"
    )
    assert listed == [at for at, stage in enumerate(stages) if at == 0 or any(stage["counts"])]
    browser.press("h")
    assert browser.value("document.querySelectorAll('#stagelist [data-stage]').length") == len(stages)
    browser.press("h")
    choose(browser, "decompose-to-core")
    assert any("aten.linear.default" in line for line in lines(browser, "removed"))
    assert any("aten.addmm.default" in line for line in lines(browser, "added"))
    choose(browser, "apply-rules")
    assert any("aten.mul.Tensor" in line for line in lines(browser, "removed"))
    rule = browser.value("document.querySelector('.row.removed .rule').textContent")
    assert rule in document["rules"]
    browser.value("document.querySelector('.row.removed .rule').click()")
    browser.settle()
    assert browser.text("rulename") == rule
    assert browser.text("ruletext").startswith(f"- id: {rule}")
    # From the application back to the node.
    browser.value("document.querySelector('#applications button.link').click()")
    browser.settle()
    assert browser.value("document.querySelector('.row.selected') !== null")


def test_a_node_is_followed_through_all_stages(browser: Browser, page: Path) -> None:
    opened(browser, page)
    choose(browser, "export")
    browser.value("[...document.querySelectorAll('.row')].find((one) => one.textContent.includes('%silu:')).click()")
    browser.settle()
    panel = browser.text("node")
    for fact in (
        "aten.silu.default",
        "float32[2, 8]",
        "programs.py:",
        "torch.nn.functional.silu(self.first(x))",
        "%linear",
    ):
        assert fact in panel
    for stage in ("decompose-to-core", "convert-to-edge-operators", "plan-memory"):
        assert stage in panel, panel
    # What stands for it after the decomposition is one click away.
    link = (
        "[...document.querySelectorAll('.history button')].find((one) => one.textContent.includes('decompose-to-core'))"
    )
    browser.value(f"{link}.click()")
    browser.settle()
    assert browser.text("stagename") == "decompose-to-core"
    assert browser.text("nodename") == "%mul_tensor"
    # Back to where we were, as the browser has it.
    browser.value("history.back()")
    browser.wait_for("document.getElementById('stagename').textContent === 'export'")
    assert browser.text("nodename") == "%silu"


def test_the_source_line_of_a_node_is_shown_and_leads_back(browser: Browser, page: Path) -> None:
    opened(browser, page)
    choose(browser, "export")
    browser.value("[...document.querySelectorAll('.row')].find((one) => one.textContent.includes('%silu:')).click()")
    browser.value(
        "[...document.querySelectorAll('#node button')].find((one) => one.textContent.includes('programs.py')).click()"
    )
    browser.settle()
    here = browser.value("document.querySelector('#sourcelines .here').textContent")
    assert "torch.nn.functional.silu(self.first(x))" in here
    browser.value("document.querySelector('#sourcelines .here').click()")
    browser.settle()
    assert "%silu" in browser.text("found")


def test_search_finds_nodes_rules_modules_and_lines(browser: Browser, page: Path) -> None:
    opened(browser, page)
    choose(browser, "export")
    browser.press("/")
    browser.write("silu")
    for fact in ("%silu = aten.silu.default(%linear)", "nodes of this stage", "source"):
        assert fact in browser.text("found")
    browser.press("Enter")
    assert browser.text("nodename") == "%silu"
    browser.press("/")
    browser.value("document.getElementById('search').select()")
    browser.write("mul-one")
    browser.press("Enter")
    assert browser.text("rulename") == "simplify.mul-one-remove"
    browser.press("/")
    browser.value("document.getElementById('search').select()")
    browser.write("addmm second.1")
    assert "aten.addmm.default" in browser.text("found")
    browser.value("document.getElementById('search').select()")
    browser.write("there is no such thing")
    assert browser.text("found") == "nothing found"


def test_keys_walk_through_lines_changes_and_stages(browser: Browser, page: Path) -> None:
    opened(browser, page)
    choose(browser, "decompose-to-core")
    browser.press("n")
    first = browser.text("nodename")
    assert browser.value("document.querySelector('.row.selected').className").split()[1] != "same"
    browser.press("n")
    assert browser.text("nodename") != first
    browser.press("p")
    assert browser.text("nodename") == first
    browser.press("]")
    assert browser.text("stagename") != "decompose-to-core"
    browser.press("[")
    assert browser.text("stagename") == "decompose-to-core"
    browser.press("c")
    assert browser.value("document.getElementById('changes').checked")
    assert browser.value("document.querySelectorAll('.row.gap').length") >= 1
    browser.press("c")
    assert browser.value("document.querySelectorAll('.row.gap').length") == 0
    browser.press("3")
    assert not browser.value("document.getElementById('view-memory').hidden")
    assert browser.errors == []


def test_any_two_stages_can_be_compared(browser: Browser, page: Path) -> None:
    opened(browser, page)
    choose(browser, "plan-memory")
    pick(browser, "compared", "0")
    assert any("aten.linear.default" in line for line in lines(browser, "removed"))
    assert any("alloc" in line for line in lines(browser, "added"))


def test_two_stages_are_side_by_side_and_in_step(browser: Browser, page: Path) -> None:
    opened(browser, page)
    choose(browser, "plan-memory")
    pick(browser, "compared", "0")
    assert browser.value("document.getElementById('beside').hidden")
    browser.press("b")
    assert browser.value("document.getElementById('sides').checked")
    left = "[...document.querySelectorAll('#beside .row')]"
    assert browser.value(f"{left}.some((one) => one.textContent.includes('aten.silu.default'))")
    # What the rules and passes made of a call is marked when the call is selected, and the other way round.
    browser.value(f"{left}.find((one) => one.textContent.includes('%silu:')).click()")
    browser.settle()
    assert browser.text("nodename") == "%silu"
    added = "[...document.querySelectorAll('#lines .row.added')]"
    browser.value(f"{added}.find((one) => one.textContent.includes('aten.mul.out')).click()")
    browser.settle()
    marked = browser.value("[...document.querySelectorAll('#beside .row.selected .t')].map((one) => one.textContent)")
    assert len(marked) == 1
    assert marked[0].startswith("%silu:")
    # The address has it, and the box takes it away.
    assert "b=1" in browser.value("location.hash")
    browser.value("document.getElementById('sides').click()")
    browser.settle()
    assert browser.value("document.getElementById('beside').hidden")
    assert browser.errors == []


def test_measured_numbers_are_shown_at_their_nodes(browser: Browser, page: Path) -> None:
    opened(browser, page)
    choose(browser, "plan-memory")
    assert (
        browser.value("[...document.querySelectorAll('.row .num')].map((one) => one.textContent).join()").count(
            "\u00b5s"
        )
        == 3
    )
    browser.press("5")
    assert "6 \u00b5s altogether" in browser.text("view-times")
    browser.press("6")
    assert "aten_mul_tensor" in browser.text("view-gaps")
    assert "0.25" in browser.text("view-gaps")


def test_the_memory_plan_leads_to_the_node(browser: Browser, page: Path, document: dict[str, Any]) -> None:
    opened(browser, page)
    browser.press("3")
    memory = document["methods"][0]["memory"]
    assert f"{memory['arenas'][0]['nbytes']:,} bytes" in browser.text("arenafacts")
    name, _, _, _, offset, nbytes, spans, *_ = max(memory["values"], key=lambda value: value[5] * (value[3] == 1))
    box = browser.value(
        "(({x, y, width, height}) => [x, y, width, height])(document.getElementById('memory').getBoundingClientRect())"
    )
    steps, high = len(memory["steps"]), memory["arenas"][0]["nbytes"]
    x = box[0] + 60 + (spans[0] + 0.5) / steps * (box[2] - 70)
    y = box[1] + box[3] - 26 - (offset + nbytes / 2) / high * (box[3] - 36)
    browser.mouse("mouseMoved", x, y)
    assert name in browser.text("tip")
    browser.click(x, y)
    assert browser.text("nodename") == f"%{name}"


def test_subgraphs_and_several_methods(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "branches.html"
    write_report(LOWERINGS["branches"].programs(), path)
    opened(browser, path)
    choose(browser, "export")
    assert any(line.startswith("graph true_graph_0") for line in lines(browser, "same"))
    write_report(LOWERINGS["two methods"].programs(), path)
    opened(browser, path)
    pick(browser, "method", "1")
    choose(browser, "export")
    assert any("[s" in line for line in lines(browser))
    assert browser.errors == []


class Named(torch.nn.Module):
    """A model whose modules have names like markup."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module(MARKUP.replace(".", "-"), torch.nn.Linear(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = next(self.children())(x)
        return y + 1  # </pre><script>document.body.dataset.broken = '1'</script>


def test_names_are_text_and_never_markup(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "markup.html"
    write_report(torch.export.export(Named(), (torch.ones(1, 2),)), path, title=MARKUP)
    opened(browser, path)
    for tab in ("rules", "memory", "sizes", "times", "gaps", "source", "about", "program"):
        browser.value(f"document.querySelector('[data-tab={tab}]').click()")
        browser.settle()
    choose(browser, "export")
    browser.value("document.querySelector('.row').click()")
    browser.press("/")
    browser.write("onerror")
    assert MARKUP.replace(".", "-") in browser.text("found")
    assert browser.value("document.querySelectorAll('img').length") == 0
    assert browser.value("document.body.dataset.broken === undefined")
    assert browser.value("document.querySelector('h1').textContent") == MARKUP
    assert browser.requests == [path.as_uri()]


def test_a_failure_is_what_the_page_opens_with(browser: Browser, tmp_path: Path) -> None:
    def broken(module: torch.fx.GraphModule) -> None:
        raise RuntimeError("broken on purpose")

    path = tmp_path / "failed.html"
    assert write_report(LOWERINGS["layers"].programs(), path, transform_passes=[broken]) is None
    opened(browser, path)
    assert "broken on purpose" in browser.text("view-about")
    assert "convert-to-edge-operators" in browser.text("stagelist")


def test_addresses_that_are_wrong_do_no_harm(browser: Browser, page: Path) -> None:
    for address in ("#m=9&s=-3&t=nothing&n=x&f=99", "#s=1e9&n=123456789", "#t=__proto__&r=__proto__&p=%zz"):
        opened(browser, page)
        browser.value(f"(location.hash = {json.dumps(address)}, 1)")
        browser.settle()
        browser.settle()
        assert browser.errors == []
        assert lines(browser) or browser.value("document.getElementById('view-program').hidden")
