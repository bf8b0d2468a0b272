"""Classes of corruption: what each breaks in a valid program, and which finding has to come of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from tests.verifiers.corruption_programs import bodies, call_in, calls_where, forget_programs, program
from torch._subclasses import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from exirkit.ir import TensorShapeDynamism, alloc, edge_operator, underlying

# Breaks a graph of a program and returns the code and the name of the node that must be named.
Break = Callable[[ExportedProgram, GraphModule], "tuple[str, Node]"]

FUNCTIONAL = ("aten", "edge")
EVERYWHERE = (*FUNCTIONAL, "executorch")


@dataclass(frozen=True)
class Corruption:
    """One class.

    Attributes:
        name: What is done.
        apply: Does it.
        programs: Programs to which it is done; see `program`.
        depths: Graphs to which it is done: the method, its branch, the branch within that.
        spoils_sizes: Whether torch remembers it beside the program, for every program of these sizes.
    """

    name: str
    apply: Break
    programs: Sequence[str]
    depths: Sequence[int] = (0, 1, 2)
    spoils_sizes: bool = False

    def cases(self) -> Iterator[tuple[str, int]]:
        """Yield what to break: names of programs and depths."""
        for name in self.programs:
            for depth in self.depths:
                yield name, depth


CORRUPTIONS: list[Corruption] = []


def corrupts(*programs: str, depths: Sequence[int] = (0, 1, 2), spoils_sizes: bool = False) -> Callable[[Break], Break]:
    """Register the decorated function."""

    def register(function: Break) -> Break:
        CORRUPTIONS.append(Corruption(function.__name__, function, programs, depths, spoils_sizes))
        return function

    return register


def breaks_call(
    code: str, *programs: str, depths: Sequence[int] = (0, 1, 2), call: str | None = None
) -> Callable[[Callable[[Node], None]], Callable[[Node], None]]:
    """Register a function that breaks one call: the last of float tensors, or that of an operator."""

    def register(function: Callable[[Node], None]) -> Callable[[Node], None]:
        def apply(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
            node = float_call(module) if call is None else call_in(module, call)
            function(node)
            return code, node

        CORRUPTIONS.append(Corruption(function.__name__, apply, programs, depths))
        return function

    return register


def corrupted(one: Corruption, name: str, depth: int) -> tuple[ExportedProgram, str, Node]:
    """Return a broken copy of a program, and the code and node of the finding."""
    if one.spoils_sizes:
        forget_programs()
    made = program(name)
    code, node = one.apply(made, bodies(made, depth=depth))
    if one.spoils_sizes:
        forget_programs()
    return made, code, node


def float_call(module: GraphModule) -> Node:
    """Return the last call of a graph that computes a float tensor with sizes from one or two tensors."""
    return calls_where(module, _computes_rows)[-1]


def _computes_rows(node: Node) -> bool:
    value = node.meta.get("val")
    is_operator = getattr(underlying(node.target), "_schema", None) is not None
    return is_operator and isinstance(value, torch.Tensor) and value.dim() == 2 and value.is_floating_point()


def set_value(node: Node, value: Any) -> None:
    """Record a value."""
    node.meta["val"] = value


def like(node: Node, **changes: Any) -> torch.Tensor:
    """Return a fake tensor as recorded of a node, with another `dtype` or `shape`."""
    value = node.meta["val"]
    with value.fake_mode:
        return torch.empty(changes.get("shape", tuple(value.shape)), dtype=changes.get("dtype", value.dtype))


@breaks_call("EK315", *EVERYWHERE)
def wrong_dtype_recorded(node: Node) -> None:
    set_value(node, like(node, dtype=torch.float64))


@breaks_call("EK316", *EVERYWHERE)
def wrong_size_recorded(node: Node) -> None:
    set_value(node, like(node, shape=(node.meta["val"].shape[0], 5)))


@breaks_call("EK316", *EVERYWHERE)
def wrong_symbolic_size_recorded(node: Node) -> None:
    set_value(node, like(node, shape=(node.meta["val"].shape[0] * 2, 4)))


@breaks_call("EK318", *EVERYWHERE)
def wrong_rank_recorded(node: Node) -> None:
    set_value(node, like(node, shape=(4,)))


@breaks_call("EK318", *EVERYWHERE)
def list_recorded_for_a_tensor(node: Node) -> None:
    set_value(node, [node.meta["val"]])


@breaks_call("EK320", *EVERYWHERE)
def symbol_of_another_program(node: Node) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    # Symbols are called after their place; what is dangling has to have a name of its own.
    for _attempt in range(3):
        mode.from_tensor(torch.ones(9, 4), symbolic_context=context)
    foreign = mode.from_tensor(torch.ones(6, 4), symbolic_context=context)
    set_value(node, foreign)


@breaks_call("EK305", "edge", "executorch")
def value_lost(node: Node) -> None:
    del node.meta["val"]


@corrupts(*EVERYWHERE)
def use_before_definition(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    user = float_call(module)
    source = next(
        one for one in reversed(user.all_input_nodes) if one.op == "call_function" and one.target is not alloc
    )
    user.append(source)
    return "EK306", user


@corrupts(*EVERYWHERE, depths=(1, 2))
def value_of_the_graph_around(made: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    node = float_call(module)
    node.args = (made.graph.find_nodes(op="placeholder")[-1], *node.args[1:])
    return "EK306", node


@corrupts(*EVERYWHERE)
def name_given_twice(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    node = float_call(module)
    node.name = next(one.name for one in module.graph.nodes if one is not node and one.op == "call_function")
    return "EK307", node


@corrupts(*EVERYWHERE)
def input_behind_calls(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    node = module.graph.find_nodes(op="placeholder")[-1]
    other = module.graph.placeholder("late")
    other.meta = dict(node.meta)
    float_call(module).append(other)
    return "EK308", other


@breaks_call("EK308", *EVERYWHERE)
def method_called(node: Node) -> None:
    node.op, node.target = "call_method", "relu"


@corrupts(*EVERYWHERE, depths=(0, 1))
def body_taken_away(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    node = module.graph.find_nodes(op="get_attr")[0]
    delattr(module, str(node.target))
    return "EK309", node


@breaks_call("EK310", *FUNCTIONAL)
def argument_missing(node: Node) -> None:
    node.args = node.args[:-1]


@breaks_call("EK310", *EVERYWHERE)
def unknown_argument(node: Node) -> None:
    node.kwargs = {**node.kwargs, "strength": 2}


@breaks_call("EK311", *EVERYWHERE)
def text_for_a_tensor(node: Node) -> None:
    node.args = ("weight", *node.args[1:])


@breaks_call("EK311", *FUNCTIONAL)
def size_that_no_node_computes(node: Node) -> None:
    size = node.meta["val"].shape[0]
    assert isinstance(size, torch.SymInt)
    node.args = (node.args[0], size)


@breaks_call("EK304", "edge")
def number_for_a_tensor(node: Node) -> None:
    node.args = (2.0, *node.args[1:])


@breaks_call("EK301", "aten")
def operator_that_is_not_core(node: Node) -> None:
    node.target, node.args, node.kwargs = torch.ops.aten.silu.default, node.args[:1], {}


@breaks_call("EK302", *FUNCTIONAL)
def operator_that_writes(node: Node) -> None:
    writing = torch.ops.aten.relu_.default
    node.target = writing if isinstance(node.target, torch._ops.OpOverload) else edge_operator(writing)
    node.args, node.kwargs = node.args[:1], {}


@breaks_call("EK303", "edge")
def torch_operator_in_edge(node: Node) -> None:
    node.target = underlying(node.target)


@breaks_call("EK312", "edge", "executorch")
def python_function(node: Node) -> None:
    node.target = torch.nn.functional.relu


@breaks_call("EK313", "executorch")
def functional_operator_in_executorch(node: Node) -> None:
    node.target, node.args, node.kwargs = torch.ops.aten.relu.default, node.args[:1], {}


@breaks_call("EK314", "edge")
def view_in_edge(node: Node) -> None:
    node.target, node.args = edge_operator(torch.ops.aten.alias.default), node.args[:1]


@breaks_call("EK319", *FUNCTIONAL)
def dim_that_is_not_there(node: Node) -> None:
    op = torch.ops.aten.amax.default
    node.target = op if isinstance(node.target, torch._ops.OpOverload) else edge_operator(op)
    node.args, node.kwargs = (node.args[0], [5]), {}


@breaks_call("EK335", "executorch")
def out_argument_left_out(node: Node) -> None:
    node.kwargs = {name: value for name, value in node.kwargs.items() if name != "out"}


@breaks_call("EK336", "executorch")
def out_argument_that_is_read(node: Node) -> None:
    node.args = (node.kwargs["out"], *node.args[1:])


@corrupts("executorch")
def out_argument_of_two_calls(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    first, second = calls_where(module, lambda one: "out" in one.kwargs)[-2:]
    second.kwargs = {**second.kwargs, "out": first.kwargs["out"]}
    return "EK336", second


@corrupts("executorch")
def result_written_over_an_input(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    node = float_call(module)
    node.kwargs = {**node.kwargs, "out": module.graph.find_nodes(op="placeholder")[-1]}
    return "EK335", node


@corrupts("executorch")
def alloc_of_another_dtype(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    memory: Any = float_call(module).kwargs["out"]
    memory.args = ((memory.args[0][0], torch.float16),)
    return "EK337", memory


@corrupts("executorch")
def alloc_below_the_bound(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    memory: Any = float_call(module).kwargs["out"]
    memory.args = (((3, 4), torch.float32),)
    return "EK337", memory


@breaks_call("EK338", "executorch")
def spec_of_another_dtype(node: Node) -> None:
    node.meta["spec"].dtype = torch.int32


@breaks_call("EK349", "executorch")
def spec_that_is_a_copy(node: Node) -> None:
    node.meta["spec"] = copy.copy(node.meta["spec"])


@breaks_call("EK338", "executorch")
def spec_lost(node: Node) -> None:
    del node.meta["spec"]


@breaks_call("EK338", "executorch")
def varying_size_declared_static(node: Node) -> None:
    node.meta["spec"].shape_dynamism = TensorShapeDynamism.STATIC


@corrupts("executorch", depths=(0,))
def input_declared_constant(program: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    specs = program.graph_signature.input_specs
    nodes = module.graph.find_nodes(op="placeholder")
    node = next(one for one, spec in zip(nodes, specs, strict=True) if spec.kind is InputKind.USER_INPUT)
    node.meta["spec"] = copy.copy(node.meta["spec"])
    node.meta["spec"].const = True
    return "EK338", node


@breaks_call("EK339", "executorch")
def dim_order_that_is_none(node: Node) -> None:
    node.meta["spec"].dim_order = [0, 0]


@breaks_call("EK340", "executorch")
def size_without_bound(node: Node) -> None:
    node.meta["spec"].shape = list(node.meta["val"].shape)
    node.meta["spec"].stride = list(node.meta["val"].stride())


@breaks_call("EK350", "edge")
def handle_lost(node: Node) -> None:
    del node.meta["debug_handle"]


@breaks_call("EK351", "edge")
def handle_that_is_none(node: Node) -> None:
    node.meta["debug_handle"] = 0


@corrupts("plain edge", depths=(0,))
def handle_of_another_node(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    first, second = calls_where(module, lambda one: bool(one.meta.get("from_node")))[:2]
    second.meta["debug_handle"] = first.meta["debug_handle"]
    return "EK352", second


@breaks_call("EK353", "edge", "executorch")
def dtype_that_no_kernel_takes(node: Node) -> None:
    op = torch.ops.aten.bitwise_not.out if "out" in node.kwargs else edge_operator(torch.ops.aten.bitwise_not.default)
    node.target, node.args = op, node.args[:1]


@breaks_call("EK354", "edge")
def dtype_that_no_kernel_returns(node: Node) -> None:
    set_value(node, like(node, dtype=torch.int8))


@breaks_call("EK317", "planned", depths=(0,), call="permute")
def layout_of_another_kind(node: Node) -> None:
    value = node.meta["val"]
    with value.fake_mode:
        set_value(node, torch.empty(tuple(reversed(value.shape)), dtype=value.dtype).t())


# Control flow.


@breaks_call("EK330", *EVERYWHERE, depths=(0, 1), call="cond")
def operand_missing(node: Node) -> None:
    node.args = (*node.args[:3], ())


@breaks_call("EK330", *EVERYWHERE, depths=(0, 1), call="cond")
def operand_of_another_dtype(node: Node) -> None:
    node.args = (*node.args[:3], (node.args[0],))


@corrupts(*EVERYWHERE, depths=(0, 1))
def branch_of_another_dtype(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    node = call_in(module, "cond")
    body: Any = getattr(module, str(node.args[1].target))  # type: ignore[union-attr]
    result = body.graph.output_node().args[0][0]
    set_value(result, like(result, dtype=torch.float64))
    return "EK331", node


@corrupts(*EVERYWHERE, depths=(0, 1))
def branch_that_returns_more(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    node = call_in(module, "cond")
    body: Any = getattr(module, str(node.args[2].target))  # type: ignore[union-attr]
    result = body.graph.output_node().args[0][0]
    body.graph.output_node().args = ((result, result),)
    return "EK331", node


@breaks_call("EK332", *EVERYWHERE, depths=(0, 1), call="cond")
def condition_that_is_not_a_truth(node: Node) -> None:
    condition: Any = node.args[0]
    node.args = (condition.args[0], *node.args[1:])


@breaks_call("EK334", *EVERYWHERE, depths=(0, 1), call="cond")
def result_of_branches_recorded_wrong(node: Node) -> None:
    (value,) = node.meta["val"]
    with value.fake_mode:
        set_value(node, (torch.empty(tuple(value.shape), dtype=torch.int64),))


@corrupts("loops", depths=(0,))
def carry_of_another_dtype(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    node = call_in(module, "scan")
    body: Any = getattr(module, str(node.args[0].target))  # type: ignore[union-attr]
    carried = body.graph.output_node().args[0][0]
    set_value(carried, like(carried, dtype=torch.float16))
    return "EK333", node


@corrupts("loops", depths=(0,))
def carry_that_is_not_returned(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    node = call_in(module, "while_loop")
    body: Any = getattr(module, str(node.args[1].target))  # type: ignore[union-attr]
    body.graph.output_node().args = (body.graph.output_node().args[0][:1],)
    return "EK333", node


@corrupts("loops", depths=(0,))
def loop_without_condition(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    node = call_in(module, "while_loop")
    body: Any = getattr(module, str(node.args[0].target))  # type: ignore[union-attr]
    body.graph.output_node().args = (body.graph.find_nodes(op="placeholder")[1],)
    return "EK332", node


@corrupts("loops", depths=(0,))
def rows_of_another_width(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    node = call_in(module, "map")
    body: Any = getattr(module, str(node.args[0].target))  # type: ignore[union-attr]
    row = body.graph.find_nodes(op="placeholder")[0]
    set_value(row, like(row, shape=(9,)))
    return "EK330", node


# Signature and state: of methods only.


def _input(made: ExportedProgram, prefix: str) -> Node:
    return next(node for node in made.graph.find_nodes(op="placeholder") if node.name.startswith(prefix))


@corrupts(*EVERYWHERE, depths=(0,))
def input_without_spec(made: ExportedProgram, _: GraphModule) -> tuple[str, Node]:
    made.graph_signature.input_specs.pop()
    return "EK323", made.graph.output_node()


@corrupts(*EVERYWHERE, depths=(0,))
def mutation_without_spec(made: ExportedProgram, _: GraphModule) -> tuple[str, Node]:
    made.graph_signature.output_specs.pop(0)
    return "EK323", made.graph.output_node()


@corrupts(*EVERYWHERE, depths=(0,))
def inputs_in_another_order(made: ExportedProgram, _: GraphModule) -> tuple[str, Node]:
    made.graph_signature.input_specs.reverse()
    return "EK324", _input(made, "p_weight")


@corrupts(*EVERYWHERE, depths=(0,))
def output_of_another_name(made: ExportedProgram, _: GraphModule) -> tuple[str, Node]:
    specs = made.graph_signature.output_specs
    specs[-1] = replace(specs[-1], arg=TensorArgument("elsewhere"))
    return "EK324", made.graph.output_node()


@corrupts(*EVERYWHERE, depths=(0,))
def weight_that_is_not_stored(made: ExportedProgram, _: GraphModule) -> tuple[str, Node]:
    del made.state_dict["weight"]
    return "EK325", _input(made, "p_weight")


@corrupts(*EVERYWHERE, depths=(0,))
def weight_of_another_dtype(made: ExportedProgram, _: GraphModule) -> tuple[str, Node]:
    made.state_dict["weight"] = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
    return "EK326", _input(made, "p_weight")


@corrupts(*EVERYWHERE, depths=(0,))
def weight_of_another_shape(made: ExportedProgram, _: GraphModule) -> tuple[str, Node]:
    made.state_dict["weight"] = torch.nn.Parameter(torch.ones(1))
    return "EK326", _input(made, "p_weight")


@corrupts(*EVERYWHERE, depths=(0,))
def constant_output_of_another_value(made: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    output = module.graph.output_node()
    results: Any = output.args[0]
    output.args = ((*results[:-1], 7),)
    made.graph_signature.output_specs[-1] = replace(
        made.graph_signature.output_specs[-1], arg=ConstantArgument(name="", value=8)
    )
    return "EK327", output


@corrupts(*EVERYWHERE, depths=(0,))
def mutation_of_nothing(made: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    specs = made.graph_signature.output_specs
    assert specs[0].kind is OutputKind.BUFFER_MUTATION
    specs[0] = replace(specs[0], target="counter")
    results: Any = module.graph.output_node().args[0]
    return "EK328", results[0]


@corrupts(*EVERYWHERE, depths=(0,))
def mutation_of_another_shape(made: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    buffer = _input(made, "b_count")
    set_value(buffer, like(buffer, shape=(1,)))
    made.state_dict["count"] = torch.zeros(1)
    results: Any = module.graph.output_node().args[0]
    return "EK328", results[0]


@corrupts(*EVERYWHERE, depths=(0,))
def range_that_is_gone(made: ExportedProgram, _: GraphModule) -> tuple[str, Node]:
    made._range_constraints.clear()
    return "EK321", _input(made, "x")


@corrupts(*EVERYWHERE, depths=(0,))
def range_that_is_empty(made: ExportedProgram, _: GraphModule) -> tuple[str, Node]:
    for symbol, promised in list(made._range_constraints.items()):
        made._range_constraints[symbol] = type("Range", (), {"lower": promised.upper, "upper": promised.lower})()
    return "EK322", _input(made, "x")


@corrupts(*EVERYWHERE, depths=(0,), spoils_sizes=True)
def size_that_was_asked_for_its_number(made: ExportedProgram, _: GraphModule) -> tuple[str, Node]:
    node = _input(made, "x")
    assert int(node.meta["val"].shape[0]) > 0
    return "EK329", node


# The memory plan.


def _memory(module: GraphModule) -> Any:
    """Return the first operator that writes into planned memory, whose spec the alloc shares."""
    return next(one for one in calls_where(module, lambda one: "out" in one.kwargs) if one.meta["spec"].mem_id)


@corrupts("planned", depths=(0,))
def place_of_another_live_value(made: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    memory = _memory(module)
    spec = _input(made, "b_count").meta["spec"]
    memory.meta["spec"].mem_id, memory.meta["spec"].mem_offset = spec.mem_id, spec.mem_offset
    return "EK341", memory


@corrupts("planned", depths=(0,))
def place_that_is_not_aligned(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    memory = _memory(module)
    memory.meta["spec"].mem_offset += 4
    return "EK342", memory


@corrupts("planned", depths=(0,))
def place_outside_of_the_arena(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    memory = _memory(module)
    memory.meta["spec"].mem_offset = 1 << 24
    return "EK343", memory


@corrupts("planned", depths=(0,))
def place_that_is_missing(_: ExportedProgram, module: GraphModule) -> tuple[str, Node]:
    memory = _memory(module)
    memory.meta["spec"].mem_offset = None
    return "EK344", memory


@corrupts("planned", depths=(0,))
def constant_with_a_place(made: ExportedProgram, _: GraphModule) -> tuple[str, Node]:
    weight = _input(made, "p_weight")
    weight.meta["spec"].mem_id, weight.meta["spec"].mem_offset = 1, 0
    return "EK345", weight
