"""A linear whose weights `dequantize_affine` makes, and whose activations are floats, loses the scales in XNNPACK."""
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torchao.quantization import IntxWeightOnlyConfig, PerAxis, quantize_

model, inputs = torch.nn.Sequential(torch.nn.Linear(32, 2, bias=False)), (torch.ones(1, 32),)
torch.nn.init.constant_(model[0].weight, 0.5)
quantize_(model, IntxWeightOnlyConfig(torch.int8, PerAxis(0)))
program = torch.export.export(model, inputs)
lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
seen = Runtime.get().load_program(lowered.buffer).load_method("forward").execute(inputs)[0]
expected = program.module()(*inputs)
assert torch.allclose(seen, expected, atol=0.1), f"seen {seen.tolist()}, expected {expected.tolist()}"
