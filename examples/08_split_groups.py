"""A convolution of several groups as one convolution for each group, for a backend that has no groups."""

import torch
from torch.fx import Node

from exirkit import GraphEditor, Pass, ops, to_edge

aten = ops.edge.aten


class SplitGroups(Pass):
    """Channels of inputs, weights and biases are cut into groups; the results are put side by side again."""

    name = "split-groups"

    def edit(self, editor: GraphEditor) -> None:
        """Examine every convolution of more than one group; inputs are a batch of images, or one image."""
        for conv in [one for one in editor.graph.nodes if one.target is aten.convolution.default and one.args[8] > 1]:
            x, weight, bias, *rest, groups = conv.args
            dim = x.meta["val"].dim() - weight.meta["val"].dim() + 1

            def cut(value: Node, dim: int, group: int, at: Node = conv, groups: int = groups) -> Node:
                width = value.meta["val"].shape[dim] // groups
                part = (value, dim, group * width, (group + 1) * width)
                return editor.call(aten.slice_copy.Tensor, part, before=at, origins=at)

            parts = []
            for group in range(groups):
                some = None if bias is None else cut(bias, 0, group)
                args = (cut(x, dim, group), cut(weight, 0, group), some, *rest, 1)
                parts.append(editor.call(aten.convolution.default, args, before=conv, origins=conv))
            editor.replace(conv, editor.call(aten.cat.default, (parts, dim), before=conv, origins=conv))
            editor.erase_unused(conv)


if __name__ == "__main__":
    model, image = torch.nn.Conv2d(4, 8, 3, groups=2), torch.randn(1, 4, 6, 6)
    edge = to_edge(torch.export.export(model, (image,))).transform([SplitGroups()])
    print(edge.exported_program().graph)
    torch.testing.assert_close(edge.exported_program().module()(image), model(image))
