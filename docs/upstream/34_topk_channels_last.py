"""topk reads a channels-last tensor as if it were contiguous."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        y = x.to(memory_format=torch.channels_last)
        return y.topk(1, 1)[0]

inputs = (torch.arange(24.0).view(1, 2, 3, 4),)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
expected = Model()(*inputs)
assert torch.equal(seen, expected), f"seen {seen.tolist()}, expected {expected.tolist()}"
