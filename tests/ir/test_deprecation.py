"""Old names of renamed things work, and warn."""

from __future__ import annotations

from types import ModuleType

import pytest

from exirkit import ir, pictures, program, visualization
from exirkit.cli import program_file, reports


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (ir, "cheap_tracing", program.cheap_tracing),
        (ir, "BodyEditor", ir.SubgraphEditor),
        (ir, "bodies_of", ir.subgraph_editors),
        (pictures, "picture_svg", visualization.memory_map_svg),
        (pictures, "Step", visualization.Step),
        (reports, "BytesByKind", program_file.BytesByKind),
    ],
)
def test_old_names_warn(module: ModuleType, old: str, new: object) -> None:
    with pytest.warns(DeprecationWarning, match=rf"{old} is deprecated: use exirkit"):
        assert module.__getattr__(old) is new


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        ir.__getattr__("no_such_name")
