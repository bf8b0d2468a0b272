"""A small part of the campaign against every format; the whole of it is a command."""

from __future__ import annotations

import pytest
from tests.devtools.damaged_formats import FORMATS, readings_of
from tests.devtools.torch_readings import TorchReadings, sparing
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


def test_damage_depends_on_the_seed_alone() -> None:
    data = b'{"a": [1]}'
    first, second = (list(FORMATS["certificate"].damaged(data, 3000, 4)) for _ in range(2))
    assert first == second


def test_what_torch_is_spared_changes_no_end_of_a_reading() -> None:
    known = FORMATS["failure"]
    data = known.make()
    plain = readings_of("failure", "mutations", data, 12, 7, TorchReadings())
    ends = []
    for share in (1, 1 << 32):
        torch_readings = TorchReadings(share)
        with sparing(torch_readings, lambda: known.read(bytearray(data))):
            ends.append(readings_of("failure", "mutations", data, 12, 7, torch_readings))
    every, few = ends
    assert every.tally.outcomes == plain.tally.outcomes
    assert (every.programs["left out"], every.programs["stood in"]) == (0, 0)
    # Torch makes none of the damaged programs; all that is wrong with others is found as ever.
    assert few.programs["damaged"] == 0
    assert few.programs["undamaged"] == every.programs["undamaged"] > 0
    assert few.programs["left out"] == every.programs["damaged"] > 0
    more = few.tally.outcomes["ok"] - every.tally.outcomes["ok"]
    assert few.programs["left out"] >= few.programs["stood in"] >= max(more, 1)
    assert every.is_clean
    assert few.is_clean
