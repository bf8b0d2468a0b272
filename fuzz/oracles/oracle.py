"""What an oracle is: a property of a program and of what a compiler makes of it, under a name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal, TypeAlias

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.examination import Examination, Failure, NotRunError
from exirkit.fuzz.official import missing_reason

Need: TypeAlias = Literal[
    "eager results", "exported", "lowering", "results", "file", "own plan", "own file", "official wheel"
]


class Oracle(ABC):
    """Checks one property of a program. Each module in the folders here has one; a new module is a new oracle.

    Attributes:
        name: Kebab-case; results and options name the oracle so.
        title: What it checks, for people.
        cost: Position in the order in which oracles are asked, from cheap to expensive.
        is_default: Asked when no oracles are named: it needs nothing but exirkit and lowers a program once.
        needs: What must be there, or be made, before the oracle can be asked.
        suspects: Steps of fault localization in their order, see `exirkit.fuzz.triage`: each either names the culprit
            or leaves it to the next one. A name that is not a step is the name of the culprit.
        former_name: `O0` to `O13`, still accepted.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    cost: ClassVar[int]
    is_default: ClassVar[bool] = True
    needs: ClassVar[tuple[Need, ...]] = ()
    suspects: ClassVar[tuple[str, ...]] = ()
    former_name: ClassVar[str] = ""

    def prepare(self, examination: Examination) -> None:  # noqa: B027 - most have nothing to say
        """Say what is to be watched while the program is lowered, before any oracle is asked."""

    def examine(self, examination: Examination) -> Iterator[Failure]:
        """Make what the oracle needs, and yield what does not hold.

        Raises:
            FailedError: Something that the oracle needs could not be made.
            RejectedError: The compiler does not support the program.
            NotRunError: The oracle cannot be asked.
        """
        for need in self.needs:
            _NEEDS[need](examination)
        yield from self.check(examination)

    @abstractmethod
    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold; raises as `examine` does."""


def _require_official_wheel(examination: Examination) -> None:
    reason = missing_reason()
    if reason:
        raise NotRunError(reason)


def _require_file(examination: Examination) -> None:
    if examination.lowering.functions:
        raise NotRunError("the compiler makes no file")


def _require_own_plan(examination: Examination) -> None:
    if not examination.lowering.planned:
        raise NotRunError("the compiler is a black box")


def _require_own_file(examination: Examination) -> None:
    if examination.lowering.manager is None or not isinstance(examination.compiler, ExirkitCompiler):
        raise NotRunError("the file is not ours")


_NEEDS: Mapping[Need, Callable[[Examination], object]] = {
    "eager results": lambda examination: examination.reference,
    "exported": lambda examination: examination.exported,
    "lowering": lambda examination: examination.lowering,
    "results": lambda examination: examination.results,
    "file": _require_file,
    "own plan": _require_own_plan,
    "own file": _require_own_file,
    "official wheel": _require_official_wheel,
}

FILE_SUSPECTS: Sequence[str] = (
    "failing kernel", "earlier oracles", "allocation", "other plans", "shared views", "shared results", "emission",
    "deviations", "runtimes",
)  # fmt: skip
"""Suspects when the file computes something wrong: all that comes after the programs of the dialects."""
