"""Any permutation between two views becomes a pixel unshuffle."""
import torch
from executorch.backends.qualcomm._passes.recompose_pixel_unshuffle import RecomposePixelUnshuffle
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.view_copy.default(torch.ops.aten.view_copy.default(x, [1, 1, 2, 2, 2, 2]).permute(0, 1, 5, 3, 2, 4), [1, 4, 2, 2])

inputs = (torch.arange(16.0).view(1, 1, 4, 4),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = RecomposePixelUnshuffle()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
