"""Two kinds of memory: large tensors go to arena 2, a slow pool, and all others to arena 1."""

from typing import Any

import torch
from torch.fx import GraphModule

from exirkit import ExecutorchBackendConfig, MemoryPlanningPass, TensorSpec, to_edge
from exirkit.runtime_ref import Runtime

FAST_POOL, SLOW_POOL = 1, 2
LARGEST_IN_FAST_POOL = 1024


class TwoPools(MemoryPlanningPass):
    """Wish for an arena for every tensor; the planner then places the tensors of each arena."""

    def run(self, graph_module: GraphModule, graph_signature: Any = None) -> Any:
        """Set `mem_id` before planning."""
        for node in graph_module.graph.nodes:
            spec = node.meta.get("spec")
            for one in spec if isinstance(spec, list | tuple) else [spec]:
                if isinstance(one, TensorSpec) and not one.const:
                    one.mem_id = FAST_POOL if one.nbytes() <= LARGEST_IN_FAST_POOL else SLOW_POOL
        return super().run(graph_module, graph_signature)


def main() -> None:
    """Lower with the planner above and examine the arenas."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8)).eval()
    x = torch.randn(1, 64)
    config = ExecutorchBackendConfig(memory_planning_pass=TwoPools())
    program = to_edge(torch.export.export(model, (x,))).to_executorch(config)
    method = Runtime.get().load_program(program.buffer).load_method("forward")
    sizes = [method.metadata.memory_planned_buffer_size(index) for index in range(2)]
    print(f"fast pool: {sizes[0]} bytes, slow pool: {sizes[1]} bytes")
    assert sizes[1] >= 4 * 1024 > sizes[0] > 0
    torch.testing.assert_close(method.execute([x])[0], model(x))


if __name__ == "__main__":
    main()
