"""A program that exchanges two buffers cannot be decomposed a second time."""
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.zeros(1))
        self.register_buffer("b", torch.ones(1))

    def forward(self, x):
        kept = self.b.clone()
        self.b.copy_(self.a)
        self.a.copy_(kept)
        return x + 1

once = torch.export.export(Model(), (torch.zeros(1),)).run_decompositions({})
assert len(once.run_decompositions({}).graph_signature.output_specs) == 3
