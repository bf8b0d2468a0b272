"""A tensor whose dimensions have one element cannot be cloned to channels-last."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return x.clone(memory_format=torch.channels_last)

inputs = (torch.ones(1, 1, 1, 2),)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
expected = Model()(*inputs)
assert torch.equal(seen, expected), f"seen {seen.tolist()}, expected {expected.tolist()}"
