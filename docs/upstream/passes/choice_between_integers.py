"""A choice between two integers gives floats."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.replace_ops import ReplaceWhereWithFullArgsWithWhereScalar
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, c):
        return torch.where(c, torch.full((2,), 16777217), torch.full((2,), 2))

inputs = (torch.tensor([True, False]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = ReplaceWhereWithFullArgsWithWhereScalar()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
assert seen.dtype == expected.dtype, f"seen {seen.dtype}, expected {expected.dtype}"
