"""A mean of half precision overflows, since its sum is made in half precision."""
import torch
from executorch.backends.transforms.mean_to_sum_div import MeanToSumDiv
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.mean(x, 0)

inputs = (torch.full((1000,), 100.0, dtype=torch.float16),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = MeanToSumDiv()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {list(seen.shape)}; expected {expected.tolist()}"
assert seen.shape == expected.shape and torch.allclose(seen.double(), expected.double(), equal_nan=True), text
