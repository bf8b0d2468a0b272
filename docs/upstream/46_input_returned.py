"""With memory of the caller for the outputs, an input that is returned comes back as zeros."""
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, x):
        return x, x + 1

planning = MemoryPlanningPass(alloc_graph_output=False)
edge = to_edge(torch.export.export(Model(), (torch.zeros(3),)))
program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
seen = Runtime.get().load_program(program.buffer).load_method("forward").execute((torch.ones(3),))
assert [one.tolist() for one in seen] == [[1.0] * 3, [2.0] * 3], f"seen {seen}"
