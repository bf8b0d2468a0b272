"""torch.sym_max is rejected by a bare assertion of the verifier."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1, torch.sym_max(x.shape[0], 4)

dynamic = {"x": {0: torch.export.Dim("n", min=2, max=8)}}
program = to_edge(torch.export.export(Model(), (torch.zeros(6),), dynamic_shapes=dynamic)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute((torch.zeros(5),))[1]
assert seen == 5, f"seen {seen}, expected 5"
