"""Plug-ins: what installed distributions offer under entry points, loaded when it is asked for and not before."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .diagnostics import Diagnostic, UsageError


def find_plugins(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return what installed distributions offer in a group, without loading any of it.

    Args:
        group: Such as `exirkit.passes`.

    Returns:
        Entry points by name, in the order of names; a name that several distributions offer has several.
    """
    found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
    for one in entry_points(group=group):
        # One distribution can be on the path twice: as an editable install and as a folder.
        found.setdefault(one.name, {}).setdefault((_distribution(one), one.value), one)
    return {name: tuple(found[name][key] for key in sorted(found[name])) for name in sorted(found)}


def load_plugin(group: str, name: str) -> Any:
    """Return the object behind a plug-in.

    Args:
        group: Such as `exirkit.passes`.
        name: Name of the entry point.

    Raises:
        UsageError: EK118, there is no such plug-in, or it cannot be loaded; EK119, several distributions offer it.
    """
    offered = find_plugins(group).get(name, ())
    if not offered:
        raise UsageError(Diagnostic.of("EK118", f"no installed distribution offers {name!r} in {group}"))
    if len(offered) > 1:
        raise UsageError(_ambiguous(group, name, offered))
    return _loaded(offered[0])


def load_plugins(group: str) -> tuple[dict[str, Any], list[Diagnostic]]:
    """Load everything that is offered in a group; what is broken does not stop the others.

    Args:
        group: Such as `exirkit.predicates`.

    Returns:
        Objects by name, and a warning (EK118, EK119) for each plug-in that cannot be used.
    """
    loaded: dict[str, Any] = {}
    found: list[Diagnostic] = []
    for name in find_plugins(group):
        try:
            loaded[name] = load_plugin(group, name)
        except UsageError as error:
            found += [one.model_copy(update={"severity": "warning"}) for one in error.diagnostics]
    return loaded, found


@cache
def _loaded(one: EntryPoint) -> Any:
    try:
        return one.load()
    # Anything can go wrong in the code of others, and some of it ends the process when it is let through.
    except (Exception, SystemExit) as error:
        raise UsageError(
            Diagnostic.of(
                "EK118",
                f"the plug-in {one.name!r} of {_distribution(one)} cannot be loaded: {type(error).__name__}: {error}",
                notes=(f"{one.group}: {one.name} = {one.value}",),
                hint="fix, update or uninstall that distribution",
            )
        ) from error


def _ambiguous(group: str, name: str, offered: tuple[EntryPoint, ...]) -> Diagnostic:
    return Diagnostic.of(
        "EK119",
        f"{len(offered)} distributions offer {name!r} in {group}",
        notes=tuple(f"{_distribution(one)}: {one.value}" for one in offered),
    )


def _distribution(one: EntryPoint) -> str:
    return one.dist.name if one.dist is not None else "an unnamed distribution"
