"""Wrong operators, dim orders and edits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.diagnostics.programs import call_of, edge, exported
from tests.diagnostics.provocation import provokes
from torch.export.graph_signature import InputKind
from torch.fx import Node

from exirkit import GraphEditor, create_constant_placeholder, ops, set_param_tensor
from exirkit.ir import copy_program, dim_order_from_memory_format, stride_from_dim_order, subgraph_editors


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


def relu_editor() -> tuple[GraphEditor, Node]:
    """Return the editor of a program that computes relu(x), and that call."""
    program = edge(exported(torch.relu, torch.ones(2)))
    return GraphEditor(program), call_of(program, "relu")


@provokes("EK112")
def argument_without_value(_: Path) -> None:
    editor, relu = relu_editor()
    del relu.meta["val"]
    editor.call(ops.edge.aten.neg.default, (relu,), before=relu.next)


@provokes("EK113")
def placeholder_behind_the_back_of_the_editor(_: Path) -> None:
    editor, _relu = relu_editor()
    with editor.transaction("my-pass"):
        with editor.graph.inserting_before(next(iter(editor.graph.nodes))):
            editor.graph.placeholder("extra")
        editor.call(ops.edge.aten.full.default, ([2], 1.0), before=editor.graph.output_node())


@provokes("EK114")
def node_of_another_program(_: Path) -> None:
    editor, _relu = relu_editor()
    _other, relu = relu_editor()
    editor.erase(relu)


@provokes("EK115")
def node_that_is_used(_: Path) -> None:
    editor, relu = relu_editor()
    editor.erase(relu)


@provokes("EK116")
def input_that_is_not_stored(_: Path) -> None:
    editor, relu = relu_editor()
    editor.remove_input(relu.all_input_nodes[0])


@provokes("EK120")
def constant_for_a_body_that_two_calls_run(_: Path) -> None:
    class Branches(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x.cos(), lambda x: x.sin(), (x,))

    editor = GraphEditor(copy_program(torch.export.export(Branches(), (torch.ones(3),))))
    call = next(node for node in editor.graph.nodes if node.name == "cond")
    with editor.transaction("twice"):
        editor.call(call.target, call.args, before=call.next, origins=call, val=call.meta["val"])
        next(subgraph_editors(editor)).add_constant(torch.ones(3), name="ones")


@provokes("EK121")
def state_kept_outside_a_transaction(_: Path) -> None:
    relu_editor()[0].checkpoint()


@provokes("EK117")
def input_that_is_moved(_: Path) -> None:
    editor, relu = relu_editor()
    editor.move(relu.all_input_nodes[0], relu)


@provokes("EK122")
def call_in_front_of_its_argument(_: Path) -> None:
    editor, relu = relu_editor()
    editor.call(ops.edge.aten.neg.default, (relu,), before=relu)


@provokes("EK123")
def placeholder_of_a_kind_that_stores_nothing(_: Path) -> None:
    editor, _relu = relu_editor()
    create_constant_placeholder(editor, editor.graph, "more", InputKind.USER_INPUT, torch.ones(2))


@provokes("EK124")
def buffer_of_another_dtype_than_what_is_written_to_it(_: Path) -> None:
    class Last(torch.nn.Module):
        last: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("last", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last.copy_(x)
            return x + 1

    program = torch.export.export(Last(), (torch.ones(2),)).run_decompositions({})
    last = next(node for node in program.graph.nodes if node.name == "b_last")
    set_param_tensor(program, last, torch.zeros(2, dtype=torch.float16))


@provokes("EK125")
def weight_made_of_a_fake_tensor(_: Path) -> None:
    editor, relu = relu_editor()
    create_constant_placeholder(editor, editor.graph, "w", InputKind.PARAMETER, relu.meta["val"])


@provokes("EK126")
def weight_for_the_graph_of_another_program(_: Path) -> None:
    editor, _relu = relu_editor()
    _other, relu = relu_editor()
    create_constant_placeholder(editor, relu.graph, "w", InputKind.PARAMETER, torch.ones(2))
