"""A size without upper bound gets the traced size for its bound, without a word."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return x + x

dynamic = {"x": {0: torch.export.Dim("n", min=2)}}
program = to_edge(torch.export.export(Model(), (torch.zeros(4),), dynamic_shapes=dynamic)).to_executorch()
method = Runtime.get().load_program(program.buffer).load_method("forward")
assert method.execute((torch.ones(5),))[0].tolist() == [2.0] * 5
