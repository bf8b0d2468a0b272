"""A product of int32 and 2.5 becomes one of int32 and 2."""
import typing
import torch
import typing_extensions
typing.override = typing_extensions.override  # new in Python 3.12
from executorch.backends.cadence.aot.replace_ops import ReplaceMulTensorWithMulAndFullOpsPass

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.5

inputs = (torch.tensor([1, 2], dtype=torch.int32),)
module = torch.export.export(Model(), inputs).graph_module
seen = ReplaceMulTensorWithMulAndFullOpsPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
