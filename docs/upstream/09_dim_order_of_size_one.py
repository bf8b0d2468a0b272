"""The order of dimensions is not that of torch where a dimension has one element."""
import torch
from executorch.exir.tensor import dim_order_from_stride

tensor = torch.empty_strided((2, 3, 3, 1), (9, 1, 3, 1))
seen, expected = tuple(dim_order_from_stride(tensor.stride())), tensor.dim_order()
assert seen == expected, f"seen {seen}, expected {expected}"
