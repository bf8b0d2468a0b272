"""Calls of a program against the kernels of a target, and out arguments against the results that they hold."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import (
    DefinedOperator,
    Diagnostic,
    Location,
    TensorShapeDynamism,
    TensorSpec,
    UsageError,
    alloc,
    underlying,
)
from exirkit.verifiers.graph.control_flow import is_bound, type_of
from exirkit.verifiers.graph.structure import ProgramGraph, graphs_of
from exirkit.verifiers.kernels.conditions import (
    CallFacts,
    CallReader,
    Fact,
    KernelCondition,
    TensorFacts,
    read_condition,
)

_MOST_SHOWN = 6


@dataclass(frozen=True)
class KernelTable:
    """The kernels of a runtime.

    Attributes:
        target: Name of the target that has them.
        conditions: By operator as it stands in program files (`aten::add.out`), what its kernel asks of a call.
    """

    target: str
    conditions: Mapping[str, tuple[str, ...]]
    _read: dict[str, tuple[KernelCondition, ...]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the operators, without the overload `default`."""
        return frozenset(map(_plain, self.conditions))

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """Libraries of operators that the runtime serves; kernels of others are linked to it by its users."""
        return frozenset(name.partition("::")[0] for name in self.names)

    def has(self, operator: str) -> bool:
        """Whether there is a kernel for an operator."""
        return _plain(operator) in self.names

    def resizes(self, operator: str) -> bool:
        """Whether there is a kernel for an operator that sets the sizes of its results, where they vary."""
        return self.has(operator) and not any("fixed(" in one.text for one in self.conditions_of(operator))

    def conditions_of(self, operator: str) -> tuple[KernelCondition, ...]:
        """Return the conditions of a kernel.

        Raises:
            UsageError: EK361, one of them cannot be read.
        """
        known = self._read.get(operator)
        if known is None:
            texts = self.conditions.get(operator) or self.conditions.get(f"{operator}.default", ())
            known = self._read[operator] = tuple(self._condition(operator, text) for text in texts)
        return known

    def _condition(self, operator: str, text: str) -> KernelCondition:
        try:
            return read_condition(text)
        except ValueError as error:
            raise UsageError(
                Diagnostic(
                    code="EK361",
                    message=f"the target {self.target} has a condition of {operator} that cannot be read: {error}",
                    expected="an expression over the arguments, such as `rank(self) <= 4`",
                )
            ) from None


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
    return Diagnostic(
        code="EK359",
        message=f"the target {table.target} has no kernel for {name}",
        expected=f"one of its {len(table.names)} kernels" + (f", such as {', '.join(near[:3])}" if near else ""),
        hint="replace the operator by a rule or pass, or delegate it; if your runtime has the kernel, lower for a "
        "target that lists it, or for `any`",
    )


def broken_conditions(table: KernelTable, name: str, call: CallFacts) -> Iterator[Diagnostic]:
    """Yield a finding EK360 for each condition of a kernel that a call breaks."""
    for condition in table.conditions_of(name):
        if condition.holds(call) is False:
            shown = "; ".join(f"{key}: {shown_fact(fact)}" for key, fact in _spoken_of(condition, call))
            yield Diagnostic(
                code="EK360",
                message=f"the kernel {name} of the target {table.target} does not take this call ({shown})",
                expected=condition.text,
                hint="replace the call by ones that the kernel takes, with a rule or pass, or delegate it; if your "
                "runtime takes it, lower for a target that says so, or for `any`",
            )


def _spoken_of(condition: KernelCondition, call: CallFacts) -> list[tuple[str, Fact]]:
    words = set(_words(condition.text))
    return [(name, fact) for name, fact in call.items() if name in words][:_MOST_SHOWN]


def _words(text: str) -> list[str]:
    return "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split()


def shown_fact(fact: Fact) -> str:
    """Return an argument as messages show it: `float32[2, 3] order [1, 0]`, `[-1, -1]`."""
    if isinstance(fact, TensorFacts):
        sizes = ", ".join(map(str, fact.sizes))
        is_plain = fact.order == tuple(range(len(fact.sizes)))
        return f"{fact.dtype}[{sizes}]" + ("" if is_plain else f" in the order {fact.order}")
    if isinstance(fact, tuple):
        return f"[{', '.join(map(shown_fact, fact))}]"
    return str(fact)


def _plain(name: str) -> str:
    return name.removesuffix(".default")


def check_out_arguments(program: ExportedProgram | GraphModule) -> list[Diagnostic]:
    """Check the tensors that out variants are given to write into.

    Returns:
        All findings (EK335: no such tensor is given, EK336: it holds something else, too, EK337: it is of another dtype
        or size than the result, EK349: its spec is not that of the result), in graph order.
    """
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        writers: dict[Node, Node] = {}
        for node in graph.calls():
            findings += _findings(graph, node, writers)
    return findings


