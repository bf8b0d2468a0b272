"""An int64 constant that a program returns is returned as int32."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.convert_int64_const_ops_to_int32 import ConvertInt64ConstOpsToInt32Pass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return x, torch.full((2,), 3)

inputs = (torch.ones(2),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = ConvertInt64ConstOpsToInt32Pass()(module).graph_module(*inputs)[1]
assert seen.dtype == torch.int64, f"seen {seen.dtype}"
