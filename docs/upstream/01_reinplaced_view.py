"""The experimental reinplacing of index_put overwrites the tensor that its operand is a view of."""
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        base = x + 1
        return base.view(6).index_put((torch.tensor([0]),), torch.tensor([9.0])), base * 2

inputs = (torch.zeros(2, 3),)
config = ExecutorchBackendConfig(run_reinplace_pass=True)
program = to_edge(torch.export.export(Model(), inputs)).to_executorch(config)
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute(inputs)[1]
expected = Model()(*inputs)[1]
assert torch.equal(seen, expected), f"seen {seen.tolist()}, expected {expected.tolist()}"
