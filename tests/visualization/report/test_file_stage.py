"""A program file on a page: its instructions, what they read, and what was measured."""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
import torch

from exirkit import to_edge
from exirkit.emit import read_program
from exirkit.fuzz import LoweringChoices, write_measured_report
from exirkit.visualization import (
    Measured,
    ReportOptions,
    file_document,
    model_explorer_graphs,
    model_explorer_node_data,
    write_report,
)


class Counted(torch.nn.Module):
    """Has state, results of which one is a part, and a branch."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("count", torch.ones(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1)
        largest, at = self.linear(x).topk(2, 1)
        return torch.cond(largest.sum() > 0, torch.sin, torch.cos, (largest + at,)), self.count + 0


@pytest.fixture(scope="module")
def exported() -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    return torch.export.export(Counted().eval().requires_grad_(False), (torch.randn(2, 4),))


def _lines(document: dict[str, Any]) -> list[str]:
    texts, rows = document["texts"], document["rows"]
    return [
        f"%{texts[name]}: {texts[kind]} = {texts[verb]}({texts[args]})"
        for name, kind, verb, args in zip(rows["name"], rows["type"], rows["verb"], rows["args"], strict=True)
    ]


def test_instructions_name_what_they_read(exported: torch.export.ExportedProgram) -> None:
    manager = to_edge(exported).to_executorch()
    times = {"forward": [Measured(float(at), at) for at in range(3)]}
    document = file_document(read_program(manager.buffer), ReportOptions("file", times=times))
    lines = _lines(document)
    names = [line.partition(":")[0] for line in lines]
    assert len(set(names)) == len(names)
    assert lines[0] == "%input_0: float32[2, 4] = input()"
    found = {line.partition(" = ")[2].partition("(")[0]: line for line in lines}
    (buffer,) = (line.partition(":")[0] for line in lines if " = buffer(" in line)
    added = next(line for line in lines if f"aten::add.out({buffer}" in line)
    # Two results are two values of one line; what reads one names the line.
    top = found["aten::topk.values"]
    assert "(float32[2, 2], int64[2, 2]) = " in top
    product = found["aten::addmm.out"].partition(":")[0]
    assert f"({product}, 2, 1, " in top
    name = top.partition(":")[0]
    assert any(f"({name}, " in line or f", {name}" in line for line in lines if line != top)
    # The state has a line of its own where it is written back, and the other name where it is read.
    written = next(line for line in lines if "copy_" in line)
    assert added.partition(":")[0] in written
    assert written.partition(":")[0].startswith(buffer)
    (method,) = document["methods"]
    steps = method["memory"]["steps"]
    assert [f"%{step[1]}" for step in steps] == names[-len(steps) - 1 : -1]
    (graph,) = model_explorer_graphs(document)["graphs"]
    by_label = {node["label"]: node for node in graph["nodes"]}
    (source, *_) = by_label["aten::topk.values"]["incomingEdges"]
    assert source["sourceNodeId"] == by_label["aten::addmm.out"]["id"]
    ((_, data),) = model_explorer_node_data(document, "times").items()
    assert sorted(one["value"] for one in data["results"].values()) == [0.0, 1.0, 2.0]


def test_report_gap_and_times_in_one_call(exported: torch.export.ExportedProgram, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = write_measured_report(exported, page, title="counted")
    assert not found.failure
    assert found.manager is not None
    (gap,) = found.gaps
    assert gap.ok
    assert 0 < len(gap.instructions) <= gap.calls
    assert len(found.times["forward"]) >= gap.calls
    assert page.stat().st_size > 10_000


def test_without_inputs_the_page_has_no_numbers(exported: torch.export.ExportedProgram, tmp_path: Path) -> None:
    bare = torch.export.export(Counted().eval().requires_grad_(False), (torch.randn(2, 4),))
    bare.example_inputs = None
    found = write_measured_report(bare, tmp_path / "page.html", LoweringChoices())
    assert found.manager is not None
    assert (found.gaps, found.times) == ([], {})
    given = write_measured_report(bare, tmp_path / "page.html", inputs={"forward": [torch.ones(2, 4)]})
    assert given.gaps[0].ok


@pytest.mark.parametrize("write", [write_report, write_measured_report])
def test_a_page_that_cannot_be_written_leaves_what_was_there(
    write: Callable[..., object],
    exported: torch.export.ExportedProgram,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = tmp_path / "page.html"
    page.write_bytes(b"before")

    def half(path: Path, text: str, **options: object) -> None:
        path.write_bytes(text[: len(text) // 2].encode())
        raise OSError(ENOSPC, "full")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="full"):
        write(exported, page)
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
    assert page.read_bytes() == b"before"
