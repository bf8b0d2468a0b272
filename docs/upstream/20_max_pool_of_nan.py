"""A maximum over a window drops NaN."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool2d(x, 2)

inputs = (torch.tensor([[[1.0, float("nan")], [2.0, 3.0]]]),)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
expected = Model()(*inputs)
assert torch.allclose(seen, expected, equal_nan=True), f"seen {seen.tolist()}, expected {expected.tolist()}"
