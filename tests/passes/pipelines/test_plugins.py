"""Passes and rule books of installed distributions in pipelines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from exirkit import to_edge
from exirkit.ir import ModelError
from exirkit.passes import Pipeline

HEAD = "pipeline: 1\nname: mine\ndialect: {from: edge, to: edge}\nstages:\n"

PASSES = """
from exirkit import Pass
from exirkit.passes import PassOptions, RegisteredPass

class Mark(Pass):
    name = "mark"

    class Options(PassOptions):
        text: str = "x"

    def __init__(self, text="x"):
        self.text = text

    def edit(self, editor):
        for node in editor.graph.nodes:
            editor.set_meta(node, "mark", self.text)

needy = RegisteredPass("needy", lambda given: Mark(), requires=frozenset({"specs"}))
"""

BOOK = """
rulebook: 1
rules:
- id: canon.fake-twice
  match: return aten.relu.default(aten.relu.default(x))
  replace: return aten.relu.default(x)
  vars: {x: "f32 [*S]"}
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "fake_passes-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-passes\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[exirkit.passes]\nmark = fake_passes_module:Mark\nneedy = fake_passes_module:needy\nbroken = fake_gone:Thing\n"
        "[exirkit.rulebooks]\nfake-book = fake_passes_module:book\n"
    )
    (tmp_path / "book.yaml").write_text(BOOK)
    (tmp_path / "fake_passes_module.py").write_text(
        PASSES + f"\ndef book():\n    return {str(tmp_path / 'book.yaml')!r}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("fake_passes_module", None)


def test_a_pass_with_options(site: Path) -> None:
    made = Pipeline.parse(HEAD + "- {pass: mark, options: {text: there}}")
    program = to_edge(torch.export.export(torch.nn.ReLU(), (torch.rand(2),))).exported_program()
    assert {node.meta["mark"] for node in made.run(program).program.graph.nodes} == {"there"}
    with pytest.raises(ModelError, match="EK473"):
        Pipeline.parse(HEAD + "- {pass: mark, options: {txt: there}}")


def test_what_a_plug_in_requires_is_checked(site: Path) -> None:
    with pytest.raises(ModelError, match="EK474"):
        Pipeline.parse(HEAD + "- pass: needy")


def test_a_broken_plug_in_is_named_where_it_is_used(site: Path) -> None:
    with pytest.raises(ModelError) as caught:
        Pipeline.parse(HEAD + "- pass: broken")
    (found,) = caught.value.diagnostics
    assert (found.code, found.location.line) == ("EK472", 5)
    assert "'broken' of fake-passes" in found.message
    Pipeline.parse(HEAD + "- pass: mark")


def test_names_of_plug_ins_are_suggested(site: Path) -> None:
    with pytest.raises(ModelError, match=r"did you mean needy\?"):
        Pipeline.parse(HEAD + "- pass: neady")


def test_a_rule_book(site: Path) -> None:
    program = to_edge(torch.export.export(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU()), (torch.rand(2),)))
    made = Pipeline.parse(HEAD + "- rules: fake-book")
    result = made.run(program.exported_program())
    assert sum(node.op == "call_function" for node in result.program.graph.nodes) == 1
