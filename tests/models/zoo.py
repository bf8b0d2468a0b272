"""All model cases, in a fixed order; `CASES` by name."""

from __future__ import annotations

from tests.models import basic, beyond, control, dtypes, dynamic, odd, odd_indexing, sequence, stateful, text, vision
from tests.models import vision_blocks as blocks
from tests.models.case import ModelCase

FAMILIES = (
    basic, vision, blocks, text, sequence, stateful, dynamic, dtypes, odd, odd_indexing, control, beyond,
)  # fmt: skip

CASES: dict[str, ModelCase] = {case.name: case for module in FAMILIES for case in module.family.cases}
