"""A pooling of a single volume stops the pass."""
import torch
from executorch.backends.qualcomm._passes.decompose_maxpool3d import DecomposeMaxPool3d
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool3d(x, 2, 2)

inputs = (torch.ones(1, 4, 4, 4),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = DecomposeMaxPool3d()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