def _findings(graph: ProgramGraph, node: Node, writers: dict[Node, Node]) -> Iterator[Diagnostic]:
    if not isinstance(node.target, OpOverload | DefinedOperator):
        return
    names = [argument.name for argument in node.target._schema.arguments if argument.is_out]
    given = _given(node, names)
    for name, out in given:
        if out is None and not _may_be_left_out(node, len(given)):
            yield _missing(graph, node, name, "nothing")
        elif out is not None and (not isinstance(out, Node) or out.target is not alloc):
            yield _missing(graph, node, name, f"%{out.name}" if isinstance(out, Node) else repr(out))
    outs = [out for _, out in given if isinstance(out, Node)]
    yield from _shared(graph, node, outs, names, writers)
    yield from _sizes(graph, node, [out for _, out in given])
    yield from _other_specs(graph, node, outs)


def _other_specs(graph: ProgramGraph, node: Node, outs: list[Node]) -> Iterator[Diagnostic]:
    """Yield if results have other specs than what they are written to, as far as there are specs."""
    written = [spec for out in outs for spec in _specs_of(out)]
    if written and [id(spec) for spec in written] != [id(spec) for spec in _specs_of(node)]:
        yield graph.finding(
            "EK349",
            node,
            "an operator's result and the tensor it writes to have different specs",
            expected="one `TensorSpec` object, for it is one piece of memory",
            notes=tuple(f"it writes to {spec}" for spec in written),
        )


def _specs_of(node: Node) -> list[TensorSpec]:
    spec = node.meta.get("spec")
    return [one for one in (spec if isinstance(spec, list | tuple) else (spec,)) if isinstance(one, TensorSpec)]


def _given(node: Node, names: list[str]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name in names:
        value = node.kwargs.get(name)
        if isinstance(value, list | tuple):
            found += [(f"{name}[{place}]", one) for place, one in enumerate(value)]
        else:
            found.append((name, value))
    return found


def _may_be_left_out(node: Node, number: int) -> bool:
    # Some results of operators for training are not computed; they are None.
    value = node.meta.get("val")
    return number > 1 and isinstance(value, list | tuple) and None in [type_of(one) for one in value]


def _missing(graph: ProgramGraph, node: Node, name: str, found: str) -> Diagnostic:
    return graph.finding(
        "EK335",
        node,
        f"argument {name} is {found} where the memory of the result must stand",
        expected="an alloc of its own",
        hint="convert operators by ConvertToOutVariants, which makes the allocs",
    )


def _shared(
    graph: ProgramGraph, node: Node, outs: list[Node], names: list[str], writers: dict[Node, Node]
) -> Iterator[Diagnostic]:
    inputs = {
        one
        for given in (*node.args, *(value for name, value in node.kwargs.items() if name not in names))
        for one in (given if isinstance(given, list | tuple) else (given,))
        if isinstance(one, Node)
    }
    for place, out in enumerate(outs):
        other = None
        if out in inputs:
            other = "is read by the same call"
        elif out in outs[:place]:
            other = "is written by the same call twice"
        elif out in writers:
            other = f"holds the result of %{writers[out].name}"
        if other is not None:
            yield graph.finding(
                "EK336",
                node,
                f"%{out.name}, into which %{node.name} writes, {other}",
                expected="an alloc of its own for every result",
                hint="let the memory plan decide which results share memory",
            )
    for out in outs:
        writers.setdefault(out, node)


def _sizes(graph: ProgramGraph, node: Node, outs: list[Any]) -> Iterator[Diagnostic]:
    value = node.meta.get("val")
    results = list(value) if isinstance(value, list | tuple) else [value]
    if len(results) != len(outs):
        return
    for out, result in zip(outs, results, strict=True):
        if not isinstance(out, Node) or out.target is not alloc or not isinstance(result, torch.Tensor):
            continue
        described = out.args[0] if out.args else None
        if not isinstance(described, tuple) or len(described) != 2:
            yield _misfit(graph, out, f"%{out.name} allocates {described!r}", "a pair of sizes and a dtype")
            continue
        sizes: Any
        sizes, dtype = described
        spec = out.meta.get("spec")
        varies = isinstance(spec, TensorSpec) and spec.shape_dynamism != TensorShapeDynamism.STATIC
        if isinstance(spec, TensorSpec) and spec.is_dynamic_unbound_tensor and dtype == result.dtype:
            # The operator makes room.
            continue
        if dtype != result.dtype or not _has_room(sizes, result, varies):
            yield _misfit(
                graph,
                out,
                f"%{out.name} allocates {str(dtype).removeprefix('torch.')}[{', '.join(map(str, sizes))}], "
                f"into which %{node.name} writes {type_of(result)}",
                "dtype and sizes of the result, or upper bounds of these",
            )


def _misfit(graph: ProgramGraph, out: Node, message: str, expected: str) -> Diagnostic:
    return graph.finding(
        "EK337", out, message, expected=expected, hint="replace the alloc when the result of an operator changes"
    )


def _has_room(sizes: Any, result: torch.Tensor, varies: bool) -> bool:
    # A branch may write less into the result of the call than another branch does.
    return len(sizes) == result.dim() and all(
        is_bound(bound, size) or (varies and type(size) is int and size <= bound)
        for bound, size in zip(sizes, result.shape, strict=True)
    )
