"""A pooling whose indices are used stops the pass."""
import torch
from executorch.backends.transforms.remove_getitem_op import RemoveGetItemPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool2d(x, 2, return_indices=True)[1]

inputs = (torch.rand(1, 1, 4, 4),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = RemoveGetItemPass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
