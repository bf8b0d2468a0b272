"""A reinplaced index_put of one number ends the process."""
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return (x + 1).index_put((torch.tensor([0]),), torch.tensor(9.0))

inputs = (torch.zeros(3),)
config = ExecutorchBackendConfig(run_reinplace_pass=True)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch(config)
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[0]
assert seen.tolist() == [9.0, 1.0, 1.0], f"seen {seen.tolist()}"
