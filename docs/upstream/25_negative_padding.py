"""Padding by a negative number, which crops, is rejected when the file runs."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.pad(x, (-1, 1))

inputs = (torch.arange(4.0),)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
expected = Model()(*inputs)
assert torch.equal(seen, expected), f"seen {seen.tolist()}, expected {expected.tolist()}"
