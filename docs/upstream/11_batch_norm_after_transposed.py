"""Fusing a batch norm with a transposed convolution scales the wrong dimension of its weight."""
import torch
from executorch.backends.transforms.fuse_batch_norm_with_conv import FuseBatchNormWithConvPass
from executorch.exir import to_edge

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.ConvTranspose2d(4, 4, 3), torch.nn.BatchNorm2d(4)).eval()
torch.nn.init.uniform_(model[1].weight)
inputs = (torch.randn(1, 4, 5, 5),)
edge = to_edge(torch.export.export(model, inputs))
fused = edge.transform([FuseBatchNormWithConvPass(edge.exported_program())]).exported_program().module()
error = (fused(*inputs) - model(*inputs)).abs().max().item()
assert error < 1e-4, f"off by {error}"
