"""What a model is to be lowered with, as options of `compare`, `bisect` and `print` say it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from exirkit.fuzz import LoweringChoices
from exirkit.patterns import RewriteOptions, load_book, read_target

from .book_files import expand_books
from .console import Steps, output_to_stderr
from .exporting import export_methods, load_exported
from .failures import WRONG_USAGE, CommandError
from .lowering import LowerOptions, Optimization, backend_config
from .model_source import ModelSource, call_factory, find_object, parse_source
from .pipelines import choose_pipelines


@dataclass(frozen=True)
class ChosenLowering:
    """Options that say how a model is lowered.

    Attributes:
        level: Level of optimization.
        rules: Books whose rules rewrite the Edge program.
        pipelines: Files of pipelines.
        passes: Passes on the Edge program, as `MODULE:NAME`.
        target: Target description of level 2.
        strict: Whether `torch.export` traces with TorchDynamo.
    """

    level: int = 1
    rules: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    target: str = "official_host"
    strict: bool = False


def choices_of(options: ChosenLowering) -> LoweringChoices:
    """Read books, pipelines and passes.

    Raises:
        ModelError: All that is wrong with a file.
        CommandError: EK711, EK713 to EK715, there are no such passes, or pipelines do not fit together.
        OSError: A file cannot be read.
    """
    pipelines = choose_pipelines(options.pipelines)
    rules = [rule for name in expand_books(options.rules) for rule in load_book(name).require_valid().rules]
    lowering = LowerOptions(Path("unused.pte"), optimization=Optimization(options.level, target=options.target))
    with output_to_stderr():
        passes = [one for text in options.passes for one in passes_of(text)]
    return LoweringChoices(
        to_edge=pipelines.to_edge,
        rules=tuple(rules),
        rewriting=RewriteOptions(target=read_target(options.target)),
        passes=tuple(passes),
        on_edge=pipelines.on_edge,
        to_executorch=pipelines.to_executorch,
        config=backend_config(lowering),
    )


def passes_of(text: str) -> list[Any]:
    """Return the passes that `MODULE:NAME` names: a class without arguments, an object, a function, or a list of these.

    Raises:
        CommandError: EK713 to EK715, there is no such thing.
    """
    source = parse_source(text)
    if source.factory is None:
        raise CommandError(code="EK713", message=f"{text!r} names no pass", hint=f"{text}:CLASS", exit_code=WRONG_USAGE)
    found = find_object(source)
    listed = list(found) if isinstance(found, list | tuple) else [found]
    return [one() if inspect.isclass(one) else one for one in listed]


@dataclass(frozen=True)
class ExportedTarget:
    """What a target of the command line gives.

    Attributes:
        programs: Exported programs by method.
        models: The modules that they were exported from, where the target gives modules.
    """

    programs: dict[str, ExportedProgram]
    models: dict[str, Any]

    def only(self, method: str | None) -> ExportedTarget:
        """Return one method, or all if none is named.

        Raises:
            CommandError: EK711, there is no such method.
        """
        if method is None:
            return self
        if method not in self.programs:
            raise CommandError(
                code="EK711", message=f"the model has no method {method!r}", hint=f"it has {', '.join(self.programs)}",
                exit_code=WRONG_USAGE,
            )  # fmt: skip
        return replace(self, programs={method: self.programs[method]})


def export_target(source: ModelSource, steps: Steps, *, strict: bool) -> ExportedTarget:
    """Load a model and export it.

    Raises:
        CommandError: EK714 to EK718, the target gives no exported program.
    """
    with output_to_stderr():
        with steps.phase("load", f"loading {source.text}"):
            made: Any = load_exported(source.file) if source.factory is None and source.file else call_factory(source)
        with steps.phase("export"):
            programs = export_methods(made, strict=strict, say=steps)
    named = made if isinstance(made, dict) else {"forward": made}
    models = {name: one[0] for name, one in named.items() if isinstance(one, tuple)}
    return ExportedTarget(programs, models)


def flat_example(program: ExportedProgram, method: str) -> Sequence[Any]:
    """Return the flat example inputs of a program.

    Raises:
        CommandError: EK716, it has none.
    """
    from torch.utils import _pytree as pytree

    if program.example_inputs is None:
        raise CommandError(
            code="EK716",
            message=f"the exported program of method {method} has no example inputs",
            hint="export it with torch.export.export, or give a factory that returns (model, example_inputs)",
        )
    leaves: list[Any] = pytree.tree_leaves(program.example_inputs)
    return leaves
