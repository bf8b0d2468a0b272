"""Fold batch norms into convolutions: arithmetic on weights in the graph, which FoldConstants computes."""

from typing import Any

import torch
from torch.fx import Node

from exirkit import FoldConstants, GraphEditor, Pass, ops, to_edge

aten = ops.edge.aten
BATCH_NORM, MUL = aten._native_batch_norm_legit_no_training.default, aten.mul.Tensor


class FoldBatchNorm(Pass):
    """A convolution, then (y - mean) / sqrt(var + eps) * gamma + beta: one convolution with other weights."""

    name = "fold-batch-norm"

    def edit(self, editor: GraphEditor) -> None:
        """Examine every batch norm of a convolution that is not transposed and that nothing else uses."""
        for norm in [one for one in editor.graph.nodes if one.target is BATCH_NORM]:
            conv, gamma, beta, mean, var, _, eps = norm.args
            if conv.target is not aten.convolution.default or conv.args[6] or len(conv.users) > 1:
                continue

            def call(op: Any, *args: Any, at: Node = norm) -> Node:
                return editor.call(op, args, before=at, origins=at)

            x, weight, bias, *rest = conv.args
            scale = call(aten.rsqrt.default, call(aten.add.Scalar, var, eps))
            scale = scale if gamma is None else call(MUL, scale, gamma)
            shift = call(aten.neg.default, mean) if bias is None else call(aten.sub.Tensor, bias, mean)
            shift = call(MUL, shift, scale) if beta is None else call(aten.add.Tensor, call(MUL, shift, scale), beta)
            factor = call(aten.view_copy.default, scale, [-1, *[1] * (weight.meta["val"].dim() - 1)])
            folded = call(aten.convolution.default, x, call(MUL, weight, factor), shift, *rest)
            for user in [one for one in norm.users if one.args[1] == 0]:
                editor.replace(user, folded)
                editor.erase_unused(user)


if __name__ == "__main__":
    norm = torch.nn.BatchNorm2d(8)
    norm.bias.data.uniform_(-1, 1)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), norm).eval()
    image = torch.randn(1, 3, 8, 8)
    edge = to_edge(torch.export.export(model, (image,))).transform([FoldBatchNorm(), FoldConstants()])
    print(edge.exported_program().graph)
    torch.testing.assert_close(edge.exported_program().module()(image), model(image), rtol=1e-4, atol=1e-5)
