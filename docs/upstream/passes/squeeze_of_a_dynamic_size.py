"""The view in place of a squeeze holds a size that varies as no node, so that the program does not run."""
import torch
from executorch.backends.nxp.edge_passes.convert_reshaping_nodes_to_view import ConvertReshapingNodesToViewPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return x.squeeze(1)

inputs = (torch.ones(4, 1, 2),)
exported = torch.export.export(Model(), inputs, dynamic_shapes=({0: torch.export.Dim("n", max=9)},))
program = to_edge(exported).transform([ConvertReshapingNodesToViewPass()]).exported_program()
seen = program.module()(torch.ones(5, 1, 2))
assert seen.shape == (5, 2), f"seen {list(seen.shape)}"
