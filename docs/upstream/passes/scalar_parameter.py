"""A product of a tensor without dims and a parameter without dims gets one."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.unsqueeze_scalar_placeholders_pass import UnsqueezeScalarPlaceholdersPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return x * self.scale

inputs = (torch.tensor(3.0),)
program = to_edge(torch.export.export(Model(), inputs)).exported_program()
seen = UnsqueezeScalarPlaceholdersPass(program)(program.graph_module).graph_module.graph.output_node().args[0][0].meta["val"]
assert seen.shape == (), f"seen {list(seen.shape)}"
