"""Programs that cannot be lowered, and passes that break their word."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tests.diagnostics.programs import EDGE_RELU, call_of, edge, exported, relu_module
from tests.diagnostics.provocation import provokes
from torch.fx import GraphModule

from exirkit import (
    EdgeCompileConfig,
    EdgeProgramManager,
    ExecutorchBackendConfig,
    ExportPass,
    FoldConstants,
    Pass,
    PassManager,
    ToOutVarPass,
    map_args,
    to_edge,
)
from exirkit.ir import GraphEditor, ops
from exirkit.passes import (
    PassResult,
    ReplaceViewsWithCopies,
    ScalarsToTensors,
    apply_user_passes,
    decomposition_passes,
    parse_dtype_policy,
)


class Relu(ExportPass):
    """A pass that does something with every call of relu."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        if op is not EDGE_RELU:
            return super().call_operator(op, args, kwargs, meta)
        return self.on_relu(args, kwargs, meta)

    def on_relu(self, args: Any, kwargs: Any, meta: Any) -> Any:
        raise NotImplementedError


@provokes("EK401")
def placeholder_without_value(_: Path) -> None:
    module = relu_module()
    for node in module.graph.find_nodes(op="placeholder"):
        node.meta.clear()
    ExportPass()(module)


@provokes("EK402")
def branch_on_a_tensor(_: Path) -> None:
    class Branch(Relu):
        def on_relu(self, args: Any, kwargs: Any, meta: Any) -> Any:
            return super().on_relu(args, kwargs, meta) if args[0] else args[0]

    Branch()(relu_module())


@provokes("EK403")
def hook_that_raises(_: Path) -> None:
    class Raise(Relu):
        def on_relu(self, args: Any, kwargs: Any, meta: Any) -> Any:
            raise KeyError("scale")

    Raise()(relu_module())


@provokes("EK404")
def call_that_cannot_run(_: Path) -> None:
    class Multiply(Relu):
        def on_relu(self, args: Any, kwargs: Any, meta: Any) -> Any:
            return self.call_operator(torch.ops.aten.mm.default, (args[0], args[0]), {}, meta)

    Multiply()(relu_module())


@provokes("EK405")
def node_of_the_old_graph(_: Path) -> None:
    module = relu_module()
    (x,) = module.graph.find_nodes(op="placeholder")

    class Old(Relu):
        def on_relu(self, args: Any, kwargs: Any, meta: Any) -> Any:
            return ExportPass.call_operator(self, EDGE_RELU, (x,), kwargs, meta)

    Old()(module)


@provokes("EK406")
def placeholder_that_is_dropped(_: Path) -> None:
    class Drop(ExportPass):
        def inputs(self, graph_module: GraphModule) -> list[Any]:
            return []

    Drop()(relu_module())


@provokes("EK407")
def input_whose_symbols_change(_: Path) -> None:
    class Fix(ExportPass):
        def placeholder(self, name: str, arg: Any, meta: Any) -> Any:
            return super().placeholder(name, arg.new_empty(3), meta)

    program = edge(exported(torch.relu, torch.ones(3), dynamic_shapes=({0: torch.export.Dim("n", max=8)},)))
    Fix()(program.graph_module)


@provokes("EK408")
def metadata_that_is_inferred(_: Path) -> None:
    class Set(Relu):
        def on_relu(self, args: Any, kwargs: Any, meta: Any) -> Any:
            meta["val"] = None

    Set()(relu_module())


@provokes("EK409")
def hook_outside_of_a_pass(_: Path) -> None:
    from exirkit import NodeMetadata

    ExportPass().call_operator(EDGE_RELU, (), {}, NodeMetadata({}))


@provokes("EK410")
def arguments_of_something_without_schema(_: Path) -> None:
    map_args(len, lambda value, _argument: value, (1,), {})


@provokes("EK411")
def pass_that_raises(_: Path) -> None:
    def broken(graph_module: GraphModule) -> None:
        raise KeyError("scale")

    PassManager([broken])(relu_module())


