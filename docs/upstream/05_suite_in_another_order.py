"""A suite of planning algorithms is said to take the best plan; which one it takes depends on their order."""
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, greedy, naive
from executorch.exir.passes import MemoryPlanningPass

class Model(torch.nn.Module):
    def forward(self, x):
        return (((x + 1) * 2).relu() + 3).sigmoid()

def arena(*algorithms):
    planning = MemoryPlanningPass(memory_planning_algo=MemoryPlanningAlgorithmSuite(algo_list=list(algorithms)))
    edge = to_edge(torch.export.export(Model(), (torch.zeros(6),)))
    program = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)).executorch_program
    return program.execution_plan[0].non_const_buffer_sizes[1]

sizes = arena(naive, greedy), arena(greedy, naive)
assert sizes[0] == sizes[1], f"naive first: {sizes[0]} bytes, greedy first: {sizes[1]} bytes"
