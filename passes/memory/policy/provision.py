"""Which inputs and outputs a policy plans, and which the caller provides."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

from exirkit.ir import Diagnostic, Location, UsageError, did_you_mean
from exirkit.passes.config.node_names import has_wildcard

from .model import MemoryPolicy, Provision


def plans_all(said: Provision | Mapping[str, Provision]) -> bool:
    """Whether everything is planned, whatever it is called."""
    return said == "planned" if isinstance(said, str) else "provided" not in said.values()


def planned_inputs(policy: MemoryPolicy, names: Sequence[str]) -> bool | frozenset[str]:
    """Return which inputs are planned.

    Args:
        policy: Says so.
        names: Those of all inputs of the method.

    Raises:
        UsageError: EK487, the policy names an input that there is not.
    """
    return _planned(policy.inputs, list(names), "input")


def planned_outputs(policy: MemoryPolicy, count: int) -> bool | frozenset[int]:
    """Return which outputs are planned, by their numbers from 0.

    Args:
        policy: Says so.
        count: How many outputs the method has.

    Raises:
        UsageError: EK487, the policy names an output that there is not.
    """
    found = _planned(policy.outputs, [str(number) for number in range(count)], "output")
    return found if isinstance(found, bool) else frozenset(map(int, found))


def _planned(said: Provision | Mapping[str, Provision], names: list[str], what: str) -> bool | frozenset[str]:
    if isinstance(said, str):
        return said == "planned"
    unknown = [name for name in said if name not in names and not has_wildcard(name)]
    if unknown:
        known = ", ".join(names) or "none at all"
        raise UsageError(
            Diagnostic(
                code="EK487",
                message=f"the memory policy speaks of {what} {unknown[0]!r}, which the method does not have",
                location=Location(),
                expected=f"one of {known}",
                hint=did_you_mean(unknown[0], names) or f"write '{unknown[0]}*' if only some methods have it",
            )
        )
    return frozenset(
        name
        for name in names
        if next((each for key, each in said.items() if fnmatch.fnmatchcase(name, key)), "planned") == "planned"
    )
