"""A batch norm behind a transposed convolution scales the weight along its inputs."""
import torch
from executorch.backends.transforms.fuse_batch_norm_with_conv import FuseBatchNormWithConvPass
from executorch.exir import to_edge

class Model(torch.nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(torch.nn.ConvTranspose2d(2, 2, 1), torch.nn.BatchNorm2d(2), torch.nn.Sigmoid())
        self.eval()[1].running_var.data.copy_(torch.arange(1.0, 1 + len(self[1].running_var)))

inputs = (torch.ones(1, 2, 1, 1),)
program = to_edge(torch.export.export(Model(), inputs)).exported_program()
module = FuseBatchNormWithConvPass(program)(program.graph_module).graph_module
seen = program._update(module, program.graph_signature).module()(*inputs)
expected = Model()(*inputs)
assert torch.allclose(seen, expected, 1e-3, 1e-5), f"seen {seen.flatten()[:4].tolist()}; expected {expected.flatten()[:4].tolist()}"
