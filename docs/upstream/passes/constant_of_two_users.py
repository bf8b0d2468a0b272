"""A stored addend that counts twice is doubled where it is stored, so that all else that reads it gets it doubled."""
import torch
from executorch.backends.nxp.aten_passes.fuse_linear_and_add_pass import FuseLinearAndAddPass

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2, bias=False)
        self.c = torch.nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x):
        return torch.add(self.linear(x), self.c, alpha=2), x * self.c

inputs = (torch.ones(1, 2),)
seen = FuseLinearAndAddPass()(torch.export.export(Model(), inputs).module()).graph_module(*inputs)[1]
assert torch.equal(seen, inputs[0]), f"seen {seen.tolist()}; expected {inputs[0].tolist()}"
