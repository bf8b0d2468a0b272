"""A norm over any dim goes: its size is not checked."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.remove_ops import RemoveNopLinalgVectorNormOpPass
from executorch.exir import EdgeCompileConfig, to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.linalg_vector_norm.default(x, 2, [1], True)

inputs = (torch.tensor([[1.0, -2.0], [3.0, 4.0]]),)
config = EdgeCompileConfig(preserve_ops=[torch.ops.aten.linalg_vector_norm.default])
module = to_edge(torch.export.export(Model(), inputs), compile_config=config).exported_program().graph_module
seen = RemoveNopLinalgVectorNormOpPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
