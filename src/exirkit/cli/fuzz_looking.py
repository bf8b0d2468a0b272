"""`exirkit fuzz report`, `show` and `merge`: into the files that campaigns leave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from exirkit.fuzz import CampaignSummary, Shown, Store, find_campaign, html_page, load_quotas, show, summarise

from .failures import CommandError
from .fuzz_reports import FuzzMergeReport, FuzzShowReport, FuzzSummaryReport
from .output_files import write_whole


def summarise_file(file: Path, campaign: str | None, html: Path | None) -> tuple[FuzzSummaryReport, CampaignSummary]:
    """Summarise a campaign, and write a page about it if there is a name for one.

    Raises:
        ModelError: EK861, EK868: the file, or the campaign.
    """
    with Store(file, must_exist=True) as store:
        chosen = find_campaign(store, campaign)
        summary = summarise(store, chosen, load_quotas(store.config(chosen)))
    if html is not None:
        text = html_page(summary)
        write_whole(html, lambda opened: opened.write(text.encode()))
    made = FuzzSummaryReport(
        ok=not summary.failed,
        database=str(file),
        html=str(html) if html is not None else None,
        summary=summary.model_dump(mode="json"),
    )
    return made, summary


def show_program(
    file: Path, which: str, campaign: str | None, *, wants_repro: bool = False
) -> tuple[FuzzShowReport, Shown]:
    """Look up a program of a campaign.

    Raises:
        ModelError: EK861, EK867, EK868: the file, the program, or the campaign.
        CommandError: EK724, a script is wanted, and there is none.
    """
    with Store(file, must_exist=True) as store:
        shown = show(store, which, campaign)
    if wants_repro and not any(one.repro for one in shown.analyses):
        raise CommandError(
            code="EK724",
            message=f"no script was made for seed {shown.seed}",
            hint="only the first failures of each bucket are reduced: name the bucket, or raise --analyses",
        )
    made = FuzzShowReport(ok=shown.verdict == "passed", database=str(file), shown=shown.model_dump(mode="json"))
    return made, shown


def merge_files(file: Path, shards: Sequence[Path]) -> FuzzMergeReport:
    """Take over everything from other files.

    Raises:
        ModelError: EK861, EK865: a file is something else, or has other results.
    """
    with Store(file) as store:
        added = sum(store.merge(shard) for shard in shards)
    return FuzzMergeReport(database=str(file), shards=[str(shard) for shard in shards], added=added)
