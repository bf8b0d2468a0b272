"""convert_pt2e runs what writes to a buffer, while it folds constants: the state of the model changes."""
import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import ComposableQuantizer

class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return x + self.count

program = torch.export.export(Counting(), (torch.zeros(1),))
convert_pt2e(prepare_pt2e(program.module(), ComposableQuantizer([])))
assert program.state_dict["count"].item() == 0
