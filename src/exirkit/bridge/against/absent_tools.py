"""Stand-ins for tools that modules of the official package import and that most of their code does without.

A module that imports such a tool in its first lines could not be imported where the tool is not installed. With a
stand-in it is, and what uses the tool raises when it does.
"""

from __future__ import annotations

import sys
import typing
import unittest
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

import typing_extensions

# The Arm backend writes TOSA with the one, whose quantizer Cortex-M derives its own from; torchvision has models, and
# NXP's converter makes what its delegate is.
ABSENT = ("tosa_serializer", "tosa", "tosa.TosaGraph", "torchvision", "eiq_neutron_sdk")


def install_absent_tools(
    names: tuple[str, ...] = ABSENT, *, raises: type[Exception] = ModuleNotFoundError
) -> list[str]:
    """Make modules importable, as far as they are not.

    Args:
        names: Packages to stand in for where they are not installed.
        raises: What is raised when something of a stand-in is called.

    Returns:
        The names that are stand-ins now.
    """
    if not hasattr(typing, "override"):
        # The wheel says that it runs on Python 3.10; its Cadence backend imports what is new in 3.12.
        vars(typing)["override"] = typing_extensions.override
    if find_spec("later") is None:
        # Test cases of the name, which is that of a package inside the company that wrote the tests.
        later, later.unittest = _module("later"), unittest  # type: ignore[attr-defined]
        sys.modules.update({"later": later, "later.unittest": unittest})
    if find_spec("pyre_extensions") is None:
        pyre = _module("pyre_extensions")
        pyre.none_throws = _not_none  # type: ignore[attr-defined]
        sys.modules["pyre_extensions"] = pyre
    made = []
    for name in names:
        package = name.partition(".")[0]
        if isinstance(sys.modules.get(package), _AbsentPackage) or find_spec(package) is None:
            sys.modules[name] = _AbsentPackage(name, raises)
            made.append(name)
    return made


def _module(name: str) -> ModuleType:
    made = ModuleType(name)
    made.__spec__ = ModuleSpec(name, None)
    return made


def _not_none(value: Any) -> Any:
    """Do what the function of a type checker does that says that a value is not None."""
    assert value is not None
    return value


class _Absent:
    """A name in a package that is not installed: it can be stored, compared and hashed, and not called."""

    def __init__(self, name: str, raises: type[Exception]) -> None:
        self._name = name
        self._raises = raises

    def __getattr__(self, name: str) -> _Absent:
        return _member(self, self._name, name, self._raises)

    def __or__(self, other: Any) -> _Absent:
        # Part of an annotation.
        return self

    __ror__ = __or__

    def __call__(self, *arguments: Any, **named: Any) -> NoReturn:
        del arguments, named
        raise self._raises(f"{self._name.partition('.')[0]} is not installed")

    def __repr__(self) -> str:
        return self._name


class _AbsentPackage(ModuleType):
    def __init__(self, name: str, raises: type[Exception]) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self.__path__: list[str] = []
        self._raises = raises

    def __getattr__(self, name: str) -> _Absent:
        return _member(self, self.__name__, name, self._raises)


def _member(owner: Any, path: str, name: str, raises: type[Exception]) -> _Absent:
    """Return what stands in for an attribute: the same at each question."""
    if name.startswith("__") or name == "pytestmark":
        raise AttributeError(name)
    made = _Absent(f"{path}.{name}", raises)
    setattr(owner, name, made)
    return made
