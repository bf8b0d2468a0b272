"""A batch norm behind a convolution whose weight is a tensor of the module, but no parameter, stops the pass."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.fuse_batch_norm2d_pass import FuseBatchNorm2dPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.weight = torch.nn.BatchNorm2d(1).eval(), torch.ones(1, 1, 1, 2)

    def forward(self, x):
        return self.norm(torch.nn.functional.conv2d(x, self.weight))

inputs = (torch.ones(1, 1, 2, 2),)
program = to_edge(torch.export.export(Model(), inputs)).exported_program()
FuseBatchNorm2dPass(program)(program.graph_module)
