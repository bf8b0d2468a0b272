"""The first value of a buffer that is changed is not in the file."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.tensor([5.0]))

    def forward(self, x):
        self.state.mul_(x)
        return self.state * 1

program = to_edge(torch.export.export(Model(), (torch.ones(1),))).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute((torch.ones(1),))[0]
assert seen.item() == 5.0, f"seen {seen.item()}, expected 5.0"
