"""The view that gives an operand its rank holds a size that varies as no node, so that the program does not run."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.match_arg_ranks_pass import MatchArgRanksPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x, y):
        return x + y

inputs = (torch.ones(4), torch.ones(1, 4))
sizes = {0: torch.export.Dim("n", max=9)}, {1: torch.export.Dim("n", max=9)}
exported = torch.export.export(Model(), inputs, dynamic_shapes=sizes)
program = to_edge(exported)
seen = program.transform([MatchArgRanksPass(program.exported_program())]).exported_program().module()(torch.ones(5), torch.ones(1, 5))
assert seen.shape == (1, 5), f"seen {list(seen.shape)}"
