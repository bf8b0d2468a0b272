"""A small part of the campaign against real files; the whole of it is a command."""

from __future__ import annotations

import pytest
from tests.runtime_ref.damage_campaign import FILES, campaign, damaged_fields, real_file
from tests.runtime_ref.mutations import mutations
from tests.thoroughness import TRIES_ALL


@pytest.mark.parametrize("name", FILES if TRIES_ALL else list(FILES)[::2])
def test_real_files_with_damage(name: str) -> None:
    data, header_nbytes = real_file(name)
    count = 300 if TRIES_ALL else 30
    tally = campaign(mutations(data, count, seed=3, header_nbytes=header_nbytes), count)
    assert tally.is_clean, tally
    assert len(tally.outcomes) > 5
    every = max(1, header_nbytes // (400 if TRIES_ALL else 30))
    tally = campaign(damaged_fields(data, header_nbytes, every=every), 1000)
    assert tally.is_clean, tally
    assert tally.outcomes["ok"]
