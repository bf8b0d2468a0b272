"""Zero, and NaN, divided by zero and rounded down are infinite, and not NaN."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.floor_divide(x, torch.zeros(2))

inputs = (torch.tensor([0.0, float("nan")]),)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
expected = Model()(*inputs)
assert torch.allclose(seen, expected, equal_nan=True), f"seen {seen.tolist()}, expected {expected.tolist()}"
