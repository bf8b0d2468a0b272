"""What a pipeline knows of a pass: its name, its options with their types, and what it needs and leaves."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from exirkit.ir import UsageError, find_plugins, load_plugin
from exirkit.passes.contract import Pass

from .invariants import BROKEN_BY_EDITS

PASS_PLUGINS = "exirkit.passes"
BOOK_PLUGINS = "exirkit.rulebooks"


class PassOptions(BaseModel):
    """Options of a pass; a subclass has a field for each."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


@dataclass(frozen=True)
class RegisteredPass:
    """A pass that pipelines can name.

    Attributes:
        name: Name in kebab case.
        build: Makes the pass from its options: a `Pass`, or anything else that `transform` takes.
        options: Model of the options.
        requires: Invariants that must hold before.
        ensures: Invariants that hold afterwards.
        invalidates: Invariants that need not hold any more.
        after: Passes that come before this one, where they are there at all.
        before: Passes that come after this one, where they are there at all.
    """

    name: str
    build: Callable[[Any], Any]
    options: type[PassOptions] = PassOptions
    requires: frozenset[str] = field(default=frozenset())
    ensures: frozenset[str] = field(default=frozenset())
    invalidates: frozenset[str] = field(default=frozenset())
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


def registered(
    cls: type[Pass],
    *,
    build: Callable[[Any], Any] | None = None,
    options: type[PassOptions] = PassOptions,
    requires: Iterable[str] = (),
    ensures: Iterable[str] = (),
    invalidates: Iterable[str] = (),
    after: tuple[str, ...] = (),
    before: tuple[str, ...] = (),
) -> RegisteredPass:
    """Describe a pass under its own name.

    Args:
        cls: Its class.
        build: How to make one from options; called with the options by name when absent.
        options: As of `RegisteredPass`, like all that follow.
        requires: Invariants.
        ensures: Invariants.
        invalidates: Invariants.
        after: Passes.
        before: Passes.
    """
    return RegisteredPass(
        cls.name,
        build or (lambda given: cls(**dict(given))),
        options,
        frozenset(requires),
        frozenset(ensures),
        frozenset(invalidates),
        after,
        before,
    )


def described(name: str, value: Any) -> RegisteredPass:
    """Describe what a plug-in or caller offers under a name.

    Args:
        name: Name in kebab case.
        value: A `RegisteredPass`; or a class of passes, whose attribute `Options`, if it has one, is the model of its
            options; or a pass. Of the last two it is assumed that they break what edits of values can break.
    """
    if isinstance(value, RegisteredPass):
        return value
    if isinstance(value, type):
        options = getattr(value, "Options", PassOptions)
        return RegisteredPass(name, lambda given: value(**dict(given)), options, invalidates=BROKEN_BY_EDITS)
    return RegisteredPass(name, lambda given: value, invalidates=BROKEN_BY_EDITS)


class PassRegistry:
    """Finds passes by name: those of exirkit, those that a caller brings, and those of installed plug-ins.

    Args:
        own: Passes of exirkit.
        brought: What a caller offers by name; see `described`.
    """

    def __init__(self, own: Mapping[str, RegisteredPass], brought: Mapping[str, Any] | None = None) -> None:
        self._known = {**own, **{name: described(name, value) for name, value in (brought or {}).items()}}

    def find(self, name: str) -> RegisteredPass | None:
        """Return a pass, or None if there is none of that name. Plug-ins are looked at only for names unknown so far.

        Raises:
            UsageError: EK118 or EK119, the plug-in of that name cannot be used.
        """
        if name not in self._known and name in find_plugins(PASS_PLUGINS):
            self._known[name] = described(name, load_plugin(PASS_PLUGINS, name))
        return self._known.get(name)

    def names(self) -> list[str]:
        """Return all names, those of plug-ins included."""
        return sorted({*self._known, *find_plugins(PASS_PLUGINS)})


def did_you_mean(name: str, known: Collection[str]) -> str | None:
    """Return a hint with the nearest name, if one is near."""
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {close[0]}?" if close else None


def plugin_error(error: UsageError) -> tuple[str, tuple[str, ...]]:
    """Return what is wrong with a plug-in as a message and notes for another place."""
    first = error.diagnostics[0]
    return first.message, tuple(one for one in (*first.notes, first.hint) if one)
