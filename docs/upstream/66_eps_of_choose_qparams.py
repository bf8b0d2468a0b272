"""choose_qparams ignores eps: zeros get the scale 0.1."""
import torch
import executorch.kernels.quantized  # noqa: F401
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.quantized_decomposed.choose_qparams(x, -128, 127, 2.0**-12, torch.int8)

x = torch.zeros(4)
program = to_edge(torch.export.export(Model(), (x,))).to_executorch()
method = Runtime.get().load_program(program.buffer).load_method("forward")
assert [one.item() for one in method.execute((x,))] == [one.item() for one in Model()(x)]
