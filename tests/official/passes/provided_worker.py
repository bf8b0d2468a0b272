"""Functions of `exirkit.exir` beside the official ones of the same name, on the same programs, in a process of its own.

    python -m tests.official.passes.provided_worker

Each line is JSON: the name, what it was tried on, and both descriptions of what it made.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tests.official.backends.migrated_worker import MODELS
from tests.official.quantization.models import quantized
from torch import nn
from torch.export import Dim, ExportedProgram

from exirkit import to_edge
from exirkit.bridge import official_program

Pair = tuple[Any, Any]


class Repeating(nn.Module):
    """Equal calls, an unused result, a constant that follows from others, and numbers where tensors may stand."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        doubled = self.weight * 2.0 + self.weight
        self.count.add_(1.0)
        return torch.sigmoid(x) @ doubled + torch.sigmoid(x), (x + 1).sum(0)


class Choosing(nn.Module):
    """A branch within a branch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.max() > 1, lambda x: x.sin(), lambda x: x.cos(), [x])

        return torch.cond(x.sum() > 0, inner, lambda x: x - 1, [x]) * 2


def programs() -> Iterator[tuple[str, ExportedProgram]]:
    """Yield exported programs with their names."""
    for name, make in MODELS.items():
        torch.manual_seed(3)
        module, inputs = make()
        yield name, torch.export.export(module.eval(), inputs)
    yield "repeating", torch.export.export(Repeating(), (torch.randn(4, 4),))
    yield "choosing", torch.export.export(Choosing(), (torch.randn(3),))
    sizes = ({0: Dim("rows", min=2, max=9)},)
    yield "any rows", torch.export.export(Repeating(), (torch.randn(4, 4),), dynamic_shapes=sizes)
    for name in ("residual", "linear-per-channel"):
        yield f"quantised {name}", quantized(name)[0]


def both(module: str, name: str) -> Pair:
    """Return a function of exirkit and the official one."""
    return tuple(
        getattr(importlib.import_module(f"{root}.{module}"), name) for root in ("exirkit.exir", "executorch.exir")
    )


def described(module: torch.fx.GraphModule) -> list[Any]:
    """Return the calls of a graph with their arguments; nodes are numbered in order, names of constants left out."""
    numbers: dict[Any, int] = {}
    lines: list[Any] = []
    for node in module.graph.nodes:
        numbers[node] = len(numbers)
        if node.op == "call_function":
            args = torch.fx.map_arg((list(node.args), dict(node.kwargs)), lambda one: f"%{numbers[one]}")
            lines.append([getattr(node.target, "__name__", str(node.target)), str(args)])
        elif node.op == "output":
            lines.append(["output", str(torch.fx.map_arg(list(node.args[0]), lambda one: f"%{numbers[one]}"))])
    return lines


def counted(module: torch.fx.GraphModule) -> list[str]:
    """Return the names of the operators, sorted: for passes that may put constants and calls in another order."""
    return sorted(
        getattr(node.target, "__name__", str(node.target)) for node in module.graph.nodes if node.op == "call_function"
    )


def specs(module: torch.fx.GraphModule) -> list[Any]:
    """Return what the specs of all nodes say."""
    made = []
    for node in module.graph.nodes:
        leaves = torch.utils._pytree.tree_leaves(node.meta.get("spec"))
        made.append(
            [
                [str(one.dtype), [str(s) for s in one.shape], one.const] if hasattr(one, "dtype") else str(one)
                for one in leaves
            ]
        )
    return made


def over_module(find: Pair, describe: Callable[[Any], Any], arguments: tuple[Any, ...] = ()) -> Callable[[Pair], Pair]:
    """Return the trial of passes over graph modules: classes, or functions."""

    def trial(pair: Pair) -> Pair:
        made = []
        for program, one in zip(pair, find, strict=True):
            call = one(*arguments) if isinstance(one, type) else one
            made.append(describe(call(program.graph_module).graph_module))
        return made[0], made[1]

    return trial


def over_program(find: Pair, describe: Callable[[Any], Any]) -> Callable[[Pair], Pair]:
    """Return the trial of functions from programs to programs."""
    return lambda pair: tuple(describe(one(program).graph_module) for program, one in zip(pair, find, strict=True))


def with_dead_calls(pair: Pair) -> Pair:
    """Insert calls that nothing uses."""
    for program in pair:
        graph = program.graph_module.graph
        for node in [one for one in graph.nodes if one.op == "call_function" and hasattr(one.target, "_schema")][::2]:
            with graph.inserting_after(node):
                made = graph.node_copy(node)
            with graph.inserting_after(made):
                graph.node_copy(node).meta = copy.copy(node.meta)
    return pair


def bounded(pair: Pair) -> Pair:
    """Set specs, and bound their sizes."""
    for place, root in enumerate(("exirkit.exir", "executorch.exir")):
        passes = [
            getattr(importlib.import_module(f"{root}.passes.{file}"), name)
            for file, name in (
                ("spec_prop_pass", "SpecPropPass"),
                ("sym_shape_eval_pass", "ConstraintBasedSymShapeEvalPass"),
            )
        ]
        module = pair[place].graph_module
        for one in passes:
            module = one()(module).graph_module
        pair[place]._graph_module = module
    return specs(pair[0].graph_module), specs(pair[1].graph_module)


def nested(pair: Pair) -> Pair:
    """Count the graphs of branches."""
    functions = both("graph_module", "get_control_flow_submodules")
    return tuple(  # type: ignore[return-value]
        [(name, node.name, described(module)) for name, module, node in one(program.graph_module)]
        for program, one in zip(pair, functions, strict=True)
    )


def with_equal_calls(pair: Pair) -> Pair:
    """Let the last call of each graph take copies of the calls that lead to it."""
    for program in pair:
        _copy_calls(program.graph_module.graph)
    return pair


def _copy_calls(graph: torch.fx.Graph) -> None:
    copies: dict[Any, Any] = {}
    calls = [one for one in graph.nodes if one.op == "call_function" and hasattr(one.target, "_schema")]
    for node in calls[:-1]:
        with graph.inserting_after(node):
            copies[node] = graph.node_copy(node, lambda one: copies.get(one, one))
    if calls:
        calls[-1].args = torch.fx.map_arg(calls[-1].args, lambda one: copies.get(one, one))


def tagged(pair: Pair, name: str) -> Pair:
    """Tag the calls, and then what is stored for them; return the tags in the order of inputs."""
    made = []
    for program, one in zip(pair, both("backend.utils", name), strict=True):
        for node in program.graph.nodes:
            if node.op == "call_function":
                node.meta["delegation_tag"] = "all"
        one(program)
        made.append([node.meta.get("delegation_tag") for node in program.graph.nodes if node.op == "placeholder"])
    return made[0], made[1]


TRIALS: dict[str, Callable[[Pair], Pair]] = {
    "dead_code_elimination_pass": lambda pair: over_module(both("passes", "dead_code_elimination_pass"), described)(
        with_dead_calls(pair)
    ),
    "CSEPass": over_module(both("passes.cse_pass", "CSEPass"), counted),
    "CSEPass of equal calls": lambda pair: over_module(both("passes.cse_pass", "CSEPass"), counted)(
        with_equal_calls(pair)
    ),
    "RemoveGraphAssertsPass": over_module(
        both("passes.remove_graph_asserts_pass", "RemoveGraphAssertsPass"), described
    ),
    "ScalarToTensorPass": over_module(both("passes.scalar_to_tensor_pass", "ScalarToTensorPass"), counted),
    "DimOrderOpsRevertPass": over_module(both("passes.memory_format_ops_pass", "DimOrderOpsRevertPass"), counted),
    "DuplicateDequantNodePass": over_module(
        both("backend.canonical_partitioners.duplicate_dequant_node_pass", "DuplicateDequantNodePass"), counted
    ),
    "SpecPropPass": over_module(both("passes.spec_prop_pass", "SpecPropPass"), specs),
    "ConstraintBasedSymShapeEvalPass": bounded,
    "constant_prop_pass": over_program(both("passes.constant_prop_pass", "constant_prop_pass"), counted),
    "reinplace_pass": over_program(both("passes.reinplace", "reinplace_pass"), counted),
    "lift_constant_tensor_pass": over_program(both("program._program", "lift_constant_tensor_pass"), counted),
    "get_control_flow_submodules": nested,
    "tag_constant_data": lambda pair: tagged(pair, "tag_constant_data"),
    "tag_mutated_buffer": lambda pair: tagged(pair, "tag_mutated_buffer"),
    "FoldRedundantDequantizeQuantizePass": over_module(
        both("passes.fold_redundant_qdq_pass", "FoldRedundantDequantizeQuantizePass"), counted
    ),
}


def plain() -> Iterator[tuple[str, str, Pair]]:
    """Yield what functions of numbers and dtypes return, and the names of the errors that they raise."""
    sizes = [(), (1,), (0, 3), (2, 3, 5), (2, 3, 4, 5), (7, 1, 1, 3)]
    formats = [None, torch.contiguous_format, torch.channels_last, torch.preserve_format]
    cases: dict[tuple[str, str], list[tuple[Any, ...]]] = {
        ("tensor", "num_bytes_from_shape_and_dtype"): [
            (torch.Size(size), dtype) for size in sizes for dtype in (torch.float32, torch.int8, torch.bool)
        ],
        ("tensor", "scalar_type_enum"): [(one,) for one in (torch.float32, torch.int64, torch.bool, torch.uint8)],
        ("tensor", "stride_from_dim_order"): [
            (list(size), list(order))
            for size in sizes
            for order in itertools.islice(itertools.permutations(range(len(size))), 6)
        ],
        ("tensor", "dim_order_from_stride"): [((12, 4, 1),), ((1, 5, 20),), ((60, 1, 15, 3),), ((),), ((3, 3, 1),)],
        ("dim_order_utils", "get_dim_order"): [(form, 4) for form in formats],
        ("dim_order_utils", "get_memory_format"): [([0, 1, 2, 3],), ([0, 2, 3, 1],), ([0, 1],)],
        ("dim_order_utils", "is_channel_last_dim_order"): [
            (torch.zeros(2, 3, 4, 5),),
            (torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),),
        ],
        ("_serialize.padding", "aligned_size"): [(size, by) for size in (0, 1, 15, 16, 17) for by in (1, 8, 16)],
        ("_serialize.padding", "padding_required"): [(size, by) for size in (0, 1, 15, 16, 17) for by in (1, 8, 16)],
        ("_serialize.padding", "pad_to"): [(b"ab", 2), (b"ab", 7)],
        ("backend.canonical_partitioners.config_partitioner", "format_target_name"): [("aten.add.Tensor",), ("x",)],
        ("sym_util", "eval_shape"): [([2, 3],), ([],)],
        ("sym_util", "eval_shape_upper_bound"): [([2, 3],), ([],)],
    }
    for (module, name), arguments in cases.items():
        for given in arguments:
            yield name, str(given)[:60], tuple(_returned(one, given) for one in both(module, name))


def _returned(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    try:
        made = function(*given)
    except Exception:
        return "error"
    return str(list(made)) if isinstance(made, list | tuple | torch.Size) else str(getattr(made, "name", made))


def main() -> None:
    warnings.simplefilter("ignore")
    for name, given, pair in plain():
        _print(name, given, pair)
    for model, exported in programs():
        ours = to_edge(exported).exported_program()
        for name, trial in TRIALS.items():
            # Each has a copy of its own, since some edit what they are given.
            mine = copy.deepcopy(ours)
            _print(name, model, trial((mine, official_program(ours))))


def _print(name: str, given: str, pair: Pair) -> None:
    sys.stdout.write(json.dumps({"name": name, "given": given, "ours": pair[0], "theirs": pair[1]}) + "\n")


if __name__ == "__main__":
    main()