@provokes("EK412")
def pass_that_returns_a_number(_: Path) -> None:
    def counting(graph_module: GraphModule) -> int:
        return 3

    PassManager([counting])(relu_module())


@provokes("EK413")
def check_that_fails(_: Path) -> None:
    def no_relu(graph_module: GraphModule) -> None:
        raise ValueError("there is a relu")

    manager = PassManager([ExportPass()], run_checks_after_each_pass=True)
    manager.add_checks(no_relu)
    manager(relu_module())


@provokes("EK414")
def graph_that_is_malformed(_: Path) -> None:
    module = relu_module()
    relu = call_of(module, "relu")
    (x,) = module.graph.find_nodes(op="placeholder")
    relu.append(x)
    PassManager([ExportPass()], run_checks_after_each_pass=True)(module)


@provokes("EK415")
def graph_that_calls_a_method(_: Path) -> None:
    module = relu_module()
    relu = call_of(module, "relu")
    relu.op, relu.target = "call_method", "relu"
    ExportPass()(module)


@provokes("EK416")
def hook_that_returns_nothing(_: Path) -> None:
    class Forget(Relu):
        def on_relu(self, args: Any, kwargs: Any, meta: Any) -> Any:
            ExportPass.call_operator(self, EDGE_RELU, args, kwargs, meta)

    Forget()(relu_module())


class Failing(Pass):
    """A pass of our own kind that fails."""

    name = "count-relus"

    def edit(self, editor: GraphEditor) -> None:
        raise KeyError("scale")


@provokes("EK421")
def own_pass_that_raises(_: Path) -> None:
    Failing().apply(edge(exported(torch.relu, torch.ones(2))))


class Nameless(Pass):
    """A pass without a name."""

    def edit(self, editor: GraphEditor) -> None:
        pass


@provokes("EK444")
def own_pass_without_a_name(_: Path) -> None:
    Nameless().apply(edge(exported(torch.relu, torch.ones(2))))


class Raw(Pass):
    """A pass of our own kind that edits the graph itself."""

    name = "skip-relus"

    def edit(self, editor: GraphEditor) -> None:
        (relu,) = editor.graph.find_nodes(op="call_function", target=ops.edge.aten.relu.default)
        relu.replace_all_uses_with(relu.args[0])
        editor.graph.erase_node(relu)


@provokes("EK445")
def own_pass_that_edits_the_graph_itself(_: Path) -> None:
    Raw().apply(edge(exported(torch.relu, torch.ones(2))))


class Sum(Pass):
    """A pass that changes what callers get."""

    name = "sum-outputs"

    def edit(self, editor: GraphEditor) -> None:
        output = editor.graph.output_node()
        (result,) = output.all_input_nodes
        editor.replace(result, editor.call(ops.edge.aten.sum.default, (result,), before=output))


@provokes("EK446")
def own_pass_that_changes_an_output(_: Path) -> None:
    Sum().apply(edge(exported(torch.relu, torch.ones(2))))


@provokes("EK424")
def pass_that_is_a_number(_: Path) -> None:
    apply_user_passes(exported(torch.relu, torch.ones(2)), [3])


@provokes("EK425")
def pass_that_adds_an_input(_: Path) -> None:
    def add_input(graph_module: GraphModule) -> PassResult:
        first = next(iter(graph_module.graph.nodes))
        with graph_module.graph.inserting_before(first):
            graph_module.graph.placeholder("extra")
        return PassResult(graph_module, True)

    apply_user_passes(edge(exported(torch.relu, torch.ones(2))), [add_input])


@provokes("EK431")
def function_of_sizes_without_primitive(_: Path) -> None:
    dims = ({0: torch.export.Dim("n", max=8)},)
    to_edge(exported(lambda x: x * torch.sym_sqrt(x.shape[0]), torch.ones(4), dynamic_shapes=dims)).to_executorch()


@provokes("EK432")
def branches_that_are_one_graph(_: Path) -> None:
    program = exported(lambda x: torch.cond(x.sum() > 0, torch.relu, torch.neg, (x,)), torch.ones(2))
    lowered = to_edge(program).exported_program()
    call = call_of(lowered, "cond")
    call.args = (call.args[0], call.args[1], call.args[1], call.args[3])
    EdgeProgramManager(lowered).to_executorch()


