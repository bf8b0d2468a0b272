"""x + 1 of floats casts a stored int64 number at every inference."""
import torch
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

program = to_edge(torch.export.export(Model(), (torch.zeros(3),))).to_executorch().executorch_program
operators = [operator.name for operator in program.execution_plan[0].operators]
assert operators == ["aten::add"], f"operators: {operators}"
