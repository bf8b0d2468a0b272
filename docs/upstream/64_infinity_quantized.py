"""quantize_per_tensor of infinity gives the least integer."""
import torch
import executorch.kernels.quantized  # noqa: F401
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.5, 0, -128, 127, torch.int8)

x = torch.tensor([float("inf"), 1e30, 1.0])
program = to_edge(torch.export.export(Model(), (x,))).to_executorch()
method = Runtime.get().load_program(program.buffer).load_method("forward")
assert torch.equal(method.execute((x,))[0], Model()(x))
