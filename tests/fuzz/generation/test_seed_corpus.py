"""Programs that campaigns start with, and what chooses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from exirkit.fuzz.campaigns import CampaignConfig
from exirkit.fuzz.campaigns.standard import StandardBench
from exirkit.fuzz.generation import generate, program_of, seed_of_choices
from exirkit.fuzz.generation.seed_corpus import corpus, corpus_text
from exirkit.fuzz.programs import check_program, parse_program, program_text

ROOT = Path(__file__).resolve().parents[3]
_COUNT = len(corpus())
_MODULE = """
def told(number, bound, flags):
    first = "within" if number < bound and flags else "outside"
    return first, [one for one in flags if not one]
"""
_SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from tools.seed_corpus import probes
probes.install(["told"])
import told
for arguments in ((1, 2, [0, 1]), (2, 2, []), (3.0, 2, [1])):
    print(told.told(*arguments), *(one.removeprefix("told:") for one in probes.take()), sep="; ")
"""


def test_all_programs_are_valid_and_stand_for_seeds() -> None:
    assert _COUNT > 100
    for seed, text in corpus():
        program = parse_program(text)
        check_program(program)
        assert program_text(program) == text, seed
    assert len(dict(corpus())) == _COUNT


def test_the_first_seeds_stand_for_the_corpus() -> None:
    seeds = (0, 7, _COUNT - 1)
    assert [program_text(program_of(seed)) for seed in seeds] == [corpus()[seed][1] for seed in seeds]
    assert [seed_of_choices(seed) for seed in seeds] == [corpus()[seed][0] for seed in seeds]
    assert program_text(program_of(_COUNT)) == program_text(generate(_COUNT))
    assert seed_of_choices(_COUNT) == _COUNT


def test_campaigns_start_with_them_unless_they_ask_for_others() -> None:
    assert StandardBench(CampaignConfig()).make(0).text == corpus()[0][1]
    assert StandardBench(CampaignConfig(policy={"control_flow": True})).make(0).text != corpus()[0][1]


@pytest.mark.parametrize("place", range(0, _COUNT, max(1, _COUNT // 12)))
def test_the_chain_passes(place: int) -> None:
    bench = StandardBench(CampaignConfig())
    assert bench.check(bench.make(place)).verdict == "passed"


def test_the_file_is_read_as_it_is_written() -> None:
    assert corpus_text(corpus()) == (ROOT / "fuzz/generation/seed_corpus.txt").read_text(encoding="utf-8")


def test_outcomes_of_conditions_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(_MODULE)
    command = [sys.executable, "-c", _SCRIPT, str(ROOT)]
    lines = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == [
        "('within', [0]); 3:24 held; 3:43 held; 4:47 failed; 4:47 held",
        "('outside', []); 3:24 equal; 3:24 failed",
        "('outside', []); 3:24 failed; 4:47 held",
    ]
