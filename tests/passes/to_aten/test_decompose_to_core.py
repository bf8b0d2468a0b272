"""Decomposition node by node ends in the same graph as torch's re-tracing of the whole."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.models.zoo import CASES
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from exirkit.ir import GraphEditor, copy_program, same_value
from exirkit.passes import StateResultLayouts, WholeGraphNeededError, beyond_core, decomposition_passes, run_passes

# What torch's re-tracing drops and a local decomposition leaves: views of everything, which later passes remove.
_IDENTITIES = {torch.ops.aten.alias.default, torch.ops.aten.detach.default}


def decomposed(program: ExportedProgram) -> ExportedProgram:
    copied = copy_program(program)
    # torch states no layouts of results before it decomposes.
    passes = [one for one in decomposition_passes() if one.name != StateResultLayouts.name]
    run_passes(GraphEditor(copied), passes)
    return copied


def shape_of(graph: Graph) -> list[tuple[Any, ...]]:
    """Describe a graph by operators and wiring, identities left out and defaults filled in."""
    numbers: dict[Node, int] = {}
    sizes: dict[Node, str] = {}
    described: list[tuple[Any, ...]] = []
    for node in graph.nodes:
        if node.target in _IDENTITIES or renames_strides(node):
            numbers[node] = numbers[node.args[0]]
            continue
        if isinstance(node.meta.get("val"), torch.SymInt):
            # A size that varies is told by its expression, wherever it was read from and however often.
            sizes[node] = str(node.meta["val"])
            continue
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            continue
        numbers[node] = len(described)
        args, kwargs = map_arg(normal(node), lambda argument: sizes.get(argument) or ("node", numbers[argument]))
        if node.target is torch.ops.aten.lift_fresh_copy.default:
            # Functionalisation calls a copy of a constant a clone.
            described.append((node.op, "aten.clone.default", repr(args), repr(kwargs)))
            continue
        described.append((node.op, str(node.target) if node.op == "call_function" else "", repr(args), repr(kwargs)))
    return described


def renames_strides(node: Node) -> bool:
    """Whether a node gives other strides to dims of one element; pooling ends so in torch, and it means nothing."""
    if node.target is not torch.ops.aten.as_strided.default:
        return False
    source, sizes, strides = node.args[:3]
    before = source.meta["val"]  # type: ignore[union-attr]
    pairs = zip(sizes, strides, before.stride(), strict=True)  # type: ignore[arg-type]
    return list(before.shape) == list(sizes) and all(size == 1 or one == other for size, one, other in pairs)  # type: ignore[arg-type]


def normal(node: Node) -> tuple[Any, Any]:
    """Return arguments by name without those that have their default, whichever way they were given."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return node.args, node.kwargs
    given = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False)) | node.kwargs
    defaults = {argument.name: argument.default_value for argument in schema.arguments if argument.has_default_value()}
    ignored = {"device", "layout", "pin_memory"}
    kept = {
        name: list(value) if isinstance(value, tuple | list) else value
        for name, value in given.items()
        if name not in ignored and not (name in defaults and repr(value) == repr(defaults[name]))
    }
    return (), dict(sorted(kept.items()))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_same_graph_as_torch(name: str) -> None:
    for program in CASES[name].make().export().values():
        try:
            ours = decomposed(program)
        except WholeGraphNeededError as error:
            pytest.skip(f"torch decomposes this one for us: {error.diagnostics[0].message}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = torch.export.default_decompositions()
            table.update(beyond_core())
            theirs = program.run_decompositions(table)
        if not writes(program):
            # Views of what is written to are computed again in another order than torch's.
            assert shape_of(ours.graph) == shape_of(theirs.graph)
        mutations = [(spec.kind, spec.target) for spec in ours.graph_signature.output_specs]
        assert mutations == [(spec.kind, spec.target) for spec in theirs.graph_signature.output_specs]
        for mine, other in zip(results(ours.graph), results(theirs.graph), strict=True):
            assert same_value(mine.meta["val"], other.meta["val"])


def writes(program: ExportedProgram) -> bool:
    schemas = (getattr(node.target, "_schema", None) for node in program.graph.nodes)
    return any(schema is not None and schema.is_mutable for schema in schemas)


def results(graph: Graph) -> list[Node]:
    return [node for node in graph.output_node().args[0] if isinstance(node, Node)]  # type: ignore[union-attr]


def test_the_size_of_a_dim_that_does_not_vary_becomes_a_number() -> None:
    class Rows(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(-1, 2, 3).relu()

    program = copy_program(torch.export.export(Rows(), (torch.ones(4, 3),), strict=False))
    editor = GraphEditor(program)
    (reshaped,) = (node for node in program.graph.nodes if node.target is torch.ops.aten.view.default)
    with editor.transaction("test"):
        size = editor.call(torch.ops.aten.sym_size.int, (reshaped.args[0], 1), before=reshaped, val=3)
        editor.rewire(reshaped, (reshaped.args[0], [2, 2, size]))
    run_passes(editor, decomposition_passes())
    (reshaped,) = (node for node in program.graph.nodes if node.target is torch.ops.aten.view.default)
    assert list(reshaped.args[1]) == [2, 2, 3]
    assert not program.graph.find_nodes(op="call_function", target=torch.ops.aten.sym_size.int)


_AFTER_ATTENTION: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "a linear": lambda model, y: model.linear(torch.relu(y)),
    "a view": lambda _, y: torch.relu(y).view(28, 48) * 2,
    "a view within rows": lambda _, y: torch.relu(y).view(4, 21, 16).sum(1),
    "two views": lambda model, y: model.linear(torch.relu(torch.relu(y).view(28, 48)).view(7, 4, 48)),
}


@pytest.mark.parametrize("name", _AFTER_ATTENTION)
def test_results_that_lie_otherwise_when_decomposed(name: str) -> None:
    """Attention is exported in the layout of its kernel; what it is decomposed to has another one."""

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(48, 5)

        def forward(self, x: torch.Tensor) -> Any:
            heads = x.view(4, 7, 3, 16).transpose(1, 2)
            y = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
            return _AFTER_ATTENTION[name](self, y.transpose(1, 2).reshape(4, 7, -1))

    model, x = Attention().eval(), torch.randn(4, 7, 48)
    with torch.no_grad():
        found = decomposed(torch.export.export(model, (x,))).module()(x)
        torch.testing.assert_close(found, model(x))
