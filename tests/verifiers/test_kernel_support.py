"""Kernels of a target: which there are, what they ask of a call, and diagnostics of calls that they do not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.diagnostics.programs import exported

from exirkit import DiagnosticError, ExecutorchBackendConfig, ModelError, to_edge
from exirkit.fuzz.official import OfficialRuntime
from exirkit.patterns import Registry, Target, read_target
from exirkit.verifiers import UNKNOWN, Fact, TensorFacts, facts_of_call, read_condition


def lower(function: Any, *inputs: torch.Tensor, target: Any = "official_host", dynamic_shapes: Any = None) -> bytes:
    config = ExecutorchBackendConfig(target=target)
    return to_edge(exported(function, *inputs, dynamic_shapes=dynamic_shapes)).to_executorch(config).buffer


def positive(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x + 1)


# What lowering replaces may change; this operator it keeps.
LACKING = Target(target=1, name="mine", registry=Registry(base="official_host", lacks=("aten::relu.out",)))


def test_an_operator_without_kernel_is_an_error() -> None:
    with pytest.raises(ModelError) as caught:
        lower(positive, torch.ones(2, 3), target=LACKING)
    (finding,) = caught.value.diagnostics
    assert (finding.code, finding.location.method) == ("EK359", "forward")
    assert "aten::relu.out" in finding.message
    assert "programs.py" in str(finding.location.source)


@pytest.mark.parametrize("target", [None, "any"])
def test_any_runtime_may_have_other_kernels(target: str | None) -> None:
    assert lower(positive, torch.ones(2, 3), target=target)


def test_a_runtime_with_more_kernels_is_described(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "target: 1\nname: mine\nregistry:\n  base: official_host\n  operators: {'aten::sort.values': []}\n"
        "  lacks: ['aten::relu.out']\n"
    )
    assert lower(torch.neg, torch.ones(2, 3), target=path)
    with pytest.raises(ModelError, match=r"aten::relu\.out"):
        lower(torch.relu, torch.ones(2, 3), target=path)


def test_all_methods_and_bodies_are_checked_at_once() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, positive, lambda y: y + 1, (x,))

    programs = {"one": exported(positive, torch.ones(2, 3)), "two": exported(branch, torch.ones(2, 3))}
    with pytest.raises(ModelError) as caught:
        to_edge(programs).to_executorch(ExecutorchBackendConfig(target=LACKING))
    assert [(one.code, one.location.method) for one in caught.value.diagnostics] == [("EK359", "one"), ("EK359", "two")]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_copies_to_another_layout_lower(layout: torch.memory_format) -> None:
    x = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert lower(lambda y: y.clone(memory_format=layout) + 1, x)
    assert lower(lambda y: y.contiguous() * 2, x)


NARROW = torch.float8_e4m3fn


@pytest.mark.executorch
@pytest.mark.parametrize(
    ("function", "is_taken"),
    [
        (lambda x: x.t(), False),
        (lambda x: x.to(torch.float32), False),
        (lambda x: torch.cat([x, x]), False),
        (lambda x: torch.zeros(2, dtype=x.dtype), False),
        (lambda x: x[1:], True),
        (lambda x: x[None].expand(3, -1, -1), True),
    ],
)
def test_kernels_for_few_dtypes(function: Any, is_taken: bool) -> None:
    x = torch.tensor([[0.5, -2.0], [3.0, 448.0]]).to(NARROW)
    config = ExecutorchBackendConfig(optimization_level=0)
    edge = to_edge(exported(function, x))
    if not is_taken:
        with pytest.raises(ModelError, match="EK360") as caught:
            edge.to_executorch(config)
        assert "common_dtypes(" in str(caught.value.diagnostics[0].expected)
        # The official runtime does not take it either.
        config = ExecutorchBackendConfig(optimization_level=0, target=None)
    data = edge.to_executorch(config).buffer
    with OfficialRuntime() as runtime:
        run = runtime.run(data, [[x]])
    assert (run.failure is None) == is_taken


def test_a_registry_that_starts_from_nothing_known() -> None:
    target = Target(target=1, name="mine", registry=Registry(base="no_such"))
    with pytest.raises(DiagnosticError, match="no_such"):
        lower(torch.relu, torch.ones(2), target=target)


@pytest.mark.executorch
def test_the_shipped_registry_is_that_of_the_official_runtime() -> None:
    registry = read_target("official_host").registry
    assert registry is not None
    with OfficialRuntime() as runtime:
        assert set(registry.conditions()) == set(runtime.kernels())


def facts(**call: Fact) -> dict[str, Fact]:
    x = TensorFacts("float32", (2, 3, 4, 5), (0, 2, 3, 1))
    y = TensorFacts("int64", (2, UNKNOWN), (0, 1))
    return {"x": x, "y": y, "p": (-1, 2), "none": None, "n": 3, "v": UNKNOWN, **call}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("rank(x) == 4", True),
        ("rank(x) in [1, 2]", False),
        ("rank(x) + 1 == 5", True),
        ("least(p) >= 0", False),
        ("greatest(p) <= n", True),
        ("length(p) <= 2 * rank(y)", True),
        ("given(none)", False),
        ("not given(none) or rank(none) == 2", True),
        ("contiguous(x)", False),
        ("one_layout(x)", True),
        ("one_layout(x, y)", False),
        ("same_order(x, none)", True),
        ("contiguous(y, none)", True),
        ("dtype(y) == 'int64' and rank(y) == 2", True),
        ("numel(y) > 0", None),
        ("size(y, 1) > 0", None),
        ("size(x, -1) == 5", True),
        ("size(x, 7) == 5", None),
        ("v > 0", None),
        ("v > 0 or n == 3", True),
        ("v > 0 and n == 4", False),
        ("v > 0 and n == 3", None),
        ("none > 0", None),
        ("integral(n)", True),
        ("n == -3", False),
        ("same_shape(x, x)", True),
        ("same_dtype(x, y)", False),
        ("greatest_rank(x, y) == 4", True),
    ],
)
def test_conditions(condition: str, holds: bool | None) -> None:
    assert read_condition(condition).holds(facts()) is holds


@pytest.mark.parametrize("text", ["rank(", "rang(x) == 1", "x.y", "rank(x) < 3 < 4", "rank(x, y=1)", "~n", "n / 2"])
def test_what_is_not_a_condition(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|calls none"):
        read_condition(text)


def test_facts_of_calls_have_defaults_and_unknown_sizes() -> None:
    batch = torch.export.Dim("batch", min=2, max=8)
    program = exported(lambda x: x.permute(1, 0), torch.ones(2, 3), dynamic_shapes=({0: batch},))
    lowered = to_edge(program).to_executorch().exported_program()
    (call,) = [node for node in lowered.graph.nodes if "permute" in str(node.target)]
    given = facts_of_call(call)
    assert given["dims"] == (1, 0)
    tensor = given["input" if "input" in given else "self"]
    assert isinstance(tensor, TensorFacts)
    assert (tensor.dtype, tensor.order) == ("float32", (0, 1))
    assert tensor.sizes[0] is UNKNOWN
