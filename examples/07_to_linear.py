"""Products with a transposed weight become `linear`, the form that many backends take."""

import torch

from exirkit import GraphEditor, Pass, ops, to_edge

aten = ops.edge.aten


class ToLinear(Pass):
    """mm(x, permute(w)) and addmm(b, x, permute(w)) are linear(x, w) and linear(x, w, b)."""

    name = "to-linear"

    def edit(self, editor: GraphEditor) -> None:
        """Examine every product of matrices; the factors beta and alpha of addmm are keyword arguments."""
        for node in list(editor.graph.nodes):
            if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
                continue
            *bias, x, turned = node.args
            if turned.target is not aten.permute_copy.default or [dim % 2 for dim in turned.args[1]] != [1, 0]:
                continue
            weight = turned.args[0]
            if any(one.meta["val"].shape != weight.meta["val"].shape[:1] for one in bias):
                continue
            editor.replace(node, editor.call(aten.linear.default, (x, weight, *bias), before=node, origins=node))
            editor.erase_unused(node)


if __name__ == "__main__":
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2, bias=False)), torch.randn(3, 4)
    edge = to_edge(torch.export.export(model, (x,))).transform([ToLinear()])
    print(edge.exported_program().graph)
    assert sum(node.target is aten.linear.default for node in edge.exported_program().graph.nodes) == 2
    torch.testing.assert_close(edge.exported_program().module()(x), model(x))
