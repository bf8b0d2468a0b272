"""All model cases, in a fixed order; `CASES` by name."""

from __future__ import annotations

from tests.models.case import ModelCase
from tests.models.control_flow import family as control
from tests.models.families import basic, beyond, dtypes, dynamic, odd, odd_indexing, sequence, stateful, text, vision
from tests.models.families import vision_blocks as blocks

FAMILIES = (
    basic, vision, blocks, text, sequence, stateful, dynamic, dtypes, odd, odd_indexing, control, beyond,
)  # fmt: skip

CASES: dict[str, ModelCase] = {case.name: case for module in FAMILIES for case in module.family.cases}
