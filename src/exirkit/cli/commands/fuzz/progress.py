"""Progress of a campaign: a live view in a terminal, a line from time to time elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from exirkit.cli.errors import one_line, printable
from exirkit.fuzz import CampaignConfig, Progress

_LINE_SECONDS = 10.0
_MOST_BUCKETS = 8


class ProgressView:
    """Shows the progress of a campaign on standard error; called after every batch.

    Attributes:
        done: Seeds with a result, at the last call.
    """

    def __init__(self, config: CampaignConfig, workers: int) -> None:
        last = f"{config.first_seed + config.seeds}" if config.seeds is not None else ""
        self._head = f"target {config.target}, seeds {config.first_seed}:{last}, workers {workers}"
        self.done = 0
        self._live: Live | None = None
        self._since = time.monotonic()
        self._told: tuple[float, int] = (0.0, -1)
        self._buckets: set[str] = set()

    def __enter__(self) -> Self:
        # Not Console.is_terminal: FORCE_COLOR makes that true for pipes.
        if sys.stderr.isatty():
            self._live = Live(console=Console(file=sys.stderr), refresh_per_second=4, transient=True)
            self._live.start()
        else:
            typer.echo(f"fuzz: {self._head}", err=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the view off the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, progress: Progress) -> None:
        """Show where the campaign is now."""
        self.done = progress.done
        if self._live is not None:
            self._live.update(self._view(progress))
            return
        for bucket in progress.buckets.keys() - self._buckets:
            seed = progress.first_seeds[bucket]
            typer.echo(f"fuzz: new bucket {one_line(bucket)}, seed {seed}", err=True)
        self._buckets = set(progress.buckets)
        if progress.seconds - self._told[0] >= _LINE_SECONDS or (progress.is_over and progress.done != self._told[1]):
            self._told = (progress.seconds, progress.done)
            typer.echo(f"fuzz: {_line(progress)}", err=True)

    def _view(self, progress: Progress) -> Group:
        parts: list[Text | Table] = [Text(printable(self._head), style="bold")]
        if progress.total is not None:
            line = Table.grid()
            line.add_row(ProgressBar(total=progress.total, completed=progress.done, width=60))
            parts.append(line)
        parts.append(Text(_line(progress)))
        if progress.buckets:
            shown = Table(box=None, pad_edge=False, header_style="dim")
            shown.add_column("failures", justify="right")
            shown.add_column("first seed", justify="right")
            shown.add_column("bucket", overflow="ellipsis", no_wrap=True)
            for bucket, count in progress.buckets.most_common(_MOST_BUCKETS):
                shown.add_row(f"{count:,}", str(progress.first_seeds[bucket]), Text(one_line(bucket)))
            parts.append(shown)
            if len(progress.buckets) > _MOST_BUCKETS:
                parts.append(Text(f"and {len(progress.buckets) - _MOST_BUCKETS} more buckets", style="dim"))
        parts += [Text(one_line(note), style="dim") for note in progress.notes[-2:]]
        return Group(*parts)


def _line(progress: Progress) -> str:
    total = "" if progress.total is None else f" of {progress.total:,}"
    rate = progress.new / progress.seconds if progress.seconds else 0.0
    parts = [f"{progress.done:,}{total} programs", f"{rate:.1f}/s", _clock(progress.seconds)]
    if progress.total is not None and rate and progress.done < progress.total:
        parts.append(f"{_clock((progress.total - progress.done) / rate)} left")
    parts += [f"{verdict} {count:,}" for verdict, count in sorted(progress.verdicts.items())]
    if progress.analyses[1]:
        parts.append(f"blamed and reduced {progress.analyses[0]} of {progress.analyses[1]}")
    return ", ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
