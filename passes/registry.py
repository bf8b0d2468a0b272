"""What a pipeline knows of a pass: its name, its options with their types, and what it needs and leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_type_hints

import pydantic
from pydantic import BaseModel, ConfigDict, create_model

from exirkit.ir import UsageError, find_plugins, load_plugin

from .contract import BROKEN_BY_EDITS, Pass

PASS_PLUGINS = "exirkit.passes"
BOOK_PLUGINS = "exirkit.rulebooks"

_FOLDERS = ("to_aten", "to_edge", "legalize", "optimize", "to_executorch", "user_passes")
# They take rules, which are stages of their own.
_OF_RULES = ("apply-rules", "unfuse-operators")


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
    requires: frozenset[str] = frozenset()
    ensures: frozenset[str] = frozenset()
    invalidates: frozenset[str] = frozenset()
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


@cache
def registered(
    cls: type[Any],
    name: str | None = None,
    *,
    ensures: Collection[str] = (),
    invalidates: Collection[str] = BROKEN_BY_EDITS,
) -> RegisteredPass:
    """Describe a class of passes by its attributes.

    Its options are the fields of the dataclass, or the fields of the model that the class has under `Options`.

    Args:
        cls: The class.
        name: Name in kebab case; that of the class when absent.
        ensures: Invariants that hold afterwards, if the class does not derive from `Pass`.
        invalidates: Invariants that need not hold any more, if it does not.
    """
    if issubclass(cls, Pass):
        ensures, invalidates = cls.ensures, cls.invalidates
    own = cls if issubclass(cls, Pass) else Pass
    return RegisteredPass(
        name or cls.name,
        lambda given: cls(**dict(given)),
        _options_of(cls),
        frozenset(own.requires),
        frozenset(ensures),
        frozenset(invalidates),
        own.after,
        own.before,
    )


def _options_of(cls: type[Any]) -> type[PassOptions]:
    """Return the model of the options of a class of passes."""
    if hasattr(cls, "Options") or not is_dataclass(cls):
        found: type[PassOptions] = getattr(cls, "Options", PassOptions)
        return found
    options = [one for one in fields(cls) if one.init]
    if not options:
        return PassOptions
    types = get_type_hints(cls, include_extras=True)
    made: dict[str, Any] = {one.name: (types[one.name], _default(one)) for one in options}
    return create_model(f"{cls.__name__}Options", __base__=PassOptions, **made)


def _default(one: Field[Any]) -> Any:
    if one.default_factory is not MISSING:
        return pydantic.Field(default_factory=one.default_factory)
    return ... if one.default is MISSING else one.default


def described(name: str, value: Any) -> RegisteredPass:
    """Describe what a plug-in or caller offers under a name.

    Args:
        name: Name in kebab case.
        value: A `RegisteredPass`; or a class of passes, see `registered`; or a pass, which is taken to invalidate what
            edits of values can break.
    """
    if isinstance(value, RegisteredPass):
        return value
    if isinstance(value, type):
        return registered(value, name)
    return RegisteredPass(name, lambda given: value, invalidates=BROKEN_BY_EDITS)


@cache
def shipped_passes() -> Mapping[str, type[Pass] | RegisteredPass]:
    """Return the passes of exirkit by name: every public class of passes in the folders of passes.

    A module whose pass does not derive from `Pass` describes it as `REGISTERED`.
    """
    found: dict[str, type[Pass] | RegisteredPass] = {}
    for folder in _FOLDERS:
        package = import_module(f"exirkit.passes.{folder}")
        for name in sorted(each.name for each in iter_modules(package.__path__)):
            module = import_module(f"{package.__name__}.{name}")
            for one in vars(module).values():
                if isinstance(one, RegisteredPass) or _is_defined_in(one, module.__name__):
                    found[one.name] = one
    return {name: one for name, one in found.items() if name not in _OF_RULES}


def _is_defined_in(one: Any, module: str) -> bool:
    """Return whether a value is a public class of passes that a module defines."""
    is_pass = isinstance(one, type) and issubclass(one, Pass) and one.__module__ == module
    return is_pass and not one.__name__.startswith("_")


class PassRegistry:
    """Finds passes by name: those of exirkit, those that a caller brings, and those of installed plug-ins.

    Args:
        brought: What a caller offers by name; see `described`.
    """

    def __init__(self, brought: Mapping[str, Any] | None = None) -> None:
        self._known: dict[str, Any] = {**shipped_passes(), **(brought or {})}

    def find(self, name: str) -> RegisteredPass | None:
        """Return a pass, or None if there is none of that name. Plug-ins are examined only for names unknown so far.

        Raises:
            UsageError: EK118 or EK119, the plug-in of that name cannot be used.
        """
        if name not in self._known and name in find_plugins(PASS_PLUGINS):
            self._known[name] = load_plugin(PASS_PLUGINS, name)
        return described(name, self._known[name]) if name in self._known else None

    def names(self) -> list[str]:
        """Return all names, those of plug-ins included."""
        return sorted({*self._known, *find_plugins(PASS_PLUGINS)})


def plugin_error(error: UsageError) -> tuple[str, tuple[str, ...]]:
    """Return what is wrong with a plug-in as a message and notes for another place."""
    first = error.diagnostics[0]
    return first.message, tuple(one for one in (*first.notes, first.hint) if one)
