"""A counter that the program returns is not counted on any more."""
import torch
from executorch.backends.cadence.aot.remove_ops import RemoveBNTrackingMutationsPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("num_batches_tracked", torch.tensor(0.0))

    def forward(self, x):
        self.num_batches_tracked.add_(1)
        return x + self.num_batches_tracked

inputs = (torch.zeros(2),)
program = to_edge(torch.export.export(Model(), inputs)).exported_program()
module = RemoveBNTrackingMutationsPass()(program).exported_program.module()
seen = [module(*inputs).tolist() for _ in range(2)]
assert seen == [[1.0, 1.0], [2.0, 2.0]], f"seen {seen}; expected [[1.0, 1.0], [2.0, 2.0]]"
