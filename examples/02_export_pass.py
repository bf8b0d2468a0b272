"""A pass in the style of the ExecuTorch tutorials: replace one operator by another, node by node."""

from collections.abc import Mapping
from typing import Any

import torch

from exirkit import EdgeProgramManager, ExportPass, NodeMetadata, ops, to_edge


class GeluAsSigmoid(ExportPass):
    """Compute gelu(x) as x * sigmoid(1.702 x), the well-known approximation."""

    def call_operator(self, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], meta: NodeMetadata) -> Any:
        """Make three calls where there was one; all other calls stay as they are."""
        if op is not ops.edge.aten.gelu.default:
            return super().call_operator(op, args, kwargs, meta)
        x = args[0]
        scaled = super().call_operator(ops.edge.aten.mul.Scalar, (x, 1.702), {}, meta)
        gate = super().call_operator(ops.edge.aten.sigmoid.default, (scaled,), {}, meta)
        return super().call_operator(ops.edge.aten.mul.Tensor, (x, gate), {}, meta)


def calls(manager: EdgeProgramManager) -> list[str]:
    """Return the operators of a program, in order."""
    return [str(node.target) for node in manager.exported_program().graph.nodes if node.op == "call_function"]


def main() -> None:
    """Run the pass and examine the graph before and after."""
    x = torch.linspace(-5, 5, 11)
    edge = to_edge(torch.export.export(torch.nn.GELU(), (x,)))
    approximated = edge.transform([GeluAsSigmoid()])
    print(calls(edge), "->", calls(approximated))
    assert calls(approximated) == ["aten.mul.Scalar", "aten.sigmoid.default", "aten.mul.Tensor"]
    found = approximated.exported_program().module()(x)
    torch.testing.assert_close(found, torch.nn.functional.gelu(x), atol=0.03, rtol=0.0)
    print("bytes of the program:", len(approximated.to_executorch().buffer))


if __name__ == "__main__":
    main()
