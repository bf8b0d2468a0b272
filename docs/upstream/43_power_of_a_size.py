"""A power of a size cannot be emitted."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1, x.shape[0] ** 2

dynamic = {"x": {0: torch.export.Dim("n", min=2, max=8)}}
program = to_edge(torch.export.export(Model(), (torch.zeros(6),), dynamic_shapes=dynamic)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute((torch.zeros(5),))[1]
assert seen == 25, f"seen {seen}, expected 25"
