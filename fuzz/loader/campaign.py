"""Any number of executions, batch by batch, each in processes of their own; the count is kept in a file."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha1
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from exirkit.ir import Diagnostic, InternalError, Location, UsageError

from .findings import ChildDiedError, Finding, saved_findings
from .ledger import Ledger
from .seeds import seed_files
from .settings import BatchSettings

_POLL_S: Final = 0.2
# A child that imports torch on a busy machine needs a while before its first execution.
_PATIENCE_S: Final = 120.0
# Of what a child printed that did not start, the end is shown: so many characters.
_SHOWN: Final = 3000


class Totals(BaseModel):
    """What was done so far in one mode.

    Attributes:
        executions: Files that were loaded, or rejected.
        seconds: Time of the batches, summed over their processes.
        outcomes: `loaded`, codes, `printed`, `broken`, and how often.
        slowest_s: Time of the processor that the longest execution took.
        growth_nbytes: The most that a process has grown in a batch.
        batches: How many processes.
    """

    model_config = ConfigDict(extra="forbid")

    executions: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = Field(default_factory=dict)
    slowest_s: float = 0.0
    growth_nbytes: int = 0
    batches: int = 0

    def add(self, ledger: Ledger, seconds: float) -> None:
        """Add what one child did."""
        self.executions += ledger.executions
        self.seconds += seconds
        for name, count in ledger.outcomes.items():
            self.outcomes[name] = self.outcomes.get(name, 0) + count
        self.slowest_s = max(self.slowest_s, ledger.slowest_s)
        self.growth_nbytes = max(self.growth_nbytes, ledger.growth_nbytes)
        self.batches += 1


class State(BaseModel):
    """What the file keeps.

    Attributes:
        guided: Executions guided by the kinds of errors.
        instrumented: Executions guided by the branches of reader and loader.
        crashes: Children that died or hung; their last inputs are findings.
    """

    model_config = ConfigDict(extra="forbid")

    format: int = 1
    guided: Totals = Field(default_factory=Totals)
    instrumented: Totals = Field(default_factory=Totals)
    crashes: int = 0

    @property
    def executions(self) -> int:
        """All executions."""
        return self.guided.executions + self.instrumented.executions

    @property
    def batches(self) -> int:
        """All batches."""
        return self.guided.batches + self.instrumented.batches


@dataclass(frozen=True)
class LoaderFuzzing:
    """A campaign.

    Attributes:
        file: The state; corpus, findings and ledgers are directories beside it, named after it.
        batch: Executions of a guided batch.
        instrumented_batch: Executions of an instrumented batch.
        instrumented_every: One in so many batches is instrumented.
        seconds: Time that one execution may take.
        patience_s: How long a child may be silent.
        warm: Executions after which a process must not grow any more.
        patch: For tests: called in each child.
    """

    file: Path
    batch: int = 500_000
    instrumented_batch: int = 10_000
    instrumented_every: int = 4
    seconds: float = 2.0
    patience_s: float = _PATIENCE_S
    warm: int = 20_000
    patch: str | None = None

    def directory(self, kind: str) -> Path:
        """Return the directory for `corpus`, `findings` or `ledgers`."""
        return self.file.with_name(f"{self.file.stem}.{kind}")

    def prepare(self) -> State:
        """Return the state; count what children did whose parent died."""
        for kind in ("corpus", "findings", "ledgers"):
            self.directory(kind).mkdir(parents=True, exist_ok=True)
        for data in seed_files().values():
            (self.directory("corpus") / sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
        state = self._kept()
        for path in sorted(self.directory("ledgers").glob("*.ledger")):
            with Ledger(path) as ledger:
                totals = state.instrumented if path.name.startswith("instrumented") else state.guided
                totals.add(ledger, ledger.seconds)
            path.unlink()
        self.keep(state)
        return state

    def _kept(self) -> State:
        if not self.file.exists():
            return State()
        try:
            return State.model_validate_json(self.file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            message = f"the state of loader fuzzing cannot be read: {why}"
            where = Location(file=str(self.file))
            hint = "name another file, or move this one away to start again"
            raise UsageError(Diagnostic(code="EK892", message=message, location=where, hint=hint)) from None

    def keep(self, state: State) -> None:
        """Write the state: all of it, or not at all."""
        part = self.file.with_suffix(".part")
        part.write_text(state.model_dump_json(indent=1) + "\n", encoding="utf-8")
        part.replace(self.file)

    def findings(self) -> dict[Path, Finding]:
        """Return all findings, by their program files."""
        return saved_findings(self.directory("findings"))

    def run(self, executions: int, *, workers: int = 1, listen: Callable[[State], None] | None = None) -> State:
        """Execute until there are `executions` more; return the state.

        Args:
            executions: How many, in this run.
            workers: How many processes at once.
            listen: Called after each round of batches.

        Raises:
            UsageError: EK890 without atheris, EK892 if the state cannot be read.
            InternalError: EK891 if a child dies before it executes anything.
        """
        if executions > 0:
            require_atheris()
        state = self.prepare()
        goal = state.executions + executions
        while state.executions < goal:
            self._round(state, goal - state.executions, workers)
            self.keep(state)
            if listen is not None:
                listen(state)
        return state

    def _round(self, state: State, left: int, workers: int) -> None:
        """Run one batch in each worker."""
        children = []
        for number in range(workers):
            batch = state.batches + number
            instrumented = self.instrumented_every > 0 and batch % self.instrumented_every == 0
            share = min(self.instrumented_batch if instrumented else self.batch, -(-left // workers))
            children.append(_Child(self, batch, share, instrumented))
        try:
            while sum(child.is_running() for child in children):
                time.sleep(_POLL_S)
        finally:
            for child in children:
                child.finish(state)


class _Child:
    """One process with one batch."""

    def __init__(self, fuzzing: LoaderFuzzing, batch: int, executions: int, instrumented: bool) -> None:
        self._fuzzing = fuzzing
        self._instrumented = instrumented
        self._started = time.time()
        kind = "instrumented" if instrumented else "guided"
        self._path = fuzzing.directory("ledgers") / f"{kind}-{batch}-{self._started:.0f}.ledger"
        self._ledger = Ledger.create(self._path)
        self._seen, self._seen_at = 0, time.monotonic()
        self._hung = False
        settings = BatchSettings(
            ledger=self._path,
            corpus=fuzzing.directory("corpus"),
            findings=fuzzing.directory("findings"),
            executions=executions,
            seed=batch,
            instrumented=instrumented,
            seconds=fuzzing.seconds,
            warm=fuzzing.warm,
            patch=fuzzing.patch,
        )
        self._log = fuzzing.directory("ledgers") / f"{kind}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                child_command(settings), stdout=log, stderr=log, cwd=fuzzing.directory("ledgers"), env=_environment()
            )

    def is_running(self) -> bool:
        """Return whether the child works; end one that does nothing any more."""
        if self._process.poll() is not None:
            return False
        done = self._ledger.executions
        if done > self._seen:
            self._seen, self._seen_at = done, time.monotonic()
        elif time.monotonic() - self._seen_at > self._fuzzing.patience_s:
            self._hung = True
            self._process.kill()
        return True

    def finish(self, state: State) -> None:
        """Add what the child did to the state; what it died of is a finding."""
        if self._process.poll() is None:
            self._process.kill()
        interrupted = sys.exc_info()[0] is not None
        code = self._process.wait()
        totals = state.instrumented if self._instrumented else state.guided
        totals.add(self._ledger, time.time() - self._started)
        executions, pending = self._ledger.executions, self._ledger.pending
        self._ledger.close()
        self._path.unlink()
        if interrupted:
            self._fuzzing.keep(state)
        elif code != 0:
            how = "does nothing any more" if self._hung else f"ended with {code}"
            if executions == 0 and pending is None:
                raise self._not_started(how)
            state.crashes += 1
            Finding.of(ChildDiedError(f"the child {how}")).save(self._fuzzing.directory("findings"), pending or b"")

    def _not_started(self, how: str) -> InternalError:
        tail = self._log.read_text(encoding="utf-8", errors="replace")[-_SHOWN:].strip()
        message = f"a process that executes files {how} before the first of them"
        return InternalError(Diagnostic(code="EK891", message=message, notes=(tail,)))


def child_command(settings: BatchSettings) -> list[str]:
    """Return the command that runs one batch."""
    return [sys.executable, "-m", "exirkit.fuzz.loader.child", settings.model_dump_json()]


def _environment() -> dict[str, str]:
    """Return the environment of a child; it may be started elsewhere, so that paths are made absolute."""
    paths = [str(Path(each or ".").resolve()) for each in sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def require_atheris() -> None:
    """Make sure that atheris is installed.

    Raises:
        UsageError: EK890 if it is not.
    """
    if find_spec("atheris") is None:
        message = "loader fuzzing needs atheris, which is not installed"
        raise UsageError(Diagnostic(code="EK890", message=message, hint="pip install 'exirkit[fuzz-loader]'"))
