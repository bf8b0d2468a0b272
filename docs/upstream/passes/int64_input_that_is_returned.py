"""An int64 input that a program returns is returned as int32."""
import sys
from unittest import mock
import torch
sys.modules.setdefault("tosa_serializer", mock.MagicMock())  # it writes files, which is not needed here
from executorch.backends.arm._passes.insert_int32_casts_after_int64_placeholders import InsertInt32CastsAfterInt64PlaceholdersPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return x + x

inputs = (torch.tensor([1, 2]),)
module = to_edge(torch.export.export(Model(), inputs)).exported_program().graph_module
seen = InsertInt32CastsAfterInt64PlaceholdersPass()(module).graph_module(*inputs)[0]
assert seen.dtype == torch.int64, f"seen {seen.dtype}"
