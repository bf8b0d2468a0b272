"""The document of `exirkit partition --json`."""

from __future__ import annotations

from .reports import Report


class TakenReport(Report):
    """One partition that goes to a backend.

    Attributes:
        tag: Its tag.
        graph: Path of the body of control flow that it is in; empty for the method's own graph.
        backend: Name of the backend.
        nodes: Names of its calls.
        operators: How often it calls each operator.
        rules: Titles of the rules that took its calls.
        inputs: How many values it is handed or keeps.
        results: How many of its values others read.
        elements: Elements that its calls compute or move.
        macs: Multiplications with addition.
        nbytes: Bytes that its calls compute; absent if sizes have no bound.
    """

    tag: str
    graph: str
    backend: str
    nodes: list[str]
    operators: dict[str, int]
    rules: list[str]
    inputs: int
    results: int
    elements: int
    macs: int
    nbytes: int | None


class WhyNotReport(Report):
    """Why a call is not taken.

    Attributes:
        node: Name of the call.
        graph: Path of the body of control flow that it is in.
        operator: Its operator.
        kind: `no_rule`, `refused`, `left`, `circle`, `too_small`, `too_large`, `too_many` or `untakable`.
        reason: The reason in words.
        rule: Title of the rule that came nearest.
        others: What other rules ask for.
        source: The line of the model that it comes from.
        module: Path of the module that it comes from.
    """

    node: str
    graph: str
    operator: str
    kind: str
    reason: str
    rule: str | None
    others: list[str]
    source: str | None
    module: str | None = None


class MethodPartitionReport(Report):
    """What is taken of one method."""

    name: str
    calls: int
    taken_calls: int
    taken: list[TakenReport]
    not_taken: list[WhyNotReport]


class PartitionReport(Report):
    """What `exirkit partition` shows.

    Attributes:
        target: The model.
        partitioner: The partitioning file.
        methods: Its methods.
    """

    ok: bool = True
    target: str
    partitioner: str
    methods: list[MethodPartitionReport]
