"""QuantFusionPass makes quantized_decomposed.add of a sum that broadcasts; its kernel ends the process."""
import torch
import executorch.kernels.quantized  # noqa: F401
from executorch.exir import to_edge
from executorch.exir.passes.quant_fusion_pass import QuantFusionPass
from executorch.runtime import Runtime

q, P = torch.ops.quantized_decomposed, (0.5, 0, 0, 255, torch.uint8)

class Model(torch.nn.Module):
    def forward(self, x, y):
        return q.quantize_per_tensor(q.dequantize_per_tensor(x, *P) + q.dequantize_per_tensor(y, *P), *P)

inputs = (torch.ones(2, 3, dtype=torch.uint8), torch.ones(3, dtype=torch.uint8))
program = to_edge(torch.export.export(Model(), inputs)).transform([QuantFusionPass(_fix_node_meta_val=True)])
method = Runtime.get().load_program(program.to_executorch().buffer).load_method("forward")
assert torch.equal(method.execute(inputs)[0], Model()(*inputs))
