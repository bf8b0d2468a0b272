"""What a campaign does worse than an earlier one over the same seeds."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.campaigns.test_store import filled

from exirkit.fuzz.campaigns import Found, Result, Store, regressions


def result(seed: int, verdict: str, symptom: str = "", program: str = "program") -> Result:
    found = (Found(oracle="compiler", symptom=symptom, message="", bucket=symptom),) if symptom else ()
    return Result.model_validate(
        {"seed": seed, "verdict": verdict, "program": f"{program}({seed})", "steps": 1, "failures": found}
    )


BEFORE = [
    result(1, "passed"),
    result(2, "passed"),
    result(3, "unsupported", "EK446"),
    result(4, "failed", "values"),
    result(5, "passed", program="other"),
    result(8, "passed"),
]
AFTER = [
    result(1, "passed"),
    result(2, "unsupported", "EK428"),
    result(3, "unsupported", "EK446"),
    result(4, "failed", "values"),
    result(5, "failed", "values"),
    result(7, "failed", "values"),
    result(8, "failed", "values"),
]


def test_what_passed_and_does_not_any_more(tmp_path: Path) -> None:
    earlier = filled(tmp_path / "old.db", *BEFORE)
    later = filled(tmp_path / "new.db", *AFTER)
    with Store(tmp_path / "new.db") as store, Store(tmp_path / "old.db") as baseline:
        found = regressions(store, later, baseline, earlier)
        same = regressions(store, later, store, later)
    assert [(one.seed, one.verdict, one.symptom) for one in found.found] == [
        (2, "unsupported", "EK428"),
        (8, "failed", "values"),
    ]
    assert (found.compared, found.other_programs) == (5, 1)
    assert found.symptoms == {"unsupported EK428": 1, "failed values": 1}
    assert (same.found, same.compared) == ([], 7)
