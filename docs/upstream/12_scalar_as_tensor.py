"""The pass that makes tensors of numbers truncates 0.5 beside integers."""
import torch
from executorch.backends.transforms.replace_scalar_with_tensor import ReplaceScalarWithTensorArgPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.aten.add.Scalar(x, 0.5)

inputs = (torch.tensor([1, 2]),)
edge = to_edge(torch.export.export(Model(), inputs)).transform([ReplaceScalarWithTensorArgPass()])
seen, expected = edge.exported_program().module()(*inputs), Model()(*inputs)
assert torch.equal(seen, expected), f"seen {seen.tolist()}, expected {expected.tolist()}"
