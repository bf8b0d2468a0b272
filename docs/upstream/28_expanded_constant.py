"""A parameter that is expanded cannot be lowered."""
import torch
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.ones(1).expand(3), requires_grad=False)

    def forward(self, x):
        return self.table + x

to_edge(torch.export.export(Model(), (torch.zeros(3),))).to_executorch()
