"""Average pooling leaves out padding that counts: the kernel has another default than its operator."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.replace_ops import ReplaceAtenAvgPoolWithCadenceAvgPoolPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.avg_pool2d(x, 3, 2, 1)

inputs = (torch.ones(1, 1, 4, 4),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = ReplaceAtenAvgPoolWithCadenceAvgPoolPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
