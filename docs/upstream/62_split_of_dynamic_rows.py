"""split_copy and unbind_copy do not resize what they return."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.unbind_copy(x, 1)

shapes = {"x": {0: torch.export.Dim("rows", min=1, max=8)}}
program = to_edge(torch.export.export(Model(), (torch.ones(4, 2),), dynamic_shapes=shapes)).to_executorch()
method = Runtime.get().load_program(program.buffer).load_method("forward")
assert [one.shape for one in method.execute((torch.ones(3, 2),))] == [(3,), (3,)]
