"""All oracles, and checking a program with them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from importlib import import_module
from pkgutil import walk_packages
from types import MappingProxyType

from exirkit.fuzz.compilers import Compiler, ExirkitCompiler
from exirkit.fuzz.examination import Examination, FailedError, Failure, NotRunError, RejectedError, Verdict
from exirkit.fuzz.programs import Program
from exirkit.ir import Diagnostic, UsageError, choices_hint

from .oracle import Oracle


def _all_oracles(package: str) -> dict[str, Oracle]:
    """Return the oracle of each module in a folder of this one by its name, from cheap to expensive."""
    for module in walk_packages(import_module(package).__path__, f"{package}."):
        if module.name != __name__:
            import_module(module.name)
    return {one.name: one() for one in sorted(Oracle.__subclasses__(), key=lambda one: one.cost)}


ORACLES: Mapping[str, Oracle] = MappingProxyType(_all_oracles(__name__.rpartition(".")[0]))
"""By name, from cheap to expensive."""

DEFAULT_ORACLES = tuple(name for name, one in ORACLES.items() if one.is_default)
"""Those that need nothing but exirkit and lower a program once."""

FORMER_NAMES: Mapping[str, str] = MappingProxyType(
    {one.former_name: name for name, one in ORACLES.items() if one.former_name}
)
"""`O0` to `O13`, which stand in older databases and scripts, and what they are called now."""


def check(
    program: Program,
    *,
    compiler: Compiler | None = None,
    oracles: Iterable[str] | None = None,
    seed: int = 0,
    is_exhaustive: bool = False,
    rungs: Iterable[str] | None = None,
) -> Verdict:
    """Check a program.

    Args:
        program: The program.
        compiler: What lowers it; our chain with its usual choices when absent.
        oracles: Names of the oracles to ask; `DEFAULT_ORACLES` when absent.
        seed: Decides where oracles choose: which other memory plan, which equivalent.
        is_exhaustive: Go on after the first oracle that finds something. What follows is mostly the same once more.
        rungs: Deprecated name of `oracles`, as scripts of older versions have it.

    Raises:
        UsageError: EK830, there is no such oracle.
    """
    if rungs is not None:
        warnings.warn("check(rungs=...) is called oracles= now", DeprecationWarning, stacklevel=2)
        oracles = rungs
    chosen = oracles_named(DEFAULT_ORACLES if oracles is None else oracles)
    examination = Examination(program, compiler or ExirkitCompiler(), seed)
    return examine(examination, chosen, is_exhaustive=is_exhaustive)


def examine(examination: Examination, oracles: Iterable[Oracle], *, is_exhaustive: bool = False) -> Verdict:
    """Check a program of which something is known already."""
    failures: list[Failure] = []
    seconds: dict[str, float] = {}
    not_run: dict[str, str] = {}
    unsupported: str | None = None
    rejected_by: str | None = None
    asked = list(oracles)
    for oracle in asked:
        oracle.prepare(examination)
    for oracle in asked:
        shared = sum(examination.seconds.values())
        start = time.perf_counter()
        try:
            failures += oracle.examine(examination)
        except FailedError as error:
            is_own = error.failure.oracle == oracle.name
            if is_own or not failures:
                failures.append(error.failure)
            if not is_own:
                not_run[oracle.name] = "what it needs has failed"
        except RejectedError as error:
            unsupported, rejected_by = error.code, error.stage
            not_run[oracle.name] = f"the compiler rejected the program: {error}"
        except NotRunError as error:
            not_run[oracle.name] = str(error)
        # What oracles share is not the time of the one that happened to ask first.
        seconds[oracle.name] = time.perf_counter() - start - (sum(examination.seconds.values()) - shared)
        if unsupported or (failures and not is_exhaustive):
            break
    fired, changed, worked = examination.tested
    return Verdict(
        tuple(failures),
        unsupported,
        rejected_by,
        {**examination.seconds, **seconds},
        not_run,
        examination.comparisons,
        fired,
        changed,
        worked,
    )


def oracles_named(names: Iterable[str]) -> list[Oracle]:
    """Return oracles by their names, from cheap to expensive; former names are accepted.

    Raises:
        UsageError: EK830, there is no such oracle.
    """
    wanted = [FORMER_NAMES.get(one, one) for one in names]
    unknown = [one for one in wanted if one not in ORACLES]
    if unknown:
        raise UsageError(
            Diagnostic(
                code="EK830",
                message=f"there is no oracle {unknown[0]!r}",
                expected="one of these:\n" + "\n".join(f"       {name}: {one.title}" for name, one in ORACLES.items()),
                hint=choices_hint(unknown[0], ORACLES, "there are"),
            )
        )
    return [one for name, one in ORACLES.items() if name in wanted]
