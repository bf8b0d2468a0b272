"""A propagation that is right, in pieces that tests replace by wrong ones."""

from __future__ import annotations

from exirkit.patterns import Propagation, PropagationVerdict, check_propagation, parse_propagation

BASE = """propagation: 1
id: test.layout
values:
  nchw: {perm: [0, 1, 2, 3]}
  nhwc: {perm: [0, 2, 3, 1]}
of: rank(x) == 4
neutral: rank(x) == 0
materialise:
  nchw -> nhwc: return aten.permute_copy.default(x, [0, 2, 3, 1])
  nhwc -> nchw: return aten.permute_copy.default(x, [0, 3, 1, 2])
transfer:
- ops: aten.relu.default
  args: same
  result: same
"""

LAYOUTS = """propagation: 1
id: test.memory
values: [nchw, nhwc]
of: rank(x) == 4
neutral: rank(x) == 0
recorded: {nhwc: channels_last(x) and not is_contiguous(x)}
compare: layouts
materialise:
  nchw -> nhwc: return aten.clone.default(x, memory_format=torch.channels_last)
  nhwc -> nchw: return aten.clone.default(x, memory_format=torch.contiguous_format)
transfer:
- ops: aten.relu.default
  args: same
  result: same
"""


def parsed(text: str) -> Propagation:
    """Return a propagation from text."""
    return parse_propagation(text, "test.yaml")


def checked(text: str) -> PropagationVerdict:
    """Return the verdict on a propagation."""
    return check_propagation(parsed(text))


def with_rows(rows: str, base: str = BASE) -> str:
    """Return the base with other rows."""
    return base.partition("transfer:\n")[0] + "transfer:\n" + rows
