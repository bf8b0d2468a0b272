"""Limits behind a ReLU take the place of it: what was not negative is cut off at -1."""
import torch
from executorch.backends.xnnpack._passes.fuse_activation_pass import FuseActivationPass
from executorch.exir import to_edge

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.hardtanh(torch.relu(x + x))

inputs = (torch.tensor([-1.0, 0.25]),)
program = to_edge(torch.export.export(Model(), inputs)).exported_program()
module = FuseActivationPass(program)(program.graph_module).graph_module
(limits,) = (node.meta["XNN_FUSED_ACTIVATION"] for node in module.graph.nodes if node.name == "aten_add_tensor")
seen, expected = module(*inputs)[0].clamp(limits.output_min, limits.output_max), Model()(*inputs)
assert torch.equal(seen, expected), f"seen {seen.tolist()}; expected {expected.tolist()}"
