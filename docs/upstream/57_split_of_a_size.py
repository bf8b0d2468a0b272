"""After a split, the bound of a dynamic size is the traced size."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return x.split(1, 1)

dynamic = {"x": {0: torch.export.Dim("n", min=2, max=8)}}
program = to_edge(torch.export.export(Model(), (torch.zeros(4, 2),), dynamic_shapes=dynamic)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute((torch.ones(6, 2),))
assert torch.equal(seen[0], torch.ones(6, 1)), f"seen {seen}"
