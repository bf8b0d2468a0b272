"""An operand of fewer dims whose size varies stops the pass."""
import torch
from executorch.backends.qualcomm._passes.expand_broadcast_tensor_shape import ExpandBroadcastTensorShape
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x, y):
        return x * y

inputs = (torch.ones(2, 4), torch.ones(4))
sizes = {1: torch.export.Dim("n", max=9)}, {0: torch.export.Dim("n", max=9)}
program = to_edge(torch.export.export(Model(), inputs, dynamic_shapes=sizes)).exported_program()
ExpandBroadcastTensorShape()(program.graph_module)
