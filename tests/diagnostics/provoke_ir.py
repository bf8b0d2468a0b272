"""Wrong operators, dim orders and edits."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.diagnostics.programs import call_of, edge, exported
from tests.diagnostics.provocation import provokes

from exirkit import GraphEditor, ops
from exirkit.ir import dim_order_from_memory_format, stride_from_dim_order


@provokes("EK101")
def operator_misspelt(_: Path) -> None:
    ops.edge.aten.ad.Tensor  # noqa: B018 - looking it up is the point


@provokes("EK102")
def operator_without_out_variant(_: Path) -> None:
    ops.edge.aten.sym_size.int.to_out_variant()


@provokes("EK111")
def call_with_wrong_arguments(_: Path) -> None:
    program = edge(exported(torch.relu, torch.ones(2)))
    editor = GraphEditor(program)
    relu = call_of(program, "relu")
    with editor.transaction("my-pass"):
        editor.call(ops.edge.aten.mm.default, (relu, relu), before=relu.next)


@provokes("EK191")
def dim_order_with_a_repetition(_: Path) -> None:
    stride_from_dim_order([2, 3], [1, 1])


@provokes("EK192")
def memory_format_of_another_rank(_: Path) -> None:
    dim_order_from_memory_format(torch.channels_last, 3)
