"""The view in place of an unsqueeze holds a size that varies as no node, so that the program does not run."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.convert_squeezes_to_view import ConvertSqueezesToViewPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return x.unsqueeze(0)

inputs = (torch.ones(4, 2),)
exported = torch.export.export(Model(), inputs, dynamic_shapes=({0: torch.export.Dim("n", max=9)},))
program = to_edge(exported).transform([ConvertSqueezesToViewPass()]).exported_program()
seen = program.module()(torch.ones(5, 2))
assert seen.shape == (1, 5, 2), f"seen {list(seen.shape)}"
