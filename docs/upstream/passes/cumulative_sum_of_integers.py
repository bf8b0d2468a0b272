"""A cumulative sum of int32, which is int64, stays int32."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.decompose_cumsum_pass import DecomposeCumsumPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 0)

inputs = (torch.tensor([1, 2], dtype=torch.int32),)
program = to_edge(torch.export.export(Model(), inputs)).exported_program()
module = DecomposeCumsumPass(program)(program.graph_module).graph_module
seen = torch.fx.Interpreter(module).run(*program.constants.values(), *program.state_dict.values(), *inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
