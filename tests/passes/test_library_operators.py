"""Composite operators of libraries: whole in Edge, decomposed on the way to ExecuTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.export import Dim, export

import exirkit
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import parse_program
from exirkit.ir import underlying
from exirkit.passes import has_library_operators
from exirkit.runtime_ref import Runtime

NAME = "exirkit_library_test"


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[None]:
    """A library with a composite operator, and another that has an out variant as well."""
    made = torch.library.Library(NAME, "DEF")
    for name in ("gate", "gate_with_out"):
        made.define(f"{name}(Tensor x, Tensor y, float c) -> Tensor")
        # A view and a number, which later passes of `to_edge` legalize.
        made.impl(name, lambda x, y, c: (x.transpose(0, 1) * c + y).sigmoid(), "CompositeImplicitAutograd")
    made.define("gate_with_out.out(Tensor x, Tensor y, float c, *, Tensor(a!) out) -> Tensor(a!)")
    yield
    made._destroy()


def gate(x: Tensor, y: Tensor) -> Tensor:
    return torch.ops.exirkit_library_test.gate(x, y, 0.5) + 1


def gate_of_branch(x: Tensor, y: Tensor) -> Tensor:
    return torch.cond(y.sum() > 0, lambda x, y: gate(x, y), lambda x, y: x.t() - y, (x, y))


class Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.function(x, y)


def targets(manager: exirkit.EdgeProgramManager) -> list[str]:
    modules = [
        one for one in manager.exported_program().graph_module.modules() if isinstance(one, torch.fx.GraphModule)
    ]
    return [str(underlying(node.target)) for one in modules for node in one.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("function", [gate, gate_of_branch])
@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("skip_dim_order", [False, True])
def test_it_is_whole_in_edge_and_runs(function: Callable[..., Tensor], is_dynamic: bool, skip_dim_order: bool) -> None:
    inputs = (torch.randn(3, 5), torch.randn(5, 3))
    rows = Dim("rows", min=2, max=7)
    sizes = ({0: rows}, {1: rows}) if is_dynamic else None
    program = export(Model(function), inputs, dynamic_shapes=sizes)
    edge = exirkit.to_edge(program, compile_config=exirkit.EdgeCompileConfig(_skip_dim_order=skip_dim_order))
    assert targets(edge).count(f"{NAME}.gate.default") == 1
    for level in (0, 1, 2):
        made = edge.to_executorch(exirkit.ExecutorchBackendConfig(optimization_level=level))
        method = Runtime.get().load_program(made.buffer, sanitize=True).load_method("forward")
        for y in (inputs[1], -inputs[1].abs()):
            torch.testing.assert_close(method.execute((inputs[0], y))[0], function(inputs[0], y))
    # Lowering leaves the manager as it was.
    assert has_library_operators(edge.exported_program())


def test_an_operator_with_an_out_variant_stays() -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        made: Tensor = torch.ops.exirkit_library_test.gate_with_out(x, y, 0.5)
        return made

    edge = exirkit.to_edge(export(Model(model), (torch.randn(3, 5), torch.randn(5, 3))))
    made = edge.to_executorch(exirkit.ExecutorchBackendConfig(target=None))
    assert [one.name for one in made.executorch_program.execution_plan[0].operators] == [f"{NAME}::gate_with_out"]


def test_whole_graph_decomposition_leaves_it_whole() -> None:
    def model(x: Tensor, y: Tensor) -> Tensor:
        return gate(torch.vmap(torch.sin)(x), y)

    edge = exirkit.to_edge(export(Model(model), (torch.randn(3, 5), torch.randn(5, 3))))
    assert targets(edge).count(f"{NAME}.gate.default") == 1


def test_results_lie_channels_last_beside_what_is_decomposed() -> None:
    # Copies that state the layout become operators of Edge later than the checks behind the first pass are made.
    program = parse_program("""program(1)

def forward(x: "f32[5]", y: "f32[1, 2, 3, 2]", z: "f32[1, 2, 3, 2]"):
    a = aten.maximum.default(y, z)
    s, p = quantized_decomposed.choose_qparams_symmetric.tensor(x, -128, 127, 1e-05, torch.int8)
    return a, s, p

run("forward", x=dyadic(1), y=dyadic(2, layout="channels_last"), z=dyadic(3))
""")
    verdict = check(program)
    assert (verdict.failures, verdict.unsupported) == ((), None)
