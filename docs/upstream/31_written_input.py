"""A method that changes its argument answers with it, as an output more than the model has."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        x.add_(1)
        return x * 2

program = to_edge(torch.export.export(Model(), (torch.zeros(1),))).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute((torch.zeros(1),))
assert len(seen) == 1, f"seen {seen}, expected [tensor([2.])]"
