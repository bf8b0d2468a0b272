"""A quotient of half precision is float32, since the stored reciprocal is."""
import torch
from executorch.backends.nxp.aten_passes.convert_div_to_mul import ConvertDivToMulPass

class Model(torch.nn.Module):
    def forward(self, x):
        return x / 2.0

inputs = (torch.ones(2, dtype=torch.float16),)
module = torch.export.export(Model(), inputs).module()
seen = ConvertDivToMulPass()(module).graph_module(*inputs)
assert seen.dtype == torch.float16, f"seen {seen.dtype}"
