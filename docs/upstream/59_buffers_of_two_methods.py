"""Methods of one program that keep buffers of their own overwrite each other's in Python."""
import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

class Count(torch.nn.Module):
    def __init__(self, start):
        super().__init__()
        self.register_buffer("total", torch.full((1,), start))
    def forward(self, x):
        return self.total.add_(x) + 0

programs = {name: torch.export.export(Count(0.0), (torch.ones(1),)) for name in ("apples", "pears")}
program = Runtime.get().load_program(to_edge(programs).to_executorch().buffer)
apples, pears = program.load_method("apples"), program.load_method("pears")
calls = [(apples, 1.0), (pears, 10.0), (apples, 1.0), (pears, 10.0)]
seen = [method.execute([torch.full((1,), x)])[0].item() for method, x in calls]
print("seen", seen)
assert seen == [1, 10, 2, 20]
