"""Assertions about dtype and layout, which `torch.export` writes beside casts: no reason to keep a value.

They say of a value what its metadata says already. Where a rule takes the value out, they go with it.
"""

from __future__ import annotations

import torch
from torch.fx import Node

_ASSERTION = torch.ops.aten._assert_tensor_metadata.default


def is_metadata_assert(node: Node) -> bool:
    """Return whether a call asserts the dtype, the sizes or the layout of a value and does nothing else."""
    return node.target is _ASSERTION


def counted_users(node: Node) -> int:
    """Return how many nodes use a value, without assertions about its metadata."""
    return sum(not is_metadata_assert(user) for user in node.users)
