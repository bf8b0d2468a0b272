"""A linear whose weights are quantized in each call (`fold_quantize=False`) is computed wrong by XNNPACK."""
import torch
import executorch.kernels.quantized  # noqa: F401
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

model, inputs = torch.nn.Linear(8, 3, bias=False), (torch.ones(2, 8),)
torch.nn.init.constant_(model.weight, 0.5)
quantizer = xnnpack.XNNPACKQuantizer().set_global(xnnpack.get_symmetric_quantization_config(is_per_channel=False))
prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
prepared(*inputs)
program = torch.export.export(convert_pt2e(prepared, fold_quantize=False), inputs)
lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
seen = Runtime.get().load_program(lowered.buffer).load_method("forward").execute(inputs)[0]
expected = program.module()(*inputs)
assert torch.allclose(seen, expected, atol=0.1), f"seen {seen.tolist()}, expected {expected.tolist()}"
