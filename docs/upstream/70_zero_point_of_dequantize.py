"""dequantize_per_tensor subtracts the zero point in 32 bits, which wraps."""
import torch
import executorch.kernels.quantized  # noqa: F401
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.quantized_decomposed.dequantize_per_tensor(x, 1.0, -(2**31), -(2**31), 2**31 - 1, torch.int32)

x = torch.tensor([1, 2], dtype=torch.int32)
program = to_edge(torch.export.export(Model(), (x,))).to_executorch()
method = Runtime.get().load_program(program.buffer).load_method("forward")
assert torch.equal(method.execute((x,))[0], Model()(x))
