"""A linear layer of one vector without batch stops the pass."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.replace_ops import ReplaceLinearWithFullyConnectedOpPass
from executorch.exir import EdgeCompileConfig, to_edge

class Model(torch.nn.Module):
    def forward(self, x, w):
        return torch.nn.functional.linear(x, w)

inputs = (torch.rand(4), torch.rand(3, 4))
config = EdgeCompileConfig(preserve_ops=[torch.ops.aten.linear.default])
module = to_edge(torch.export.export(Model(), inputs), compile_config=config).exported_program().graph_module
seen = ReplaceLinearWithFullyConnectedOpPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
