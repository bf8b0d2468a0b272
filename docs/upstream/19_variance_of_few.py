"""A variance with a correction beyond the number of elements is NaN, and not infinite."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.var(x, 0, correction=3)

inputs = (torch.tensor([1.0, 2.0]),)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
expected = Model()(*inputs)
assert torch.allclose(seen, expected, equal_nan=True), f"seen {seen.tolist()}, expected {expected.tolist()}"
