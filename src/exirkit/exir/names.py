"""The table of the names of `executorch.exir` and their counterparts, read without importing any of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

_PROVIDED = "exirkit.exir.provided"


@dataclass(frozen=True)
class Home:
    """Where the counterpart of a name is.

    Attributes:
        module: Module that defines it for exirkit.
        name: What it is called there.
    """

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class Absence:
    """Why a name has no counterpart.

    Attributes:
        reason: Why, as the end of a sentence that begins with the name.
        instead: What to use instead.
    """

    reason: str
    instead: str


@dataclass(frozen=True)
class NameTable:
    """What the counterparts of the names of `executorch.exir` are.

    Attributes:
        homes: Counterparts by name, by module below `executorch.exir`; the module "" is `executorch.exir` itself.
        absent: Names without a counterpart, with the reason, by module. The name "*" stands for a whole module.
    """

    homes: Mapping[str, Mapping[str, Home]]
    absent: Mapping[str, Mapping[str, Absence]]

    def modules(self) -> list[str]:
        """Return all modules that exist here, with the packages that they are in, packages first."""
        found = {"": None}
        for module in (*self.homes, *self.absent):
            parts = module.split(".")
            found.update(dict.fromkeys(".".join(parts[:length]) for length in range(1, len(parts) + 1)))
        return sorted(found)

    def home(self, module: str, name: str) -> Home | None:
        """Return where a name has its counterpart, or None."""
        return self.homes.get(module, {}).get(name)

    def absence(self, module: str, name: str) -> Absence | None:
        """Return why a name has no counterpart, or None where the table says nothing of it."""
        told = self.absent.get(module, {})
        return told.get(name) or told.get("*")


@cache
def name_table() -> NameTable:
    """Return the table of `names.yaml`."""
    text = files("exirkit.exir").joinpath("names.yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    homes = {module: dict(_homes(places)) for module, places in document["counterparts"].items()}
    absent: dict[str, dict[str, Absence]] = {}
    for entry in document["absent"]:
        told = Absence(entry["reason"], entry["instead"])
        absent.setdefault(entry["module"], {}).update(dict.fromkeys(entry["names"], told))
    return NameTable(homes, absent)


def _homes(places: Mapping[str, list[str]]) -> Iterator[tuple[str, Home]]:
    for place, names in places.items():
        module = _PROVIDED + place if place.startswith(".") else place
        for entry in names:
            theirs, _, ours = entry.partition("=")
            yield theirs, Home(module, ours or theirs)


OFFICIAL = "executorch.exir"
"""The package whose names the table is about."""


def official_module(module: str) -> str:
    """Return the full name of a module of the table."""
    return f"{OFFICIAL}.{module}" if module else OFFICIAL
