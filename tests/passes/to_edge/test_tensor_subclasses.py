"""Weights that are objects of tensor subclasses: the tensors that they consist of are stored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import export
from torch.testing._internal.two_tensor import TwoTensor

from exirkit import to_edge
from exirkit.runtime_ref import Runtime


class Scaled(Tensor):
    """A matrix of integers with a scale for each row, which linears use as floats; the scale may be of any class."""

    integers: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls, integers: Tensor, scale: Tensor) -> Scaled:
        made: Scaled = Tensor._make_wrapper_subclass(cls, integers.shape, dtype=torch.float32)
        made.integers, made.scale = integers, scale
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["integers", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: None, size: Any, stride: Any) -> Scaled:
        del context, size, stride
        return Scaled(inner["integers"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func is torch.ops.aten.detach.default:
            return cls(*(func(one) for one in (args[0].integers, args[0].scale)))
        return func(*(one.plain() if isinstance(one, cls) else one for one in args), **(kwargs or {}))

    def plain(self) -> Tensor:
        """Return the floats."""
        scale = self.scale.a * self.scale.b if isinstance(self.scale, TwoTensor) else self.scale
        return self.integers.to(torch.float32) * scale


class Twice(nn.Module):
    """One such weight, used twice."""

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        values = torch.randint(-8, 8, (4, 4), dtype=torch.int8)
        self.weight = nn.Parameter(Scaled(values, scale), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(torch.relu(nn.functional.linear(x, self.weight)), self.weight)


def _check(model: nn.Module) -> list[str]:
    x = torch.randn(3, 4)
    program = to_edge(export(model, (x,)))
    edge = program.exported_program()
    called = [str(node.target) for node in edge.graph.nodes if node.op == "call_function"]
    assert not any("subclass" in name for name in called)
    assert all(type(one) in (Tensor, nn.Parameter) for one in edge.state_dict.values())
    (got,) = Runtime.get().load_program(program.to_executorch().buffer).load_method("forward").execute((x,))
    torch.testing.assert_close(got, model(x))
    return sorted(str(spec.target) for spec in edge.graph_signature.input_specs if spec.target)


def test_inner_tensors_are_stored_once() -> None:
    assert len(_check(Twice(torch.rand(4, 1)))) == 2


def test_inner_tensors_may_be_of_subclasses() -> None:
    assert len(_check(Twice(TwoTensor(torch.rand(4, 1), torch.rand(4, 1))))) == 3
