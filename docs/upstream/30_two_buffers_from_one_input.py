"""Writing an input to two buffers cannot be lowered."""
import torch
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("one", torch.zeros(3))
        self.register_buffer("two", torch.zeros(3))

    def forward(self, x):
        self.one.copy_(x)
        self.two.copy_(x)
        return self.one + self.two

to_edge(torch.export.export(Model(), (torch.zeros(3),))).to_executorch()
