"""The remainder of integers has the sign of the dividend."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.remainder(x, 3)

inputs = (torch.tensor([-7, -3, 7]),)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
expected = Model()(*inputs)
assert torch.equal(seen, expected), f"seen {seen.tolist()}, expected {expected.tolist()}"
