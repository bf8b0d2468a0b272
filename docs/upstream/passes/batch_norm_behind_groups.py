"""A batch norm behind a transposed convolution of two groups stops the pass."""
import torch
from executorch.backends.xnnpack._passes.fuse_batch_norm import FuseBatchNormPass
from executorch.exir import to_edge

class Model(torch.nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(torch.nn.ConvTranspose2d(2, 6, 1, groups=2), torch.nn.BatchNorm2d(6), torch.nn.Sigmoid())
        self.eval()[1].running_var.data.copy_(torch.arange(1.0, 1 + len(self[1].running_var)))

inputs = (torch.ones(1, 2, 1, 1),)
program = to_edge(torch.export.export(Model(), inputs)).exported_program()
module = FuseBatchNormPass(program)(program.graph_module).graph_module
seen = program._update(module, program.graph_signature).module()(*inputs)
expected = Model()(*inputs)
assert torch.allclose(seen, expected, 1e-3, 1e-5), f"seen {seen.flatten()[:4].tolist()}; expected {expected.flatten()[:4].tolist()}"
