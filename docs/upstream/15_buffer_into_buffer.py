"""A buffer that is written to another buffer is not: a value that is some buffer counts as written in place."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("new", torch.zeros(1))
        self.register_buffer("old", torch.zeros(1))
    def forward(self, x):
        oldest = self.old.clone()
        self.old.copy_(self.new)
        self.new.copy_(x)
        return oldest
program = to_edge(torch.export.export(Model(), (torch.ones(1),))).to_executorch()
method = Runtime.get().load_program(program.buffer).load_method("forward")
seen = [method.execute((torch.tensor([number]),))[0].item() for number in (1.0, 2.0, 3.0)]
assert seen == [0.0, 0.0, 1.0], f"seen {seen}, expected [0.0, 0.0, 1.0]"
