"""How a model is to be lowered: rule books, passes, pipelines, partitioners and memory planning, read from options."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .console import Steps, output_to_stderr, print_line
from .errors import WRONG_USAGE, CommandError, one_line, usage_error
from .files import expand_books
from .model import find_object, parse_source
from .options import Planner

if TYPE_CHECKING:
    from exirkit.fuzz import LoweringChoices
    from exirkit.ir import Diagnostic
    from exirkit.passes import MemoryPlanningPass, MemoryPolicy, Partitioner, Pipeline
    from exirkit.patterns import CompiledRule, LoadedBook


@dataclass(frozen=True)
class ChosenPipelines:
    """The pipelines of one lowering.

    Attributes:
        to_edge: Replaces the shipped one, from `aten` to `edge`.
        on_edge: Run one after another on Edge programs.
        to_executorch: Replaces the shipped one, from `edge` to `executorch`.
    """

    to_edge: Pipeline | None = None
    on_edge: tuple[Pipeline, ...] = ()
    to_executorch: Pipeline | None = None

    def __iter__(self) -> Iterator[Pipeline]:
        yield from (one for one in (self.to_edge, *self.on_edge, self.to_executorch) if one is not None)


def choose_pipelines(files: Sequence[str] | None) -> ChosenPipelines:
    """Read pipeline files and assign each to a step of lowering, by the dialects that it declares.

    Raises:
        ModelError: All that is wrong with a file.
        CommandError: EK711, two files replace one step, or a file fits no step.
        OSError: A file cannot be read.
    """
    from exirkit.passes import Pipeline

    chosen: dict[tuple[str, str], list[Pipeline]] = {
        ("aten", "edge"): [],
        ("edge", "edge"): [],
        ("edge", "executorch"): [],
    }
    hint = "one from aten to edge, one from edge to executorch, and any number from edge to edge"
    for file in files or ():
        made = Pipeline.from_file(file)
        step = (made.model.dialect.from_, made.model.dialect.to)
        if step not in chosen:
            raise usage_error(f"{file} leads from {step[0]} to {step[1]}, which is not a step of lowering", hint=hint)
        if chosen[step] and step != ("edge", "edge"):
            message = f"{chosen[step][0].file} and {file} both lead from {step[0]} to {step[1]}"
            raise usage_error(message, hint=hint)
        chosen[step].append(made)
    to_edge, on_edge, to_executorch = chosen.values()
    return ChosenPipelines(to_edge[0] if to_edge else None, tuple(on_edge), to_executorch[0] if to_executorch else None)


def choose_partitioners(names: Sequence[str] | None, pipelines: ChosenPipelines) -> list[Partitioner]:
    """Read partitionings and import partitioners.

    Args:
        names: Files, or `MODULE:NAME`: a class without arguments or an object; one of the official package is wrapped
            for interoperation.
        pipelines: What else is chosen.

    Raises:
        ModelError: A partitioning has errors.
        CommandError: EK711, they exclude a pipeline; EK713 to EK715, there is no such partitioner.
        OSError: A file cannot be read.
    """
    if names and pipelines.to_edge is not None:
        raise usage_error(
            "a pipeline from aten to edge and --partitioner exclude each other",
            hint="the shipped pipeline keeps the operators that backends want undecomposed",
        )
    return [_partitioner(name) for name in names or ()]


def _partitioner(name: str) -> Partitioner:
    from exirkit.passes import Partitioner, load_partitioner

    if name.endswith((".yaml", ".yml")):
        return load_partitioner(name)
    source = parse_source(name)
    if source.factory is None:
        message = f"{name!r} does not name a partitioner"
        raise CommandError(code="EK713", message=message, hint="FILE.yaml or MODULE:CLASS", exit_code=WRONG_USAGE)
    found = find_object(source)
    made = found() if inspect.isclass(found) else found
    if isinstance(made, Partitioner):
        return made
    if any(base.__module__.startswith("executorch.") for base in type(made).__mro__):
        from exirkit.bridge import OfficialPartitioner

        return OfficialPartitioner(made)
    message = f"{name} is a {type(made).__name__}, not a partitioner"
    raise CommandError(code="EK714", message=message, exit_code=WRONG_USAGE)


def planning_pass(
    planner: Planner | None, policy: Path | MemoryPolicy | None, *, in_place: bool, schedule: bool, **others: Any
) -> MemoryPlanningPass:
    """Return the memory planning that options ask for.

    Args:
        planner: The algorithm; what the policy says, or `portfolio`, when absent.
        policy: Which memories there are and what is placed in which.
        in_place: Let results reuse the memory of arguments that nothing needs any more.
        schedule: Reorder independent instructions so that less memory is live at once.
        others: More fields of `MemoryPlanningPass`.
    """
    from exirkit import passes

    algorithm = None if planner is None else getattr(passes, planner.value)
    return passes.MemoryPlanningPass(algorithm, in_place=in_place, schedule=schedule, policy=policy, **others)


def rules_of(books: Sequence[str]) -> list[CompiledRule]:
    """Return the rules of books: files, or names of shipped ones.

    Raises:
        ModelError: A book has errors, or two define an operator differently.
        OSError: A book cannot be read.
    """
    from exirkit.patterns import load_books

    return [rule for book in load_books(books) for rule in book.rules]


@dataclass(frozen=True)
class Lowering:
    """How `compare`, `bisect` and `print` lower a model.

    Attributes:
        level: Optimization level, as for `exirkit lower`.
        rules: Books whose rules rewrite the Edge program.
        pipelines: Files of pipelines.
        passes: Passes on the Edge program, as `MODULE:NAME`.
        target: Target description of level 2.
    """

    level: int
    rules: Sequence[str] | None
    pipelines: Sequence[str] | None
    passes: Sequence[str] | None
    target: str

    def choices(self) -> LoweringChoices:
        """Read books, pipelines and passes.

        Raises:
            ModelError: All that is wrong with a file.
            CommandError: EK711, EK713 to EK715, there are no such passes, or pipelines do not fit together.
            OSError: A file cannot be read.
        """
        from exirkit.fuzz import LoweringChoices
        from exirkit.passes import ExecutorchBackendConfig
        from exirkit.patterns import RewriteOptions, read_target

        pipelines = choose_pipelines(self.pipelines)
        rules = rules_of(expand_books(self.rules))
        with output_to_stderr():
            passes = [one for text in self.passes or () for one in _passes_of(text)]
        return LoweringChoices(
            to_edge=pipelines.to_edge,
            rules=tuple(rules),
            rewriting=RewriteOptions(target=read_target(self.target)),
            passes=tuple(passes),
            on_edge=pipelines.on_edge,
            to_executorch=pipelines.to_executorch,
            config=ExecutorchBackendConfig(
                memory_planning_pass=planning_pass(None, None, in_place=False, schedule=False),
                optimization_level=self.level,
                target=self.target,
            ),
        )


def _passes_of(text: str) -> list[Any]:
    """Return the passes that `MODULE:NAME` names: a class without arguments, an object, a function, or a list of these.

    Raises:
        CommandError: EK713 to EK715, there is no such thing.
    """
    source = parse_source(text)
    if source.factory is None:
        message = f"{text!r} does not name a pass"
        raise CommandError(code="EK713", message=message, hint=f"{text}:CLASS", exit_code=WRONG_USAGE)
    found = find_object(source)
    listed = list(found) if isinstance(found, list | tuple) else [found]
    return [one() if inspect.isclass(one) else one for one in listed]


def require_checked(
    books: Sequence[str], pipelines: Sequence[Pipeline], steps: Steps, *, checks: bool
) -> list[Diagnostic]:
    """Read books, and warn of rules that no check has accepted.

    Args:
        books: Files, or names of shipped books.
        pipelines: Pipelines whose books are read as well.
        steps: Is told of every rule that is checked.
        checks: Check such rules, instead of warning of them.

    Returns:
        A warning for each book with such rules; they are on standard error already.

    Raises:
        ModelError: A book has errors; EK815, a rule was rejected.
        OSError: A book cannot be read.
    """
    names = dict.fromkeys((*books, *(one for pipeline in pipelines for one in _books_of(pipeline))))
    if not names:
        return []
    from exirkit.fuzz import unchecked_book
    from exirkit.patterns import load_books, unaccepted_rules

    found = []
    for name, book in zip(names, load_books(names), strict=True):
        rules = unaccepted_rules(book, name)
        if rules and checks:
            _check(name, book, rules, steps)
        elif rules:
            found.append(unchecked_book(name, rules, len(book.rules)))
            print_line(one_line(found[-1].headline()), err=True)
    return found


def _check(name: str, book: LoadedBook, rules: Sequence[str], steps: Steps) -> None:
    from exirkit.fuzz import rejected_rules
    from exirkit.ir import ModelError
    from exirkit.patterns import check_book, record_acceptance

    verdict = check_book(
        book, only=rules, progress=lambda rule, number, count: steps(f"checking {number}/{count} {rule}")
    )
    # Where nothing can be written, they are checked again the next time.
    with contextlib.suppress(OSError):
        record_acceptance(book, verdict)
    rejected = [one for one in verdict.rules if not one.is_accepted]
    if rejected:
        findings = [each for one in rejected for each in one.found]
        raise ModelError(rejected_rules(name, [one.rule for one in rejected], findings))


def _books_of(pipeline: Pipeline) -> Iterator[str]:
    """Yield the files of the books of a pipeline that do not come with exirkit or with plug-ins."""
    from exirkit.patterns import is_shipped

    for stage in (inner for one in pipeline.stages for inner in one.walk()):
        for name in stage.stage.rules or ():
            beside = Path(pipeline.file).parent / name
            if not is_shipped(name) and beside.is_file():
                yield str(beside)
