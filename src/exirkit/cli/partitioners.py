"""Partitioners that options name: files of partitionings, ours in Python, or official ones."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from exirkit.passes import Partitioner, load_partitioner

from .failures import WRONG_USAGE, CommandError
from .model_source import find_object, parse_source
from .pipelines import ChosenPipelines


def choose_partitioners(names: Sequence[str], pipelines: ChosenPipelines) -> list[Partitioner]:
    """Read partitionings and import partitioners.

    Args:
        names: Files, or `MODULE:NAME`: a class without arguments or an object; one of the official package is taken
            through the bridge.
        pipelines: What else is chosen.

    Raises:
        ModelError: A partitioning has errors.
        CommandError: EK711, they do not go together with a pipeline; EK713 to EK715, there is no such partitioner.
        OSError: A file cannot be read.
    """
    if names and pipelines.to_edge is not None:
        raise CommandError(
            code="EK711",
            message="a pipeline from aten to edge and --partitioner exclude each other",
            hint="operators that backends want whole are kept by the shipped pipeline",
            exit_code=WRONG_USAGE,
        )
    return [_partitioner(name) for name in names]


def _partitioner(name: str) -> Partitioner:
    if name.endswith((".yaml", ".yml")):
        return load_partitioner(name)
    source = parse_source(name)
    if source.factory is None:
        raise CommandError(
            code="EK713", message=f"{name!r} names no partitioner", hint="FILE.yaml or MODULE:CLASS",
            exit_code=WRONG_USAGE,
        )  # fmt: skip
    found = find_object(source)
    made = found() if inspect.isclass(found) else found
    if isinstance(made, Partitioner):
        return made
    if type(made).__module__.startswith("executorch.") or any(
        base.__module__.startswith("executorch.") for base in type(made).__mro__
    ):
        from exirkit.bridge import OfficialPartitioner

        return OfficialPartitioner(made)
    raise CommandError(
        code="EK714", message=f"{name} is a {type(made).__name__}, not a partitioner", exit_code=WRONG_USAGE
    )
