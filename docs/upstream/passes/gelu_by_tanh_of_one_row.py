"""A GELU with an approximation of a tensor with a dim of one element stops the pass."""
import torch
from executorch.backends.vulkan._passes.squeeze_unsqueeze_inputs import SqueezeUnsqueezeInputs
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x, approximate="tanh")

inputs = (torch.ones(2, 1, 3),)
program = to_edge(torch.export.export(Model(), inputs)).exported_program()
seen = SqueezeUnsqueezeInputs()(program.graph_module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 1e-6, equal_nan=True), text
