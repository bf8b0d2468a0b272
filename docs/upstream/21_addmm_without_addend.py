"""beta=0 does not keep NaN of the addend out."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.addmm(torch.full((2, 2), float("nan")), x, x, beta=0)

inputs = (torch.ones(2, 2),)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
expected = Model()(*inputs)
assert torch.allclose(seen, expected, equal_nan=True), f"seen {seen.tolist()}, expected {expected.tolist()}"
