"""A sum with an int64 buffer that a program returns is returned as int32."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.cast_int64_pass import CastInt64BuffersToInt32Pass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.tensor([3]))

    def forward(self, x):
        return x, self.count.abs()

inputs = (torch.ones(2),)
program = to_edge(torch.export.export(Model(), inputs)).exported_program()
seen = CastInt64BuffersToInt32Pass(program)(program.graph_module).graph_module.graph.output_node().args[0][1].meta["val"]
assert seen.dtype == torch.int64, f"seen {seen.dtype}"
