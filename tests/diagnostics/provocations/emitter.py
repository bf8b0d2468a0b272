"""Lowered programs that cannot be emitted."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from tests.diagnostics.programs import call_of, counter, exported, lowered
from tests.diagnostics.provocation import provokes
from torch._subclasses import FakeTensorMode

from exirkit import emit_program


@provokes("EK550")
def tensor_without_place(_: Path) -> None:
    program = lowered(counter())
    call_of(program, "alloc").meta["spec"].mem_offset = None
    emit_program({"forward": program})


@provokes("EK551")
def operator_that_is_not_lowered(_: Path) -> None:
    program = lowered(exported(torch.relu, torch.ones(2)))
    relu = call_of(program, "relu")
    relu.target, relu.kwargs = torch.nn.functional.relu, {}
    emit_program({"forward": program})


@provokes("EK552")
def argument_that_cannot_be_stored(_: Path) -> None:
    program = lowered(exported(lambda x: x.sum(0), torch.ones(2)))
    total = call_of(program, "sum")
    total.args = (3, [0])
    emit_program({"forward": program})


@provokes("EK553")
def output_that_is_a_text(_: Path) -> None:
    program = lowered(exported(torch.relu, torch.ones(2)))
    output = program.graph.output_node()
    output.args = (("text",),)
    emit_program({"forward": program})


@provokes("EK554")
def weight_without_data(_: Path) -> None:
    program = lowered(counter())
    with FakeTensorMode():
        program.state_dict["weight"] = torch.ones(4)
    emit_program({"forward": program})


@provokes("EK555")
def constant_method_that_returns_a_set(_: Path) -> None:
    emit_program({}, config_methods={"words": {"yes"}})


@provokes("EK556")
def memory_that_is_not_planned(_: Path) -> None:
    program = lowered(exported(torch.relu, torch.ones(2)))
    del program.graph_module.meta["non_const_buffer_sizes"]
    emit_program({"forward": program})


@provokes("EK557")
def sparse_tensor(_: Path) -> None:
    program = lowered(exported(torch.relu, torch.ones(2)))
    call_of(program, "alloc").meta["spec"].layout = torch.sparse_coo
    emit_program({"forward": program})


@provokes("EK558")
def input_that_is_complex(_: Path) -> None:
    program = lowered(exported(torch.relu, torch.ones(2)))
    (x,) = program.graph.find_nodes(op="placeholder")
    x.meta["spec"], x.meta["val"] = None, 1j
    emit_program({"forward": program})


@provokes("EK559")
def method_that_is_a_module(_: Path) -> None:
    emit_program({"forward": torch.nn.ReLU()})  # type: ignore[dict-item]


@provokes("EK560")
def branch_that_computes_elsewhere(_: Path) -> None:
    program = lowered(exported(lambda x: torch.cond(x.sum() > 0, torch.relu, torch.neg, (x,)), torch.ones(2)))
    branch = program.graph_module.true_graph_0
    (result,) = branch.graph.output_node().args[0]
    result.meta["spec"] = result.kwargs["out"].meta["spec"] = copy.copy(result.meta["spec"])
    emit_program({"forward": program})
