"""A parameter that is the transpose of another tensor gives a file that cannot run."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(12.0).view(4, 3).t())

    def forward(self, x):
        return self.weight + x

inputs = (torch.zeros(3, 4),)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
assert torch.equal(seen, Model()(*inputs)), f"seen {seen.tolist()}"
