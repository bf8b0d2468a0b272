"""Linears of what torchao has quantized, as XNNPACK computes them right."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator

from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.passes.utils.source_matcher_utils import get_source_partitions
from torch.nn import Linear
from torch.nn.functional import linear

from exirkit.ir import Diagnostic, GraphEditor, copy_program, locate, operator_name, widens
from exirkit.passes import FoldConstants

_AFFINE = ("choose_qparams_affine", "quantize_affine", "dequantize_affine")
_LINEAR = ("mm", "addmm", "bmm", "linear", "add", "view_copy", "permute_copy", "t_copy", "expand_copy")
_CONVERSIONS = ("choose_qparams", "quantize_", "dequantize_")
_SOURCES = ("source_fn_stack", "torch_fn", "nn_module_stack")


def with_float_weights(program: ExportedProgram) -> ExportedProgram:
    """Return a part of a program with the floats that are computed of stored integers, if it quantizes nothing itself.

    XNNPACK (executorch 1.5.1) stores such weights as floats too. Where activations are quantized as well, it has
    products of integers, and weights stay as they are.

    Args:
        program: About to be compiled; it is not changed.
    """
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    if any(_name(node).startswith(_CONVERSIONS) for node in calls):
        return program
    if not any(widens(node) and node.meta["val"].is_floating_point() for node in calls):
        return program
    made = copy_program(program)
    FoldConstants(None, fold_quantization=True).run(GraphEditor(made))
    made.graph_module.recompile()
    return made


def forget_linears_of_several_calls(program: ExportedProgram) -> None:
    """Have no operators taken for a linear because a linear is where they came from.

    XNNPACK (executorch 1.5.1) replaces all that came from a call of `linear` by one linear of its inputs. What torchao
    computes in it, conversions, scales, and a bias of its own, is lost then. Without the sources, the products alone
    become linears.

    Args:
        program: With official operators; metadata of its nodes is changed.
    """
    for partitions in get_source_partitions(program.graph, [Linear, linear]).values():
        for partition in partitions:
            calls = [node for node in partition.nodes if node.op == "call_function"]
            if all(_name(node) in _LINEAR for node in calls):
                continue
            for node in calls:
                for key in _SOURCES:
                    node.meta.pop(key, None)


def is_kept_affine(node: Node, keeps: Callable[[Node], bool]) -> bool:
    """Return whether a call of torchao belongs to a linear that a partitioner wants whole, and takes with it.

    XNNPACK's partitioner asks for these operators wherever they are, and takes, or computes right, no others.

    Args:
        node: A call of an exported program.
        keeps: Whether the partitioner wants a call whole.
    """
    if _name(node) not in _AFFINE:
        return keeps(node)
    reached = [node]
    while reached:
        one = reached.pop()
        for user in one.users:
            if _name(user) == "linear":
                if keeps(user):
                    return True
            elif user.target is operator.getitem or _name(user) in _AFFINE:
                reached.append(user)
    return False


def check_affine_weights(program: ExportedProgram) -> Iterator[Diagnostic]:
    """Find products with weights that `dequantize_affine` makes whose scales are lost.

    Linears of activations that are quantized as well are right; once linears are decomposed, none is.
    """
    for node in program.graph.nodes:
        if _name(node) in ("mm", "addmm"):
            moved = node.args[-1]
            wrong = _name(moved) in ("permute_copy", "t_copy") and _name(moved.args[0]) == "dequantize_affine"
        elif _name(node) == "linear":
            given, weight = node.args[:2]
            wrong = _name(weight) == "dequantize_affine" and not _name(given).startswith("dequantize_")
        else:
            continue
        if wrong:
            yield Diagnostic(
                code="EK755",
                message="XNNPACK loses the scales of the integer weights of this product",
                location=locate(node),
                expected="a linear whose activations are quantized as well, lowered by `to_edge_transform_and_lower`",
                hint="quantize by `Int8WeightOnlyConfig`, or activations as well",
            )


def _name(node: Node) -> str:
    """Return the name of an operator, without its library and overload."""
    return operator_name(node.target).partition(".")[2].partition(".")[0] if node.op == "call_function" else ""
