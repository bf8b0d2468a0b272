"""log_softmax along a dimension of no elements ends the process."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.log_softmax(x[:, :0], 1)

inputs = (torch.ones(3, 2),)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
assert seen.shape == (3, 0), seen.shape
