"""Modules that the official package's backends import and that no package index has, as empty ones."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
import typing
from collections.abc import MutableSequence
from typing import Any
from unittest.mock import MagicMock

import typing_extensions

# Compilers and serialisers of vendors, which no pass needs in order to rewrite a graph.
_TOOLS = (
    "eiq_neutron_sdk",
    "ethosu",
    "model_converter",
    "model_explorer",
    "mtk_converter",
    "mtk_neuron",
    "nncf",
    "openvino",
    "serializer",
    "tosa",
    "tosa_serializer",
)


class _Empty(types.ModuleType):
    """A module in which every name is something."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: MutableSequence[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "0"
        if name.startswith("__"):
            raise AttributeError(name)
        made = MagicMock(name=name)
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        last = fullname.rpartition(".")[2]
        is_tool = fullname.partition(".")[0] in _TOOLS or last in ("serializer", "tosa_serializer")
        return importlib.machinery.ModuleSpec(fullname, self) if is_tool or last.endswith("Adaptor") else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: names are made when they are asked for."""


def install() -> None:
    """Let imports of such modules succeed, and give `typing` a name that it has from Python 3.12 on."""
    sys.meta_path.append(_Finder())
    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override  # type: ignore[attr-defined]
