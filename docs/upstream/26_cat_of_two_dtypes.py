"""cat of an int32 and an int64 tensor is rejected as a violation of the dialect."""
import torch
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cat([x, x.to(torch.int64)])

to_edge(torch.export.export(Model(), (torch.zeros(3, dtype=torch.int32),))).to_executorch()
