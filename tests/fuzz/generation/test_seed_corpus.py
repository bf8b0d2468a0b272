"""Programs that campaigns start with, and what chooses them."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tools.seed_corpus.__main__ import chosen
from tools.seed_corpus.cuts import CUTS
from tools.seed_corpus.entries import Entry

from exirkit.fuzz.campaigns import Campaign, CampaignConfig, Store, summarise
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


def test_quotas_are_asked_of_generated_programs(tmp_path: Path) -> None:
    def shares(first: int, seeds: int) -> dict[str, tuple[int, float, float | None]]:
        path = tmp_path / f"{first}.db"
        with ThreadPoolExecutor(1) as pool:
            Campaign(CampaignConfig(first_seed=first, seeds=seeds, oracles=("eager-run",)), path).run(pool)
        with Store(path) as store:
            found = summarise(store, quotas={"dynamic": 0.5}).features
        return {one.feature: (one.programs, one.share, one.quota) for one in found}

    assert shares(0, 3)["dynamic"][2] is None
    mixed, generated = shares(_COUNT - 6, 12), shares(_COUNT, 6)
    assert mixed["seed_corpus"] == (6, 0.5, None)
    assert "seed_corpus" not in generated
    assert mixed["dynamic"] == generated["dynamic"]


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
        "('within', [0]); 2:0 held; 3:24 held; 3:43 held; 4:47 failed; 4:47 held",
        "('outside', []); 2:0 held; 3:24 equal; 3:24 failed",
        "('outside', []); 2:0 held; 3:24 failed; 4:47 held",
    ]


def test_programs_are_chosen_that_add_the_most_for_what_they_cost() -> None:
    def entry(seed: int, seconds: float, *reached: int) -> Entry:
        return Entry(seed, "", seconds, "passed", frozenset(reached))

    large, cheap, same, last = entry(0, 4, 1, 2, 3, 4), entry(1, 1, 1, 2), entry(2, 2, 2, 1), entry(3, 9, 5, 4)
    # Behind the cheap one the large one adds two for four seconds, and the same adds nothing.
    assert chosen([large, cheap, same, last]) == [
        (cheap, frozenset({1, 2})),
        (large, frozenset({3, 4})),
        (last, frozenset({5})),
    ]


def test_what_is_cut_leaves_nothing_unused_and_keeps_numbers() -> None:
    program = parse_program("""program(1)
c = constant("f32[2]", numbers([1, 2]))

def forward(x: "f32[2]", y: "f32[2]"):
    a = aten.add.Tensor(x, c)
    b = aten.neg.default(y)
    return a, b

run("forward", x=numbers([3, 4]), y=numbers([5, 6]))
""")
    cut = {program_text(one) for cuts in CUTS for one in cuts(program)}
    assert len(cut) == 2
    for text in cut:
        assert ("constant" in text) is ("aten.add" in text) is ("3.0, 4.0" in text or "[3, 4]" in text)
        assert ("aten.neg" in text) is ("5.0, 6.0" in text or "[5, 6]" in text)
