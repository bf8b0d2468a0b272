"""A product of integers and 2.5 becomes one of integers and 2 before it is quantized."""
import torch
from executorch.backends.nxp.aten_passes.convert_scalar_to_attr import ConvertScalarToAttrPass

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.5

inputs = (torch.tensor([1, 2]),)
module = torch.export.export(Model(), inputs).graph_module
seen = ConvertScalarToAttrPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
