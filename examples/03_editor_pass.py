"""A pass of exirkit's own kind: it edits the graph through an editor, which keeps metadata and signature right."""

import torch

from exirkit import GraphEditor, Pass, ops, to_edge

RELU = ops.edge.aten.relu.default


class MergeRelus(Pass):
    """Drop a relu whose argument is the result of a relu: the second one changes nothing."""

    name = "merge-relus"

    def edit(self, editor: GraphEditor) -> None:
        """Examine every node once."""
        for node in list(editor.graph.nodes):
            if node.target is RELU and node.args[0].target is RELU:
                editor.replace(node, node.args[0])
                editor.erase(node)


class Repeating(torch.nn.Module):
    """A model that applies relu three times."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return relu(relu(relu(x)))."""
        return x.relu().relu().relu()


def main() -> None:
    """Run the pass on its own, to see its report, and as part of the lowering."""
    x = torch.randn(4)
    edge = to_edge(torch.export.export(Repeating(), (x,)))
    merged, report = MergeRelus().apply(edge.exported_program())
    print(report)
    again, unchanged = MergeRelus().apply(merged)
    print(unchanged)
    assert report.modified
    assert not unchanged.modified
    assert again is merged
    assert sum(node.target is RELU for node in merged.graph.nodes) == 1
    torch.testing.assert_close(merged.module()(x), x.relu())
    print("bytes of the program:", len(edge.transform([MergeRelus()]).to_executorch().buffer))


if __name__ == "__main__":
    main()
