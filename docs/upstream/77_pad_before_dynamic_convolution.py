"""A convolution of a padded image, with scales chosen in each call, makes a file for XNNPACK that does not run."""
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

model, x = torch.nn.Sequential(torch.nn.ZeroPad2d(1), torch.nn.Conv2d(8, 8, 3)), (torch.ones(1, 8, 9, 9),)
quantizer = xnnpack.XNNPACKQuantizer().set_global(xnnpack.get_symmetric_quantization_config(True, is_dynamic=True))
prepared = prepare_pt2e(torch.export.export(model, x).module(), quantizer)
prepared(*x)
program = torch.export.export(convert_pt2e(prepared), x)
program = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
method = Runtime.get().load_program(program.buffer).load_method("forward")
assert method.execute(x)[0].shape == (1, 8, 9, 9)
