"""A view of a tensor without elements becomes an unsqueeze of other sizes."""
import torch
from executorch.backends.transforms.view_copy_to_squeeze_unsqueeze import ViewCopyToSqueezeUnsqueezePass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return x.view(1, 0, 1)

inputs = (torch.zeros(0, 5),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = ViewCopyToSqueezeUnsqueezePass()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
