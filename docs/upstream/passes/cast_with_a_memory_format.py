"""A cast that names a memory format is removed, though it changes the dtype."""
import torch
from executorch.backends.qualcomm._passes.remove_redundancy import RemoveRedundancy
from executorch.exir import EdgeCompileConfig, to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return x.to(torch.float16, memory_format=torch.contiguous_format).relu()

inputs = (torch.tensor([1.5, -2.5]),)
module = to_edge(torch.export.export(Model(), inputs), compile_config=EdgeCompileConfig(_skip_dim_order=True)).exported_program().graph_module
seen = RemoveRedundancy()(module).graph_module(*inputs)[0]
expected = Model()(*inputs)
text = f"seen {seen.tolist()}, {seen.dtype}, {list(seen.shape)}; expected {expected.tolist()}, {expected.dtype}"
is_alike = seen.shape == expected.shape and seen.dtype == expected.dtype
assert is_alike and torch.allclose(seen.double(), expected.double(), 1e-3, 0, equal_nan=True), text
