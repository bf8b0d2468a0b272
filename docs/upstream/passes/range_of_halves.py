"""A range of half precision becomes one of float32."""
import torch
from executorch.backends.qualcomm._passes.replace_arange_args import ReplaceArangeArgs

class Model(torch.nn.Module):
    def forward(self, x):
        return x + torch.arange(3, dtype=torch.float16)

inputs = (torch.ones(3, dtype=torch.float16),)
module = torch.export.export(Model(), inputs).graph_module
seen = ReplaceArangeArgs()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
