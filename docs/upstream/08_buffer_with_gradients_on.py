"""A model that changes a buffer by a parameter fails unless it is exported under no_grad."""
import torch
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("state", torch.zeros(1, 3))

    def forward(self, x):
        self.state.copy_(self.linear(x) + self.state)
        return self.state * 2

to_edge(torch.export.export(Model(), (torch.zeros(1, 3),))).to_executorch()
