"""A process that imports the official package and gives its passes to our `transform`; prints one JSON document."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

warnings.simplefilter("ignore")

from executorch.backends.transforms.fuse_view_copy import FuseViewCopyTransform  # noqa: E402
from executorch.backends.transforms.mean_to_sum_div import MeanToSumDiv  # noqa: E402
from executorch.backends.xnnpack._passes.convert_to_linear import ConvertToLinearPass  # noqa: E402
from executorch.exir.dialects._ops import ops as exir_ops  # noqa: E402
from executorch.exir.pass_base import ExportPass  # noqa: E402

from exirkit import DiagnosticError, PassManager, to_edge  # noqa: E402
from exirkit.ir import EdgeOpOverload, called_graphs  # noqa: E402
from exirkit.runtime_ref import Runtime  # noqa: E402


class Idle(ExportPass):  # type: ignore[misc]
    """Traces again, and changes nothing."""


class ReluTwice(ExportPass):  # type: ignore[misc]
    """Calls relu on every relu, which changes no result."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        result = super().call_operator(op, args, kwargs, meta)
        if op == exir_ops.edge.aten.relu.default:
            return super().call_operator(op, (result,), {}, meta)
        return result


class Fails(ExportPass):  # type: ignore[misc]
    """Raises at the first relu."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        if op == exir_ops.edge.aten.relu.default:
            raise KeyError("scale")
        return super().call_operator(op, args, kwargs, meta)


def relu_twice_by_hand(module: torch.fx.GraphModule) -> None:
    """Call relu on every relu: an edit in place that looks for an official handle."""
    from executorch.exir.dialects._ops import ops

    for node in list(module.graph.find_nodes(op="call_function", target=ops.edge.aten.relu.default)):
        with module.graph.inserting_after(node):
            again = module.graph.call_function(node.target, (node,))
        again.meta.update(node.meta)
        node.replace_all_uses_with(again, delete_user_cb=lambda user, again=again: user is not again)


class Model(torch.nn.Module):
    """A buffer that is written, views of views, a mean, and a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(4))
        self.count: torch.Tensor

    def forward(self, x: torch.Tensor) -> Any:
        self.count.add_(1)
        y = torch.relu(self.linear(x)).view(-1, 2, 2).view(-1, 4)
        z = torch.cond(x.sum() > 0, lambda a: torch.relu(a) + 1, lambda a: a.sin(), (y,))
        return z + self.count, x.mean(1)


PASSES: dict[str, Callable[[], Any]] = {
    "idle": Idle,
    "relu-twice": ReluTwice,
    "fuse-views": FuseViewCopyTransform,
    "mean": MeanToSumDiv,
    "linear": ConvertToLinearPass,
    "in a list": lambda: [Idle(), [FuseViewCopyTransform(), ReluTwice()]],
    "in a function": lambda: lambda module: ReluTwice()(module),
    "in a default": lambda: lambda module, kind=ReluTwice: kind()(module),
    "by hand": lambda: relu_twice_by_hand,
    "in a manager": lambda: PassManager([ReluTwice(), MeanToSumDiv()]),
}


def tried(make: Callable[[], Any], dims: Any) -> dict[str, Any]:
    """Lower with a pass, and compare with eager PyTorch."""
    torch.manual_seed(0)
    model = Model().eval()
    x = torch.rand(2, 4) - 0.5
    with torch.no_grad():
        exported = torch.export.export(model, (x,), dynamic_shapes=dims)
        edge = to_edge(exported).transform(make())
        calls = [node for one in called_graphs(edge.exported_program().graph_module) for node in one.graph.nodes]
        calls = [node for node in calls if node.op == "call_function"]
        method = Runtime.get().load_program(edge.to_executorch().buffer).load_method("forward")
        results = [method.execute([one]) for one in (x, x + 1)]
        for one, got in zip((x, x + 1), results, strict=True):
            for left, right in zip(got, model(one), strict=True):
                torch.testing.assert_close(left, right)
    foreign = [str(node.target) for node in calls if hasattr(node.target, "_schema")
               and not isinstance(node.target, EdgeOpOverload | torch._ops.OpOverload)]  # fmt: skip
    return {"operators": [str(node.target) for node in calls], "foreign": foreign}


def failing() -> dict[str, Any]:
    """Return the diagnostic of a pass that raises."""
    program = to_edge(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    try:
        program.transform([Fails()])
    except DiagnosticError as error:
        return dict(json.loads(error.diagnostics[0].model_dump_json()))
    return {}


def main() -> None:
    """Try everything, or only what fails."""
    if sys.argv[1:] == ["failing"]:
        json.dump(failing(), sys.stdout)
        return
    dims = ({0: torch.export.Dim("n", min=1, max=8)},)
    found = {name: tried(make, None) for name, make in PASSES.items()}
    found["dynamic"] = tried(lambda: [ReluTwice(), FuseViewCopyTransform()], dims)
    json.dump({"found": found, "failing": failing()}, sys.stdout)


if __name__ == "__main__":
    main()
