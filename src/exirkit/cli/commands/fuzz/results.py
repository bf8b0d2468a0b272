"""`exirkit fuzz report`, `show` and `merge`: the files that campaigns leave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import Steps, print_json, print_line, print_table, print_text
from exirkit.cli.errors import CommandError, one_line
from exirkit.cli.files import check_writable, write_text
from exirkit.cli.options import Json

if TYPE_CHECKING:
    from exirkit.fuzz import Bucket, CampaignSummary, FeatureCount, PairCoverage, Regressions, Shown, Store

Database = Annotated[Path, typer.Argument(metavar="FILE.db", show_default=False)]
CampaignId = Annotated[
    str | None,
    typer.Option("--campaign", metavar="ID", help="Id of the campaign, or its beginning; default: the last one."),
]


def report(
    file: Database,
    campaign: CampaignId = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Also write a page with plots.")] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.db",
            help="An earlier campaign: programs that passed there and fail or are rejected here are findings.",
        ),
    ] = None,
    passes: Annotated[
        bool, typer.Option("--idle-passes", help="Findings too: passes of the default chain with too little to do.")
    ] = False,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Findings too: features, and passes, that hardly meet in any program.")
    ] = False,
    json: Json = False,
) -> None:
    """Report what a campaign has found: verdicts, buckets of failures, time of the oracles, features of programs."""
    check_writable(html, ".html")
    with Steps() as steps:
        steps("loading torch")
        from exirkit import fuzz

        with fuzz.Store(file, must_exist=True) as store:
            chosen = fuzz.find_campaign(store, campaign)
            summary = fuzz.summarise(store, chosen, fuzz.load_quotas(store.config(chosen)))
            worse = None if baseline is None else compare_with_baseline(store, chosen, baseline)
            met = fuzz.pair_coverage(store, chosen) if pairs else ()
        shares = {one.feature: one.share for one in summary.passes}
        idle = fuzz.idle_passes(shares, summary.programs) if passes else []
        idle += fuzz.thin_pairs(met)
        if html is not None:
            write_text(html, fuzz.html_page(summary))
    written = str(html) if html is not None else None
    if json:
        ok = not summary.failed and not (worse and worse.found) and not idle
        found = {"summary": summary, "baseline": worse, "idle_passes": idle, "pairs": met}
        print_json({"ok": ok, "database": str(file), "html": written, **found})
    else:
        _print_summary(summary)
        if worse is not None:
            _print_regressions(worse)
        if met:
            _print_pairs(met)
        for one in idle:
            print_text(f"\n{one.render()}")
        if written is not None:
            print_text(f"\nwritten: {written}")
    if idle or (worse is not None and worse.found):
        raise typer.Exit(1)


def compare_with_baseline(store: Store, campaign: str, baseline: Path) -> Regressions:
    """Return what a campaign does worse than the last one of another file.

    Raises:
        ModelError: EK861, EK868: the file, or it has no campaign. EK877: no program is in both.
    """
    from exirkit import fuzz

    with fuzz.Store(baseline, must_exist=True) as earlier:
        return fuzz.regressions(store, campaign, earlier, fuzz.find_campaign(earlier))


def _print_regressions(found: Regressions) -> None:
    """Print what is worse than in an earlier campaign."""
    print_text(f"\nPassed in the baseline and not here: {len(found.found):,} of {found.compared:,} programs")
    rows = [[symptom, f"{count:,}", _seeds_of(found, symptom)] for symptom, count in found.symptoms.most_common()]
    if rows:
        print_table(["verdict, symptom", ">programs", "seeds"], rows)
    if found.other_programs:
        print_text(f"not compared: {found.other_programs:,} seeds with other programs")


def _seeds_of(found: Regressions, symptom: str) -> str:
    seeds = [str(one.seed) for one in found.found if f"{one.verdict} {one.symptom}" == symptom]
    return ", ".join(seeds[:5]) + (" ..." if len(seeds) > 5 else "")


def show(
    file: Database,
    which: Annotated[str, typer.Argument(metavar="SEED|BUCKET", show_default=False)],
    campaign: CampaignId = None,
    repro: Annotated[bool, typer.Option("--repro", help="Print only the script.")] = False,
    json: Json = False,
) -> None:
    """Print a program of a campaign, its failures, and a script that reproduces them."""
    with Steps() as steps:
        steps("loading torch")
        shown = find_shown(file, which, campaign, needs_script=repro)
    if json:
        print_json({"ok": shown.verdict == "passed", "database": str(file), "shown": shown})
    elif repro:
        print_text(next(one.repro for one in shown.analyses if one.repro))
    else:
        _print_shown(shown)


def find_shown(file: Path, which: str, campaign: str | None, *, needs_script: bool = False) -> Shown:
    """Return a program of a campaign and what is known of it.

    Raises:
        ModelError: EK861, EK867, EK868: the file, the program, or the campaign.
        CommandError: EK724, a script is wanted, and there is none.
    """
    from exirkit import fuzz

    with fuzz.Store(file, must_exist=True) as store:
        shown = fuzz.show(store, which, campaign)
    if needs_script and not any(one.repro for one in shown.analyses):
        raise CommandError(
            code="EK724",
            message=f"no script was made for seed {shown.seed}",
            hint="only the first failures of each bucket are reduced: name the bucket, or raise --analyses",
        )
    return shown


def merge(
    file: Database,
    shards: Annotated[list[Path], typer.Argument(metavar="SHARD.db...", show_default=False)],
    json: Json = False,
) -> None:
    """Merge the results of other files, such as those of other machines."""
    with Steps() as steps:
        steps("loading torch")
        from exirkit.fuzz import Store

        with Store(file) as store:
            added = sum(store.merge(shard) for shard in shards)
    if json:
        print_json({"ok": True, "database": str(file), "shards": [str(shard) for shard in shards], "added": added})
    else:
        print_line(f"{file}: {added:,} results from {len(shards)} files")


def _print_summary(summary: CampaignSummary) -> None:
    """Print a campaign as a whole."""
    first, last = summary.seeds or (0, 0)
    bitwise = "-" if summary.bitwise is None else f"{summary.bitwise:.1%}"
    facts = [
        ["campaign", summary.campaign],
        ["target", summary.config["target"]],
        ["engine", summary.engine],
        ["seeds", f"{first} to {last}"],
        ["programs", f"{summary.programs:,}, {summary.distinct:,} different, {summary.steps:g} operators (median)"],
        ["verdicts", ", ".join(f"{verdict} {count:,}" for verdict, count in summary.verdicts.items())],
        ["not supported", ", ".join(f"{code} {count:,}" for code, count in summary.unsupported.items()) or "-"],
        *([f"not run, {count:,} times", reason] for reason, count in summary.not_run.items()),
        ["bit for bit", f"{bitwise} of {summary.compared:,} comparisons"],
        ["speed", f"{summary.per_second:.1f} programs/s, {summary.per_core:.1f} for each worker"],
    ]
    print_table(["", ""], facts)
    if summary.oracles:
        rows = [
            [
                one.oracle,
                f"{one.programs:,}",
                *(f"{each:.2f}" for each in (one.mean, one.median, one.p95)),
                f"{one.share:.1%}",
            ]
            for one in summary.oracles
        ]
        print_table(["oracle", ">programs", ">mean ms", ">median", ">95 %", ">of the time"], rows, title="\nOracles")
    if summary.features:
        features = [[one.feature, f"{one.programs:,}", f"{one.share:.1%}", _quota(one)] for one in summary.features]
        print_table(["feature", ">programs", ">share", "quota"], features, title="\nFeatures")
    if summary.operators:
        most, least = summary.operators[0], summary.operators[-1]
        print_text(
            f"\nOperators: {len(summary.operators)}, from {most.feature} in {most.programs:,} programs "
            f"to {least.feature} in {least.programs:,}"
        )
    print_text(f"\nBuckets of failures: {len(summary.buckets)}")
    for bucket in summary.buckets:
        _print_bucket(bucket)


def _print_pairs(met: Sequence[PairCoverage]) -> None:
    """Print how often features meet, and passes."""
    rows = [
        [one.kind, f"{one.pairs:,}", f"{one.seen:,}", f"{one.expected:,}", f"{len(one.thin):,}", f"{one.met:.1%}"]
        for one in met
    ]
    print_table(["pairs of", ">there are", ">seen", ">expected", ">thin", ">met"], rows, title="\nPairs")


def _quota(one: FeatureCount) -> str:
    if one.quota is None:
        return ""
    return f"{one.quota:.1%}" + ("" if one.share >= one.quota else "  NOT MET")


def _print_bucket(bucket: Bucket) -> None:
    print_line()
    print_line(f"{bucket.failures:>6,}  {one_line(bucket.bucket)}")
    details = [f"seeds {', '.join(map(str, bucket.seeds))}"]
    details += [f"culprit: {one_line(one)}" for one in bucket.culprit]
    details += [f"reduced: {one_line(one)}" for one in bucket.causes]
    for line in [*details, one_line(bucket.message)[:200]]:
        print_line(f"        {line}")


def _print_shown(shown: Shown) -> None:
    """Print a program and all that is known of it."""
    print_line(f"# campaign {shown.campaign}, seed {shown.seed}, -O{shown.level}: {shown.verdict}")
    print_text(shown.program or "# no program was generated")
    for found in shown.failures:
        print_text(f"\n# {found.oracle} {one_line(found.bucket)}")
        place = ", ".join(part for part in (found.stage, found.node) if part)
        print_text("\n".join(f"#   {line}" for line in [*([place] if place else []), *found.message.splitlines()]))
    for made in shown.analyses:
        print_text(f"\n# failure {made.number}: {one_line(made.bucket)}")
        if made.culprit:
            print_line(f"# culprit: {one_line(made.culprit)}{f', rule {made.rule}' if made.rule else ''}")
        if made.note:
            print_line(f"# note: {one_line(made.note)}")
        for title, text in (("reduced", made.reduced), ("repro.py", made.repro)):
            if text:
                print_text(f"\n# {title}\n{text}")
