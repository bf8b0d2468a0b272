"""The results of two conditions that live together share their memory."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        first = torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))
        second = torch.cond(x.sum() > 1, lambda y: y * 3, lambda y: y * 5, (x,))
        return first, second

inputs = (torch.tensor([1.0, 2.0, 3.0]),)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch()
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
expected = Model()(*inputs)[0]
assert torch.equal(seen, expected), f"seen {seen.tolist()}, expected {expected.tolist()}"
