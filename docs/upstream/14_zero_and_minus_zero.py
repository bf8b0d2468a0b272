"""Common subexpressions: numbers that compare equal count as the same, such as 0.0 and -0.0, or 1, 1.0 and True."""
import torch
from executorch.exir import to_edge
from executorch.exir.passes.cse_pass import CSEPass

class Model(torch.nn.Module):
    def forward(self, x):
        return x / torch.full_like(x, 0.0), x / torch.full_like(x, -0.0)

inputs = (torch.tensor([1.0]),)
edge = to_edge(torch.export.export(Model(), inputs)).transform([CSEPass()])
seen, expected = edge.exported_program().module()(*inputs), Model()(*inputs)
assert seen == expected, f"seen {seen}, expected {expected}"
