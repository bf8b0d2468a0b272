"""torch.export traces scan wrongly where it begins with one tensor carried twice."""
import torch
from torch._higher_order_ops import scan

class Model(torch.nn.Module):
    def forward(self, x, rows):
        return scan(lambda carried, row: ((carried[0] + row, carried[1] * 2), row * 1), (x, x), rows)[0]

x, rows = torch.ones(2), torch.ones(3, 2)
expected = [each.tolist() for each in Model()(x, rows)]
seen = [each.tolist() for each in torch.export.export(Model(), (x, rows)).module()(x, rows)]
print("expected", expected, "seen", seen)
assert seen == expected
