"""A while_loop cannot be emitted."""
import torch
from executorch.exir import to_edge
from torch._higher_order_ops import while_loop

class Model(torch.nn.Module):
    def forward(self, x):
        return while_loop(lambda v: v.sum() < 10, lambda v: (v + 1,), (x,))

to_edge(torch.export.export(Model(), (torch.zeros(3),))).to_executorch()
