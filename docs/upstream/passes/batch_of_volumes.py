"""A pooling of volumes gives the first of a batch alone, without the dim of the batch."""
import torch
from executorch.backends.qualcomm._passes.decompose_maxpool3d import DecomposeMaxPool3d
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool3d(x, 2)

inputs = (torch.arange(32.0).reshape(2, 1, 2, 2, 4),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeMaxPool3d()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
assert seen.shape == expected.shape and torch.equal(seen, expected), f"seen {seen.tolist()}, {list(seen.shape)}"
