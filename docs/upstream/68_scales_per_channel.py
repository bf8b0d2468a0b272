"""quantize_per_channel with float32 scales, as convert_pt2e makes them, ends the process."""
import torch
import executorch.kernels.quantized  # noqa: F401
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x, scales):
        zeros = torch.zeros(2, dtype=torch.int64)
        return torch.ops.quantized_decomposed.quantize_per_channel(x, scales, zeros, 0, -127, 127, torch.int8)

inputs = (torch.ones(2, 3), torch.tensor([0.5, 0.25]))
program = to_edge(torch.export.export(Model(), inputs)).to_executorch()
method = Runtime.get().load_program(program.buffer).load_method("forward")
assert torch.equal(method.execute(inputs)[0], Model()(*inputs))
