"""Passes run on programs, and on graph modules without one, by being called; what they are given stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from exirkit import ApplyRules, FoldConstants, MergeEqualNodes, PassManager, load_book
from exirkit.ir import UsageError
from exirkit.passes import ExportedProgramPassResult, PassResult, apply_user_passes

# torch's own deep copy of a module warns of what torch will change.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

BOOK = """
rulebook: 1
rules:
- id: fold.scaled-weight
  doc: A weight that is scaled after the product is scaled before.
  vars: {x: "f32 [N, K]", w: "const f32 [K, M]", c: "const f32 []"}
  match: return aten.mul.Tensor(aten.mm.default(x, w), c)
  let: scaled = w * c
  replace: return aten.mm.default(x, scaled)
  equiv: {rtol: 1.0e-4, atol: 1.0e-4}
- id: simplify.relu-relu
  doc: A relu of a relu is the inner one.
  vars: {x: "f32 [*S]"}
  match: return aten.relu.default(aten.relu.default(x))
  replace: return aten.relu.default(x)
- id: simplify.neg-neg
  doc: Negating twice changes nothing.
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(aten.neg.default(x))
  replace: return x
"""


class Scaled(torch.nn.Module):
    """A product whose weight and factor are stored."""

    inner: Any

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 3))
        self.inner = torch.nn.Module()
        self.inner.register_buffer("factor", torch.tensor(2.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.relu(torch.mm(x, self.weight) * self.inner.factor))


class Counts(torch.nn.Module):
    """Writes to a buffer that it reads."""

    weight: torch.Tensor
    factor: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(4, 3))
        self.register_buffer("factor", torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.add_(1.0)
        return torch.mm(x, self.weight) * self.factor


X = torch.randn(2, 4)
FIRED = {"fold.scaled-weight": 1, "simplify.relu-relu": 1}


@pytest.fixture
def rules(tmp_path: Path) -> ApplyRules:
    path = tmp_path / "book.yaml"
    path.write_text(BOOK)
    return ApplyRules(load_book(str(path)))


def unlifted(model: torch.nn.Module, *inputs: torch.Tensor) -> GraphModule:
    """Return a graph module on which the tensors of the model hang."""
    module = torch.export.export(model, inputs).module()
    assert isinstance(module, GraphModule)
    return module


def traced(function: Callable[..., Any], *inputs: torch.Tensor) -> GraphModule:
    return make_fx(function)(*inputs)


def names(module: GraphModule) -> list[str]:
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def test_tensors_on_a_module_are_constants_and_new_ones_hang_there(rules: ApplyRules) -> None:
    model = Scaled().eval()
    module = unlifted(model, X)
    before, state = str(module.graph), {key: value.clone() for key, value in module.state_dict().items()}
    result = rules(module)
    assert isinstance(result, PassResult)
    assert result.modified
    assert rules.report is not None
    assert dict(rules.report.applied) == FIRED
    after = result.graph_module
    after.graph.lint()
    torch.testing.assert_close(after(X), model(X))
    assert names(after) == ["aten.mm.default", "aten.relu.default"]
    assert [name for name, _ in after.named_buffers()] == ["_fold_scaled_weight_constant"]
    # Tensors that nothing uses any more are gone, and the module that was given is as it was.
    assert not list(after.named_parameters())
    assert str(module.graph) == before
    torch.testing.assert_close(module.state_dict(), state)
    torch.testing.assert_close(copy.deepcopy(after)(X), model(X))


def test_a_pass_that_does_nothing_returns_what_it_was_given(rules: ApplyRules) -> None:
    module = unlifted(torch.nn.Sigmoid(), X)
    result = rules(module)
    assert result.graph_module is module
    assert not result.modified
    program = torch.export.export(torch.nn.Sigmoid(), (X,))
    assert rules(program).exported_program is program


def test_programs_bare(rules: ApplyRules) -> None:
    model = Scaled().eval()
    program = torch.export.export(model, (X,))
    before = str(program.graph)
    result = rules(program)
    assert isinstance(result, ExportedProgramPassResult)
    assert result.modified
    assert str(program.graph) == before
    torch.testing.assert_close(result.exported_program.module()(X), model(X))
    assert dict(rules.report.applied) == FIRED if rules.report else False
    changed, report = rules.apply(program)
    assert report.modified
    assert len(changed.graph.nodes) == len(result.exported_program.graph.nodes)


def test_inputs_of_a_graph_are_not_constants_and_the_report_says_so(rules: ApplyRules) -> None:
    program = torch.export.export(Scaled().eval(), (X,))
    result = rules(program.graph_module)
    assert rules.report is not None
    assert dict(rules.report.applied) == {"simplify.relu-relu": 1}
    (rejection,) = [one for one in rules.report.rejections if not one.node]
    assert rejection.rule == "fold.scaled-weight"
    assert "graph module" in rejection.reason
    inputs = [node.name for node in program.graph.find_nodes(op="placeholder")]
    assert [node.name for node in result.graph_module.graph.find_nodes(op="placeholder")] == inputs


def test_what_a_graph_writes_to_is_not_a_constant(rules: ApplyRules) -> None:
    module = unlifted(Counts(), X)
    result = rules(module)
    assert not result.modified
    assert not FoldConstants()(module).modified
    wanted = copy.deepcopy(module)
    merged = MergeEqualNodes()(module).graph_module
    for _ in range(2):
        torch.testing.assert_close(merged(X), wanted(X))


def test_an_input_is_not_returned_where_it_may_be_written_to(rules: ApplyRules) -> None:
    """The graph of a program whose buffer is written back, without the signature that tells of it."""
    module = traced(lambda x: torch.neg(torch.neg(x)), X)
    assert not rules(module).modified
    inside = traced(lambda x: torch.sigmoid(torch.neg(torch.neg(x))), X)
    assert names(rules(inside).graph_module) == ["aten.sigmoid.default"]


def test_results_are_not_merged_where_one_may_be_written_back() -> None:
    module = traced(lambda x: (torch.relu(x), torch.relu(x)), X)
    assert not MergeEqualNodes()(module).modified
    inside = traced(lambda x: torch.relu(x) + torch.relu(x), X)
    merged = MergeEqualNodes()(inside)
    assert names(merged.graph_module) == ["aten.relu.default", "aten.add.Tensor"]
    torch.testing.assert_close(merged.graph_module(X), inside(X))


def test_constants_on_a_module_are_folded() -> None:
    weight = torch.randn(3, 4)
    module = traced(lambda x: torch.mm(x, weight.t()), X)
    folded = FoldConstants()(module)
    assert folded.modified
    assert names(folded.graph_module) == ["aten.mm.default"]
    torch.testing.assert_close(folded.graph_module(X), module(X))


def test_graphs_that_were_traced_symbolically(rules: ApplyRules) -> None:
    """Calls of modules and methods are left alone; calls of operators are rewritten once values are recorded."""

    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            relu = torch.ops.aten.relu.default
            return {"y": relu(relu(self.linear(x))).flatten(), "x": x}

    module = torch.fx.symbolic_trace(Mixed())
    FakeTensorProp(module, FakeTensorMode(allow_non_fake_inputs=True)).propagate(X)
    after = rules(module).graph_module
    assert names(after) == ["aten.relu.default"]
    torch.testing.assert_close(after(X), module(X))


def test_without_recorded_values_nothing_matches(rules: ApplyRules) -> None:
    module = torch.fx.symbolic_trace(lambda x: torch.ops.aten.relu.default(torch.ops.aten.relu.default(x)))
    assert not rules(module).modified


def test_sizes_that_vary(rules: ApplyRules) -> None:
    dims = {"x": {0: torch.export.Dim("n", min=1, max=9)}}
    model = Scaled().eval()
    module = torch.export.export(model, (X,), dynamic_shapes=dims).module()
    assert isinstance(module, GraphModule)
    after = rules(module).graph_module
    for size in (1, 5, 9):
        x = torch.randn(size, 4)
        torch.testing.assert_close(after(x), model(x))


def test_pass_managers_take_them(rules: ApplyRules) -> None:
    model = Scaled().eval()
    module = unlifted(model, X)
    result = PassManager([rules, FoldConstants(), MergeEqualNodes()], run_checks_after_each_pass=True)(module)
    assert names(result.graph_module) == ["aten.mm.default", "aten.relu.default"]
    torch.testing.assert_close(result.graph_module(X), model(X))
    from torch.fx.passes.infra.pass_manager import PassManager as TorchPassManager

    also: Any = TorchPassManager([rules])(module)
    torch.testing.assert_close(also.graph_module(X), model(X))


def test_other_things_are_rejected(rules: ApplyRules) -> None:
    with pytest.raises(UsageError, match="EK424"):
        rules(torch.nn.ReLU())  # type: ignore[call-overload]


def test_a_class_of_passes_is_not_a_pass(rules: ApplyRules) -> None:
    program = torch.export.export(torch.nn.ReLU(), (X,))
    with pytest.raises(UsageError, match=r"EK424.*MergeEqualNodes is a class(?s:.*)`MergeEqualNodes\(\)`"):
        apply_user_passes(program, [rules, MergeEqualNodes])
