"""A reinplaced index_put of values that broadcast, or of a negative index, fails; the functional one runs."""
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 4))

    def forward(self, row, place):
        self.cache[place] = row
        return self.cache.sum(0)

inputs = (torch.ones(1, 4), torch.tensor([-1]))
config = ExecutorchBackendConfig(run_reinplace_pass=True)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch(config)
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
assert seen.tolist() == [1.0, 1.0, 1.0, 1.0], f"seen {seen.tolist()}"
