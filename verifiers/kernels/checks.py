"""Calls of a program against the kernels of a target, whose conditions are short expressions over the arguments."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import DefinedOperator, Diagnostic, Location, OpOverload, underlying
from exirkit.verifiers.structure import graphs_of

from .call_facts import CallFacts, CallReader, Fact, shown_fact
from .conditions import KernelCondition
from .table import KernelTable

_MOST_SHOWN = 6


def check_kernels(program: ExportedProgram | GraphModule, table: KernelTable) -> list[Diagnostic]:
    """Check that the calls of a program of the ExecuTorch dialect have kernels that take them.

    Args:
        program: Lowered program; bodies of control flow are checked as well, delegates are not.
        table: Kernels of the runtime. Operators of other libraries than it serves are passed over: kernels for
            these are linked to it.

    Returns:
        All findings (EK359: no kernel, EK360: the kernel does not take this call), in graph order.
    """
    findings: list[Diagnostic] = []
    kernels: dict[Any, _Kernel | None] = {}
    known: dict[Node, Fact] = {}
    for graph in graphs_of(program):
        for node in graph.calls():
            target = node.target
            if target not in kernels:
                kernels[target] = _kernel(target, table)
            kernel = kernels[target]
            for each in () if kernel is None else kernel.findings(node, table, known):
                made = graph.finding(each.code, node, each.message, expected=each.expected, hint=each.hint)
                findings.append(made.model_copy(update={"notes": (*each.notes, *made.notes)}))
    return findings


@dataclass(frozen=True)
class _Kernel:
    """What has to be checked in calls of an operator.

    Attributes:
        name: Of its kernel.
        conditions: What the kernel asks of calls.
        reader: Reads the arguments of which they speak; None if there is no kernel.
    """

    name: str
    conditions: tuple[KernelCondition, ...]
    reader: CallReader | None

    def findings(self, node: Node, table: KernelTable, known: dict[Node, Fact]) -> Iterable[Diagnostic]:
        if self.reader is None:
            return (missing(table, self.name),)
        if not self.conditions:
            return ()
        facts = self.reader.facts(node, known)
        if all(one.holds(facts) is not False for one in self.conditions):
            return ()
        return broken_conditions(table, self.name, facts)


def _kernel(target: Any, table: KernelTable) -> _Kernel | None:
    """Return what has to be checked in calls of an operator; None if nothing is known of it."""
    op = underlying(target)
    if not isinstance(op, OpOverload | DefinedOperator):
        return None
    name = str(op.name())
    if name.partition("::")[0] not in table.namespaces or _is_kept(op, name, table):
        return None
    conditions = table.conditions_of(name)
    words = frozenset(word for one in conditions for word in _words(one.text))
    return _Kernel(name, conditions, CallReader(op, words) if table.has(name) else None)


def _is_kept(op: Any, name: str, table: KernelTable) -> bool:
    """Return whether an operator writes nothing: lowering leaves such ones only where it was asked to."""
    arguments = op._schema.arguments
    return not table.has(name) and not any(one.alias_info and one.alias_info.is_write for one in arguments)


def check_kernel_names(names: Iterable[str], table: KernelTable, method: str) -> list[Diagnostic]:
    """Check that operators that a program file names have kernels.

    Args:
        names: As in the file, `aten::add.out`.
        table: Kernels of the runtime.
        method: Whose operators they are.

    Returns:
        A finding EK359 for each that has none.
    """
    return [
        missing(table, name).model_copy(update={"location": Location(method=method, node=f"operator {place}")})
        for place, name in enumerate(names)
        if not table.has(name)
    ]


def missing(table: KernelTable, name: str) -> Diagnostic:
    """Return the finding EK359 about an operator without kernel."""
    packet = name.partition(".")[0]
    near = sorted(one for one in table.names if one.partition(".")[0] == packet)
    near = near or difflib.get_close_matches(name, sorted(table.names), n=3, cutoff=0.8)
    return Diagnostic.of(
        "EK359",
        f"the target {table.target} has no kernel for {name}",
        expected=f"one of its {len(table.names)} kernels" + (f", such as {', '.join(near[:3])}" if near else ""),
    )


def broken_conditions(table: KernelTable, name: str, call: CallFacts) -> Iterator[Diagnostic]:
    """Yield a finding EK360 for each condition of a kernel that a call breaks."""
    for condition in table.conditions_of(name):
        if condition.holds(call) is False:
            shown = "; ".join(f"{key}: {shown_fact(fact)}" for key, fact in _spoken_of(condition, call))
            yield Diagnostic.of(
                "EK360",
                f"the kernel {name} of the target {table.target} does not take this call ({shown})",
                expected=condition.text,
            )


def _spoken_of(condition: KernelCondition, call: CallFacts) -> list[tuple[str, Fact]]:
    words = set(_words(condition.text))
    return [(name, fact) for name, fact in call.items() if name in words][:_MOST_SHOWN]


def _words(text: str) -> list[str]:
    return "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split()
