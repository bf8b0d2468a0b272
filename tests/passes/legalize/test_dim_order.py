"""Layouts: rules, copies, constants, and what the official runtime makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from tests.passes.lowering import call_nodes, edge_program, executorch_program, run
from tests.passes.programs import Function, apply
from torch.export import ExportedProgram
from torch.nn import functional

from exirkit import EdgeCompileConfig, to_edge
from exirkit.emit import emit_program, lay_out
from exirkit.ir import dim_order_from_stride, operators_with, ops
from exirkit.passes import LegalizeDimOrder, MemoryPlanningPass

COPY = ops.edge.dim_order_ops._to_dim_order_copy.default


LAST = torch.channels_last


def picture(*shape: int) -> torch.Tensor:
    return torch.rand(shape).to(memory_format=LAST)


X, Y = picture(2, 4, 3, 5), picture(2, 4, 3, 5)


def legalized(model: Any, *args: torch.Tensor) -> ExportedProgram:
    made = edge_program(model, *args)
    expected = run(made, args)
    apply(LegalizeDimOrder(), made)
    for ours, theirs in zip(run(made, args), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    for value in (node.meta["val"] for node in made.graph.nodes if node.op != "output"):
        for one in value if isinstance(value, list | tuple) else [value]:
            assert dim_order_from_stride(one.stride(), one.shape) in (list(range(one.dim())), [0, 2, 3, 1])
    return made


def copies(program: ExportedProgram) -> list[list[int]]:
    return [node.kwargs["dim_order"] for node in call_nodes(program, COPY)]


def executed(runtime: OfficialRuntime, model: Any, *args: torch.Tensor) -> list[Any]:
    """Lower, emit and run on the official runtime."""
    made = executorch_program(edge_program(model, *args))
    MemoryPlanningPass().run(made.graph_module, made.graph_signature)
    output = emit_program(made)
    file = lay_out(output.program, mutable_data=output.mutable_data).to_bytes()
    return runtime.run(file, [list(args)]).unwrap()[0]


def sample(op: Any) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """Return channels-last tensors and named numbers with which to call an elementwise operator."""
    wants_integers = op.name().startswith("aten::bitwise")
    tensors: list[torch.Tensor] = []
    numbers: dict[str, Any] = {}
    for argument in op._schema.arguments:
        if isinstance(argument.type, torch.TensorType):
            one = picture(2, 4, 3, 5) * 0.8 + 0.1 + ("acosh" in op.name())
            one = one > 0.5 if argument.name == "condition" else one
            tensors.append((one * 9).to(torch.int32) if wants_integers else one)
        elif not argument.has_default_value():
            numbers[argument.name] = 3 if wants_integers else 0.5
        elif argument.name == "min":
            numbers[argument.name] = 0.3
    if "mode" in op._overloadname:
        numbers["rounding_mode"] = "floor"
    return tensors, numbers


class CallsOfAll(torch.nn.Module):
    """Calls every elementwise operator once, on inputs of its own."""

    def __init__(self, calls: list[tuple[Any, int, dict[str, Any]]]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rest, results = list(tensors), []
        for op, count, numbers in self.calls:
            names = [one.name for one in op._schema.arguments if isinstance(one.type, torch.TensorType)]
            results.append(op(**dict(zip(names, rest[:count], strict=True)), **numbers))
            rest = rest[count:]
        return tuple(results)


@pytest.mark.executorch
@pytest.mark.slow
def test_the_runtime_takes_channels_last_tensors_elementwise(official_runtime: OfficialRuntime) -> None:
    # torch itself returns powers of a number row-major, so the copy that this makes is right.
    left_out = (torch.ops.aten.copy_.default, torch.ops.aten.pow.Scalar)
    ops_ = sorted((op for op in operators_with("one_layout") if op not in left_out), key=str)
    samples = [sample(op) for op in ops_]
    model = CallsOfAll([(op, len(tensors), numbers) for op, (tensors, numbers) in zip(ops_, samples, strict=True)])
    inputs = [one for tensors, _ in samples for one in tensors]
    assert copies(legalized(model, *inputs)) == [], "the rules say that these kernels take this layout"
    answers = executed(official_runtime, model, *inputs)
    for op, ours, theirs in zip(ops_, answers, model(*inputs), strict=True):
        assert ours.stride() == theirs.stride(), op
        assert torch.allclose(ours, theirs, equal_nan=True), op


@pytest.mark.executorch
@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.conv2d(x, torch.ones(2, 4, 2, 2)),
        lambda x: functional.conv_transpose2d(x, torch.ones(4, 2, 2, 2)),
        lambda x: functional.max_pool2d(x, 2),
        lambda x: functional.interpolate(x, scale_factor=2),
        lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda x: torch.cat([x, x.relu()], 1).flip(1),
        lambda x: functional.pad(x, (1, 2)).cumsum(1),
        lambda x: x.softmax(1) + x.mean((2, 3), keepdim=True),
        lambda x: functional.group_norm(x, 2).permute(1, 0, 3, 2),
        lambda x: functional.avg_pool2d(x.log_softmax(1), 2).gather(1, torch.zeros(2, 1, 1, 2, dtype=torch.int64)),
        lambda x: 2.0**x,
        lambda x: (x.topk(2, 1)[0] @ torch.ones(5, 2), x.to(torch.int32), x.argmax(1), x[:, 1:3], x.nonzero()),
    ],
)
def test_the_runtime_agrees_on_channels_last_inputs(
    function: Callable[..., Any], official_runtime: OfficialRuntime
) -> None:
    answers = executed(official_runtime, function, X)
    expected = torch.utils._pytree.tree_leaves(function(X))
    for ours, theirs in zip(answers, expected, strict=True):
        torch.testing.assert_close(ours.contiguous(), theirs.contiguous())


def test_an_order_that_no_kernel_takes_is_stated_as_row_major() -> None:
    made = legalized(lambda x: x.to(torch.float64) * 2, torch.rand(2, 3, 4).transpose(1, 2))
    assert copies(made) == [[0, 1, 2]]


def test_a_cast_without_dim_orders_keeps_its_dtype() -> None:
    def cast(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float64, memory_format=LAST).sum()

    program = torch.export.export(Function(cast), (torch.rand(1, 2, 3, 4),))
    made = to_edge(program, compile_config=EdgeCompileConfig(_skip_dim_order=True)).to_executorch()
    (node,) = call_nodes(made.exported_program(), torch.ops.aten._to_copy.out)
    assert node.kwargs["memory_format"] == torch.contiguous_format
    assert node.meta["val"].dtype == torch.float64
