"""Bugs of the reader, installed in the process that executes files; `patch` names one of these functions."""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import Any

from exirkit.emit import Tensor

# Where the loader finds the reader; `Any`, since a module does not expect to be changed.
loader: Any = import_module("exirkit.runtime_ref.runtime")

_KEPT: list[bytes] = []


def _after_reading(what: Any) -> None:
    """Let `what` see each program that was read."""
    read = loader.read_program

    def seeing(data: bytes) -> Any:
        file = read(data)
        what(file.program)
        return file

    loader.read_program = seeing


def _has_many_sizes(program: Any) -> bool:
    return any(
        isinstance(entry.val, Tensor) and entry.val.sizes and entry.val.sizes[0] > 1000
        for plan in program.execution_plan
        for entry in plan.values
    )


def trusts_an_input() -> None:
    """An index of the file is used before it was checked."""

    def look(program: Any) -> None:
        for plan in program.execution_plan:
            for index in plan.inputs:
                plan.values[index]

    _after_reading(look)


def hangs() -> None:
    """A large size takes forever."""

    def look(program: Any) -> None:
        while _has_many_sizes(program):
            pass

    _after_reading(look)


def sleeps() -> None:
    """A large size takes forever, and no time of the processor."""

    def look(program: Any) -> None:
        if _has_many_sizes(program):
            time.sleep(1000)

    _after_reading(look)


def allocates() -> None:
    """A large size takes 200 MiB for a moment."""

    def look(program: Any) -> None:
        if _has_many_sizes(program):
            bytes(b"x" * (200 << 20))

    _after_reading(look)


def asks_for_too_much() -> None:
    """A large size takes more memory than there may be."""

    def look(program: Any) -> None:
        if _has_many_sizes(program):
            bytearray(16 << 30)

    _after_reading(look)


def keeps() -> None:
    """Each program leaves something behind."""
    _after_reading(lambda program: _KEPT.append(b"x" * 60_000))


def dies() -> None:
    """A large size ends the process."""

    def look(program: Any) -> None:
        if _has_many_sizes(program):
            os._exit(11)

    _after_reading(look)
