"""Several models of one command line: lowered one after the other or in processes, each to a file of its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .console import Steps, counted
from .errors import WRONG_USAGE, CommandError, Failure, Finding, failure_of, usage_error
from .files import check_writable
from .lowering import LowerOptions, LowerReport, lower_target

if TYPE_CHECKING:
    from exirkit.ir import Diagnostic


@dataclass(frozen=True)
class FailedModel:
    """A model that was not lowered.

    Attributes:
        target: As it was given.
        exit_code: What the command ends with where it lowers this model alone.
        diagnostics: All findings.
    """

    target: str
    exit_code: int
    diagnostics: Sequence[Finding | Diagnostic]
    ok: bool = False


@dataclass(frozen=True)
class BatchReport:
    """The document of `exirkit lower` with several models.

    Attributes:
        models: What became of each, in the order in which they were given.
        ok: All of them were lowered.
    """

    models: Sequence[LowerReport | FailedModel]
    ok: bool

    @property
    def exit_code(self) -> int:
        """The greatest of the exit codes that the models have."""
        return max((one.exit_code for one in self.models if isinstance(one, FailedModel)), default=0)


@dataclass(frozen=True)
class BatchEntry:
    """A model and the file that it is written to."""

    target: str
    file: Path


def batch_entries(targets: Sequence[str], folder: Path) -> list[BatchEntry]:
    """Return the file of each target in a folder, which need not exist yet.

    A `.pt2` file gives its name, any other target that of its factory.

    Raises:
        CommandError: EK711, two models have the same name; EK712, there cannot be such a folder.
    """
    entries: dict[Path, str] = {}
    for target in targets:
        name = Path(target).stem if target.endswith(".pt2") else target.rpartition(":")[2]
        file = folder / f"{name}.pte"
        if file in entries:
            message = f"{entries[file]} and {target} would be written to one file"
            raise usage_error(message, hint="lower them apart", file=str(file))
        entries[file] = target
    if folder.suffix == ".pte" or (folder.exists() and not folder.is_dir()):
        message = "several models are written to a folder, and this names a file"
        raise CommandError(code="EK712", message=message, file=str(folder), exit_code=WRONG_USAGE)
    if folder.is_dir():
        for file in entries:
            check_writable(file, ".pte")
    else:
        # It can be made where a file of its name can be written.
        check_writable(folder.with_name(f"{folder.name}.pte"), ".pte")
    return [BatchEntry(target, file) for file, target in entries.items()]


def lowered_in_turn(entries: Sequence[BatchEntry], options: LowerOptions) -> Iterator[LowerReport | Failure]:
    """Lower models in this process, one after the other, and give what became of each."""
    for entry in entries:
        with Steps() as steps:
            yield _lowered(entry, options, steps)


def lowered_in_processes(
    entries: Sequence[BatchEntry], options: LowerOptions, jobs: int, libraries: Sequence[str]
) -> Iterator[LowerReport | Failure]:
    """Lower models in processes and give what became of each, in the order of the models.

    Args:
        entries: The models.
        options: How they are lowered.
        jobs: Most processes at a time.
        libraries: Python modules that each process imports first.
    """
    from exirkit.fuzz import ProcessPool, WorkerDiedError

    with Steps() as steps, ProcessPool(min(jobs, len(entries))) as pool:
        futures = [pool.submit(_lower_in_worker, entry, options, libraries) for entry in entries]
        try:
            for place, (entry, future) in enumerate(zip(entries, futures, strict=True)):
                steps(f"lowering: {place} of {counted(len(entries), 'model')} done, waiting for {entry.target}")
                try:
                    yield future.result()
                except WorkerDiedError as error:
                    message = f"the process that was lowering this model died: {error}"
                    hint = "the system may have had too little memory: lower with fewer --jobs"
                    yield failure_of(CommandError(code="EK792", message=message, hint=hint))
        except BaseException:
            # Also where the caller asks for no more of them.
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _lower_in_worker(entry: BatchEntry, options: LowerOptions, libraries: Sequence[str]) -> LowerReport | Failure:
    """Lower a model in a process that has imported torch, and return what became of it."""
    try:
        if libraries:
            from exirkit.patterns import import_libraries

            import_libraries(libraries)
    except Exception as error:
        return failure_of(error)
    return _lowered(entry, options, Steps())


def _lowered(entry: BatchEntry, options: LowerOptions, steps: Steps) -> LowerReport | Failure:
    try:
        return lower_target(entry.target, entry.file, options, steps)
    except Exception as error:
        return failure_of(error)
