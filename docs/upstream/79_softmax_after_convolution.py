"""XNNPACK computes a softmax along the last dim of what a convolution gives along the channels."""
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.Softmax(-1)).eval()
inputs = (torch.ones(1, 1, 3, 4),)
edge = to_edge_transform_and_lower(torch.export.export(model, inputs), partitioner=[XnnpackPartitioner()])
program = edge.to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
assert torch.allclose(seen, model(*inputs)), f"seen {seen.flatten().tolist()}, expected 0.25 everywhere"
