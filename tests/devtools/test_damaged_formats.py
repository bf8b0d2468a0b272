"""A small part of the campaign against every format; the whole of it is a command."""

from __future__ import annotations

import pytest
from tests.devtools.damaged_formats import FORMATS
from tests.runtime_ref.damage_campaign import campaign, damaged_fields
from tests.thoroughness import TRIES_ALL


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_end_with_the_documented_error(name: str) -> None:
    known = FORMATS[name]
    data = known.make()
    count = 400 if TRIES_ALL else 120 if known.has_fields else 20
    kinds = [known.damaged(data, count, 5)]
    if known.has_fields:
        kinds.append(damaged_fields(data, len(data), every=max(3, len(data) // (4 * count))))
    for copies in kinds:
        tally = campaign(copies, count, known.tally())
        assert not tally.undocumented
        assert 0 < tally.outcomes["ok"] < tally.loads
