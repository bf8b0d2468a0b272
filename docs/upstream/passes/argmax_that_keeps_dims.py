"""The index of the greatest element, with dims kept, loses all but one of them."""
import torch
from executorch.backends.qualcomm._passes.insert_reshape_for_reduce_ops import InsertReshapeForReduceOps

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.argmax(x, keepdim=True)

inputs = (torch.tensor([[1.0, 2.0]]),)
module = torch.export.export(Model(), inputs).graph_module
seen = InsertReshapeForReduceOps()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
