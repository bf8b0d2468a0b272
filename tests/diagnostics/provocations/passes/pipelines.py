"""Pipeline files that are wrong, pipelines that are used wrongly, and plug-ins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tests.diagnostics.programs import exported
from tests.diagnostics.provocation import provokes

from exirkit import Pass, to_edge
from exirkit.ir import GraphEditor, load_plugin
from exirkit.passes import OutVariantTable, Pipeline, shipped_text
from exirkit.patterns import parse_book

HEAD = "pipeline: 1\nname: mine\ndialect: {from: edge, to: edge}\nstages:\n"


def parse(stages: str) -> None:
    Pipeline.parse(HEAD + stages, "mine.yaml")


@contextmanager
def installed(folder: Path, *names: str) -> Iterator[None]:
    """Put distributions that offer the pass `fuse` on the path."""
    for name in names:
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[exirkit.passes]\nfuse = {name}.passes:Fuse\n")
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


@provokes("EK118")
def plugin_whose_module_is_gone(scratch: Path) -> None:
    with installed(scratch, "acme"):
        load_plugin("exirkit.passes", "fuse")


@provokes("EK119")
def plugins_of_one_name(scratch: Path) -> None:
    with installed(scratch, "acme", "bolt"):
        load_plugin("exirkit.passes", "fuse")


@provokes("EK233")
def operators_that_are_none(scratch: Path) -> None:
    info = scratch / "provoked-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: provoked\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[exirkit.operators]\nprovoked_ops = json:dumps\n")
    sys.path.insert(0, str(scratch))
    text = "rulebook: 1\nrules:\n- {id: a, vars: {x: any}, match: return provoked_ops.a(x), replace: return x}\n"
    try:
        parse_book(text)
    finally:
        sys.path.remove(str(scratch))


@provokes("EK436")
def override_that_writes_elsewhere(_: Path) -> None:
    OutVariantTable().with_overrides({"aten.add.Tensor": "aten.topk.values"})


@provokes("EK470")
def file_with_a_repeated_key(_: Path) -> None:
    Pipeline.parse(HEAD.replace("name:", "pipeline: 1\nname:"), "mine.yaml")


@provokes("EK471")
def stage_of_two_kinds(_: Path) -> None:
    parse("- {pass: lift-constants, rules: algebra}\n")


@provokes("EK472")
def pass_that_is_not_there(_: Path) -> None:
    parse("- pass: eliminate-ded-code\n")


@provokes("EK473")
def option_of_the_wrong_type(_: Path) -> None:
    parse("- pass: write-back-mutations\n  options: {skip_dim_order: sometimes}\n")


@provokes("EK474")
def requirement_that_is_lost(_: Path) -> None:
    text = shipped_text("to_executorch").replace(
        "      - pass: remove-asserts\n", "      - pass: remove-asserts\n      - pass: separate-outputs\n"
    )
    Pipeline.parse(text, "mine.yaml")


@provokes("EK475")
def stages_in_the_wrong_order(_: Path) -> None:
    parse("- pass: convert-to-edge-operators\n- pass: promote-types\n")


class Restless(Pass):
    """Changes something each time."""

    name = "restless"

    def edit(self, editor: GraphEditor) -> None:
        node = editor.graph.output_node()
        editor.set_meta(node, "count", node.meta.get("count", 0) + 1)


@provokes("EK476")
def repetition_without_rest(_: Path) -> None:
    text = HEAD + "- repeat: [{pass: restless}, {pass: lift-constants}]\n  bound: 3\n"
    made = Pipeline.parse(text, "mine.yaml", passes={"restless": Restless})
    made.run(to_edge(exported(torch.relu, torch.ones(2))).exported_program())


@provokes("EK478")
def program_of_another_dialect(_: Path) -> None:
    Pipeline.shipped("to_executorch").run(exported(torch.relu, torch.ones(2)))


@provokes("EK705")
def pipeline_of_another_step(_: Path) -> None:
    to_edge(exported(torch.relu, torch.ones(2)), pipeline=Pipeline.shipped("to_executorch"))
