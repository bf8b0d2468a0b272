"""map specialises the bound of a dynamic number of rows to the traced one."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime
from torch._higher_order_ops import map as torch_map

class Model(torch.nn.Module):
    def forward(self, x):
        return torch_map(lambda row: row + 1, x)

dynamic = {"x": {0: torch.export.Dim("n", min=2, max=8)}}
program = to_edge(torch.export.export(Model(), (torch.zeros(4, 3),), dynamic_shapes=dynamic)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute((torch.zeros(6, 3),))[0]
assert torch.equal(seen, torch.ones(6, 3)), f"seen {seen.tolist()}"
