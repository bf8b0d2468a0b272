"""A pass in the style of the ExecuTorch tutorials: replace one operator by another, node by node."""

from typing import Any

import torch

from exirkit import ExportPass, NodeMetadata, ops, to_edge


class HardSwishAsRelu6(ExportPass):
    """Compute hardswish(x) as x * clamp(x + 3, 0, 6) / 6, for backends that have no hardswish."""

    def call_operator(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], meta: NodeMetadata) -> Any:
        """Make three calls where there was one; all other calls stay as they are."""
        if op is not ops.edge.aten.hardswish.default:
            return super().call_operator(op, args, kwargs, meta)
        x = args[0]
        three = super().call_operator(ops.edge.aten.full.default, ([], 3.0), {}, meta)
        sixth = super().call_operator(ops.edge.aten.full.default, ([], 1 / 6), {}, meta)
        shifted = super().call_operator(ops.edge.aten.add.Tensor, (x, three), {}, meta)
        clamped = super().call_operator(ops.edge.aten.clamp.default, (shifted, 0.0, 6.0), {}, meta)
        product = super().call_operator(ops.edge.aten.mul.Tensor, (x, clamped), {}, meta)
        return super().call_operator(ops.edge.aten.mul.Tensor, (product, sixth), {}, meta)


def main() -> None:
    """Run the pass and look at the graph before and after."""
    x = torch.linspace(-5, 5, 11)
    edge = to_edge(torch.export.export(torch.nn.Hardswish(), (x,)))
    transformed = edge.transform([HardSwishAsRelu6()])
    for manager in (edge, transformed):
        print([str(node.target) for node in manager.exported_program().graph.nodes if node.op == "call_function"])
    (found,) = transformed.exported_program().module()(x).unsqueeze(0)
    torch.testing.assert_close(found, torch.nn.functional.hardswish(x))
    print("bytes of the program:", len(transformed.to_executorch().buffer))


if __name__ == "__main__":
    main()