@provokes("EK433")
def input_without_upper_bound(_: Path) -> None:
    dims = ({0: torch.export.Dim("n")},)
    to_edge(exported(torch.relu, torch.ones(3), dynamic_shapes=dims)).to_executorch()


@provokes("EK434")
def result_without_upper_bound(_: Path) -> None:
    def fake(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    with library("pick(Tensor x) -> Tensor", torch.clone) as pick:
        torch.library.register_fake("provoked::pick", fake)
        config = ExecutorchBackendConfig(to_out_var_pass=ToOutVarPass(ignore_to_out_var_failure=True))
        to_edge(exported(pick, torch.ones(2))).to_executorch(config)


@provokes("EK422")
def view_without_copying_variant(_: Path) -> None:
    with library("peek(Tensor(a) x) -> Tensor(a)", lambda x: x.view(x.shape)) as peek:
        program = exported(torch.relu, torch.ones(2))
        call_of(program, "relu").target = peek
        ReplaceViewsWithCopies().apply(program)


@provokes("EK423")
def number_that_is_too_large(_: Path) -> None:
    program = exported(lambda x: x + 1, torch.ones(2, dtype=torch.int64))
    add = call_of(program, "add")
    add.args = (add.args[0], 1 << 80)
    ScalarsToTensors().apply(program)


@provokes("EK426")
def program_that_is_decomposed_as_a_whole(_: Path) -> None:
    program = exported(lambda x: x.clone().unfold(0, 1, 1).add_(1), torch.ones(2))
    for one in decomposition_passes(frozenset()):
        program, _report = one.apply(program)


@provokes("EK427")
def write_to_what_a_branch_returned(_: Path) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        chosen: torch.Tensor = torch.cond(x.sum() > 0, lambda a: a, lambda a: a + 1, (y,))
        y.add_(1)
        return chosen + y

    with torch.no_grad():
        program = exported(model, torch.ones(2))
    to_edge(program)


@provokes("EK428")
def channels_last_without_dim_order_operators(_: Path) -> None:
    x = torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last)
    program = exported(lambda x: x.sum(1), x)
    to_edge(program, compile_config=EdgeCompileConfig(_skip_dim_order=True)).to_executorch()


@provokes("EK437")
def indices_of_a_pooling_of_volumes_whose_depth_varies(_: Path) -> None:
    x, shapes = torch.ones(1, 6, 4, 4), {1: torch.export.Dim("depth", min=4, max=9)}
    program = exported(lambda x: torch.nn.functional.max_pool3d(x, 2, return_indices=True), x, dynamic_shapes=(shapes,))
    to_edge(program).to_executorch()


@provokes("EK441")
def policy_with_an_unknown_dtype(_: Path) -> None:
    entry = "  - {op: aten.gelu.default, compute_in: {half: float32}}"
    parse_dtype_policy(f"dtype_policy: 1\nentries:\n{entry}\n", "policy.yaml")


@provokes("EK442")
def policy_for_an_unknown_operator(_: Path) -> None:
    entry = "  - {op: aten.gelu.defualt, compute_in: {float16: float32}}"
    parse_dtype_policy(f"dtype_policy: 1\nentries:\n{entry}\n", "policy.yaml")


@provokes("EK443")
def budget_below_zero(_: Path) -> None:
    FoldConstants(byte_budget=-1)


@provokes("EK435")
def operator_without_out_variant(_: Path) -> None:
    with library("twice(Tensor x) -> Tensor", lambda x: x + x) as twice:
        to_edge(exported(twice, torch.ones(2))).to_executorch()


@contextmanager
def library(schema: str, function: Callable[..., Any]) -> Iterator[Any]:
    """Register an operator for as long as the block runs."""
    name = schema.partition("(")[0]
    with torch.library._scoped_library("provoked", "FRAGMENT") as made:
        made.define(schema)
        made.impl(name, function, "CompositeExplicitAutograd")
        yield getattr(torch.ops.provoked, name).default
