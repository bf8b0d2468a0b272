"""quantize_per_tensor rounds the reciprocal of the scale twice: values become other integers than in PyTorch."""
import torch
import executorch.kernels.quantized  # noqa: F401
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.0123, 0, -128, 127, torch.int8)

x = torch.linspace(-1.5, 1.5, 2_000_001)
program = to_edge(torch.export.export(Model(), (x,))).to_executorch()
method = Runtime.get().load_program(program.buffer).load_method("forward")
assert torch.equal(method.execute((x,))[0], Model()(x))
