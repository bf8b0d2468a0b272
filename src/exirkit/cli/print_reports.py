"""The document of `exirkit print --json`."""

from __future__ import annotations

from .reports import Report


class PrintedMethodReport(Report):
    """One method.

    Attributes:
        name: Its name.
        stage: The pass after which it was printed; `export` for the exported program.
        vars: Types of what comes from outside, by name.
        lines: The program in the notation of patterns, `return` last.
        unsaid: Nodes that rules cannot name, with the reason.
    """

    name: str
    stage: str
    vars: dict[str, str]
    lines: list[str]
    unsaid: dict[str, str]


class PrintReport(Report):
    """The document of `exirkit print`.

    Attributes:
        target: The model.
        dialect: `aten`, `edge` or `executorch`.
        methods: Its methods.
    """

    ok: bool = True
    target: str
    dialect: str
    methods: list[PrintedMethodReport]
