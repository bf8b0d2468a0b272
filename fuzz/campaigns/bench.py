"""What makes and checks the cases of a campaign; a campaign knows nothing else of them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Literal, Protocol, TypeVar

from exirkit.ir import Diagnostic, ModelError
from exirkit.patterns import import_libraries

from .config import CampaignConfig
from .results import Analysis, Found
from .tested_parts import Kind, TestedPart

CaseT = TypeVar("CaseT")


@dataclass(frozen=True)
class Case(Generic[CaseT]):
    """A program, graph or problem to check.

    Attributes:
        seed: What it was made from.
        program: In whatever form the bench has it.
        text: Printed; empty if the seed is enough to see it again.
        steps: How many operators it calls.
        features: What is in it.
    """

    seed: int
    program: CaseT
    text: str = ""
    steps: int = 0
    features: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Checked:
    """What the oracles say of a program.

    Attributes:
        verdict: In one word.
        failures: In the order of the oracles; for `unsupported`, what the compiler says that it does not take.
        seconds: Wall time for each oracle.
        compared: How many values were compared.
        bitwise: How many of these bit for bit.
        not_run: Oracles that could not be asked, and why.
        features: What was seen of the program while it was checked, in addition to those of the case.
        counts: Numbers that are added up over all cases.
    """

    verdict: Literal["passed", "failed", "unsupported", "invalid"]
    failures: tuple[Found, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    compared: int = 0
    bitwise: int = 0
    not_run: dict[str, str] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    counts: dict[str, int] = field(default_factory=dict)


class Bench(Protocol[CaseT]):
    """Makes cases and checks them; made from a configuration, once in every process."""

    def make(self, seed: int) -> Case[CaseT]:
        """Make a case; the same seed always makes the same one."""

    def check(self, case: Case[CaseT]) -> Checked:
        """Ask the oracles; what is wrong with the case or the compiler is returned, not raised."""

    def analyse(self, case: Case[CaseT], number: int) -> Analysis:
        """Find the culprit of a failure, and the smallest case that fails alike."""


_benches: dict[str, Bench[Any]] = {}


def load_bench(config: CampaignConfig) -> Bench[Any]:
    """Return the bench of a configuration; one is made for every configuration and process.

    Raises:
        UsageError: EK225, a library cannot be imported.
        ModelError: EK863, there is no such class. Or whatever else the bench finds wrong with the configuration.
    """
    key = config.identity("")
    if key not in _benches:
        import_libraries(config.libraries)
        _benches[key] = load_object(config.bench)(config)
    return _benches[key]


def load_quotas(config: CampaignConfig) -> Mapping[str, float]:
    """Return the share of programs that shall have a feature at least, if the class of the bench says so.

    A bench may have a static method `quotas` that takes the configuration.
    """
    try:
        found: Mapping[str, float] = load_object(config.bench).quotas(config)
    except (ModelError, AttributeError):
        # The file may come from elsewhere, without what made the programs.
        return {}
    return found


def load_parts(config: CampaignConfig) -> list[tuple[Kind, str]]:
    """Return kind and name of all that is under test, if the bench says so: it may have an attribute `parts`."""
    return list(getattr(load_bench(config), "parts", ()))


def load_reasons(config: CampaignConfig, parts: Iterable[TestedPart]) -> dict[str, list[str]]:
    """Return why parts under test did nothing, by name, if the bench says so: it may have a method `why_idle`."""
    why: Callable[[str], list[str]] | None = getattr(load_bench(config), "why_idle", None)
    return {} if why is None else {one.name: why(one.name) for one in parts if one.kind == "rule" and not one.changed}


def load_object(name: str) -> Any:
    """Import what `MODULE:NAME` or `path/to/file.py:NAME` names.

    Raises:
        ModelError: EK863, there is no such thing.
    """
    head, _, last = name.rpartition(":")
    try:
        module = _import_file(Path(head)) if head.endswith(".py") else importlib.import_module(head)
        return getattr(module, last)
    except (ImportError, AttributeError, OSError, ValueError) as error:
        raise ModelError(
            Diagnostic(
                code="EK863",
                message=f"there is no {name!r}",
                notes=(f"{type(error).__name__}: {error}",),
                hint="name it as MODULE:NAME, the module as in an import statement, or as path/to/file.py:NAME",
            )
        ) from error


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    name = f"exirkit_fuzz_target_{path.stem}"
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    # As for a script: its neighbours can be imported.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
