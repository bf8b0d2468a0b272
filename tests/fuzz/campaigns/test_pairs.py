"""Which features meet in the programs of a campaign, and which hardly do."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.campaigns.stand_in import config

from exirkit.fuzz.campaigns import Result, Store, pair_coverage, thin_pairs


def test_the_rarest_pairs_come_first(tmp_path: Path) -> None:
    """By the share of what chance would give; of equal shares the pair first that chance would bring together most."""

    def had(seed: int) -> set[str]:
        at = seed % 100
        return {
            # Never together.
            "b" if at < 50 else "c",
            # A fifth of what chance gives is in programs with `c`.
            *(["a"] if at < 18 or at in (60, 61) else []),
            # All of them with `c`.
            *(["d"] if at >= 60 else []),
        }

    rows = [Result(seed=n, verdict="passed", program=f"p{n}", features=tuple(sorted(had(n)))) for n in range(200)]
    with Store(tmp_path / "c.db") as store:
        campaign = store.open_campaign(config(), "engine")
        store.begin_session(campaign, 1.0, "here", 7, 1)
        store.add(campaign, rows, (1.0, "here", 7), 2.0)
        features, _ = pair_coverage(store, campaign)
    thin = [(one.first, one.second, one.programs, round(one.expected)) for one in features.thin]
    assert thin == [("b", "c", 0, 50), ("b", "d", 0, 40), ("a", "c", 4, 20)]


def test_features_that_chance_would_bring_together_and_that_never_meet(tmp_path: Path) -> None:
    rows = []
    for seed in range(200):
        had = {"even" if seed % 2 else "odd", "op:aten.add.Tensor", "pattern:x", "fires:x"}
        had |= {"third"} if seed % 3 == 0 else set()
        had |= {"pass:functionalize"} if seed % 2 else set()
        rows.append(Result(seed=seed, verdict="passed", program=f"p{seed}", features=tuple(sorted(had))))
    with Store(tmp_path / "c.db") as store:
        campaign = store.open_campaign(config(), "engine")
        store.begin_session(campaign, 1.0, "here", 7, 1)
        store.add(campaign, rows, (1.0, "here", 7), 2.0)
        features, passes = pair_coverage(store, campaign)
    assert (features.pairs, features.seen, features.expected) == (3, 2, 3)
    assert [(one.first, one.second, one.programs, one.expected) for one in features.thin] == [("even", "odd", 0, 50.0)]
    assert [(one.first, one.second) for one in passes.thin] == [("pass:functionalize", "odd")]
    assert (passes.pairs, passes.seen, round(passes.met, 3)) == (3, 2, 0.667)
    assert ["even with odd" in finding.render() for finding in thin_pairs([features])] == [True]
    assert not thin_pairs([features.model_copy(update={"thin": ()})])
