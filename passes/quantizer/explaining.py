"""What a quantizer says of each call of a model, and why a rule does not mean a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic, Location, locate
from exirkit.passes.config.policies import operator_names

from .annotating import CARRIED, Annotation, Annotator, QuantizationPlan, Search

_FAR = 4
"""Calls of the longest patterns between a call and the end of a match that has it."""


@dataclass(frozen=True)
class QuantizedValue:
    """A value that is quantized for a call, or by it.

    Attributes:
        value: Name of the node that computes or stores the value.
        role: `reads`, or `gives`.
        way: How it is quantized, in words.
        shares: Other places with the same scale and zero point.
    """

    value: str
    role: str
    way: str
    shares: tuple[str, ...]


@dataclass(frozen=True)
class CallAccount:
    """What a quantizer says of one call.

    Attributes:
        node: Name of the call.
        operator: Its operator.
        rule: Name of the rule that has it, or `carry`; None if it stays as it is.
        values: What is quantized.
        reasons: Why rules that name the operator do not have the call, by their names.
        place: The call, and the line of the model that it comes from.
    """

    node: str
    operator: str
    rule: str | None
    values: tuple[QuantizedValue, ...]
    reasons: dict[str, str]
    place: Location

    def diagnostic(self, *, why_not: bool = False) -> Diagnostic:
        """Return all of this as a note that points at the call.

        Args:
            why_not: Say also of a call that a rule has why others do not have it.
        """
        state = "stays as it is" if self.rule is None else f"is quantized by {self.rule!r}"
        notes = [f"{one.role} %{one.value} as {one.way}" + _shared(one.shares) for one in self.values]
        if self.rule is None or why_not:
            notes += [f"rule {name!r}: {reason}" for name, reason in self.reasons.items()]
        if self.rule is None and not self.reasons:
            notes.append(f"no rule names {self.operator}")
        message = f"%{self.node} of {self.operator} {state}"
        return Diagnostic.of("EK483", message, severity="note", location=self.place, notes=tuple(notes))


def _shared(places: Sequence[str]) -> str:
    return f", shared with {', '.join(places)}" if places else ""


def account_of_model(annotator: Annotator, module: GraphModule) -> list[CallAccount]:
    """Return what a quantizer says of the calls of a model, in graph order; the model is not changed.

    Args:
        annotator: The quantizer.
        module: What `ExportedProgram.module()` gives.

    Raises:
        ModelError: EK469, values that share their parameters are to be quantized differently; EK477, a selector means
            no module of the model.
    """
    plan = annotator.plan(module)
    search = Search(annotator, module)
    owners = plan.by_call
    search.claims = {copied: owners[node].rule for copied, node in search.original.items() if node in owners}
    return [
        CallAccount(
            node.name,
            operator_names(node)[0],
            plan.by_call[node].rule if node in plan.by_call else None,
            tuple(_values(plan, node)),
            _reasons(annotator, search, copied, plan.by_call.get(node)),
            locate(node),
        )
        for copied in search.calls
        if operator_names(node := search.original[copied])
    ]


def _values(plan: QuantizationPlan, node: Node) -> Iterator[QuantizedValue]:
    annotation = plan.by_call.get(node)
    points = [] if annotation is None else [one for group in annotation.points.values() for one in group]
    for point in dict.fromkeys(points):
        if point.reader is node or (point.reader is None and point.value is node):
            role = "gives" if point.reader is None else "reads"
            others = [str(one) for one in plan.groups[plan.group_of[point]] if one != point]
            yield QuantizedValue(point.value.name, role, plan.way_at(point).describe(), tuple(others))


def _reasons(annotator: Annotator, search: Search, call: Node, own: Annotation | None) -> dict[str, str]:
    """Return why rules that name the operator of a call do not have it."""
    names = set(operator_names(call))
    found: dict[str, str] = {}
    for rule, pattern in annotator.rules:
        if (own is not None and own.rule == rule.name) or not names & pattern.operators:
            continue
        ends = [one for one in _followers(call) if set(operator_names(one)) & pattern.anchor_names]
        reasons = [reason for one in ends if (reason := search.why_not(rule, pattern, one))]
        found[rule.name] = reasons[0] if reasons else "no call behind it ends a match of its pattern"
    if own is None and annotator.carries(call):
        source = call.args[0] if call.args else None
        name = source.name if isinstance(source, Node) else str(source)
        found[CARRIED] = f"%{name} is not quantized where it is computed"
    return found


def _followers(call: Node) -> Iterator[Node]:
    """Yield a call and those that use it, the nearest first."""
    near, seen = [call], {call}
    for _ in range(_FAR):
        yield from near
        near = list(dict.fromkeys(user for one in near for user in one.users if user not in seen))
        seen.update(near)
