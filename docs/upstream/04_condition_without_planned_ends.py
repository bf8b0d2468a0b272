"""A program that is one condition, with inputs and outputs of the caller, has no memory for its branches."""
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime

class Model(torch.nn.Module):
    def forward(self, p, x):
        return torch.cond(p, lambda y: (y + 1) * 2, lambda y: (y - 1) * 3, (x,))

inputs = (torch.tensor(True), torch.zeros(3))
planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
edge = to_edge(torch.export.export(Model(), inputs))
program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
Runtime.get().load_program(program.buffer).load_method("forward")
