"""A safe softmax of a row that is masked as a whole becomes NaN."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.replace_ops import ReplaceSafeSoftmaxWithSoftmax

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten._safe_softmax(x, -1)

inputs = (torch.full((2,), float("-inf")),)
module = torch.export.export(Model(), inputs).graph_module
seen = ReplaceSafeSoftmaxWithSoftmax()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
