"""The partitioner for XNNPACK takes a maximum along any dim, and lowering then rejects all but the last two."""
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower

class Model(torch.nn.Module):
    def forward(self, x):
        return x.max(1, keepdim=True)[0]

program = torch.export.export(Model(), (torch.ones(2, 3, 4, 5),))
to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
