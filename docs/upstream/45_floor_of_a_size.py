"""The floor of a quotient of sizes cannot be lowered."""
import math

import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1, math.floor(x.shape[0] / 3)

dynamic = {"x": {0: torch.export.Dim("n", min=2, max=8)}}
program = to_edge(torch.export.export(Model(), (torch.zeros(6),), dynamic_shapes=dynamic)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute((torch.zeros(5),))[1]
assert seen == 1, f"seen {seen}, expected 1"
