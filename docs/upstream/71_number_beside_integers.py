"""XNNPACKQuantizer makes floats of numbers beside integers: an index becomes a float."""
import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

class Model(torch.nn.Module):
    def forward(self, x):
        return x[torch.arange(2) + 1]

x = torch.ones(4)
quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
prepare_pt2e(torch.export.export(Model(), (x,)).module(), quantizer)(x)
