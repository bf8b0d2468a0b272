"""What `exirkit compare` and `exirkit bisect` find, as diagnostics."""

from __future__ import annotations

from exirkit.fuzz import NodePlace, RuntimeDifference, ValueGap, WrongStep
from exirkit.ir import Diagnostic, Location


def describe_step(step: WrongStep) -> Diagnostic:
    """Return EK735: the first step of lowering after which results are wrong, or which records what is not true."""
    place = step.node.place if step.node else (step.made[0] if step.made else None)
    location = Location(method=step.method) if place is None else _location(step.method, place)
    notes = []
    if step.gap is not None:
        notes.append(f"{step.result}: {gap_text(step.gap)}")
    if step.node is not None:
        run = f" in run {step.node.run + 1}" if step.node.run else ""
        notes.append(f"%{step.node.place.name}{run}: {gap_text(step.node.gap)}")
        if step.node.before.call != step.node.place.call:
            notes.append(f"before that step: %{step.node.before.name} = {step.node.before.call}")
    if place is not None and place.module:
        notes.append(f"module: {place.module}")
    notes += _made_notes(step, place)
    notes.append(f"right after {step.after}" + (f", in {step.pipeline}" if step.pipeline else ""))
    does = "the results are wrong after" if step.gap is not None else "what is recorded of values is false after"
    return Diagnostic(
        code="EK735",
        message=f"{does} {_author(step)}" + (f": {step.failure}" if step.failure else ""),
        location=location,
        notes=tuple(notes),
        hint=f"`exirkit rule check` tries rule {step.application.rule} by itself" if step.application else None,
    )


def describe_runtime(method: str, found: RuntimeDifference) -> Diagnostic:
    """Return EK736: the first instruction whose result differs on a runtime."""
    at = found.instruction
    text = f"instruction {at.index}, {at.operator}"
    location = Location(method=method, node=text) if found.node is None else _location(method, found.node)
    notes = [gap_text(at.gap)]
    if found.node is not None:
        notes.append(text)
        if found.node.module:
            notes.append(f"module: {found.node.module}")
    return Diagnostic(
        code="EK736",
        message=f"the {found.executor} departs from {found.against} at {at.operator}",
        location=location,
        notes=tuple(notes),
    )


def describe_failure(method: str, executor: str, failure: str) -> Diagnostic:
    """Return EK737: a runtime does not run the file."""
    return Diagnostic(
        code="EK737",
        message=f"the {executor} does not run the file: {failure}",
        location=Location(method=method),
        hint="`exirkit verify` says what is wrong with a file as far as that can be known without running it",
    )


def describe_missing(executor: str, reason: str) -> Diagnostic:
    """Return EK738: a runtime was not asked."""
    return Diagnostic(
        code="EK738",
        severity="warning",
        message=f"the {executor} was NOT compared: {reason}",
        hint="install it to compare with the runtime that devices have",
    )


def gap_text(gap: ValueGap) -> str:
    """Return a gap as text."""
    if gap.kind == "type" or not gap.absolute:
        return gap.text
    of_largest = f"{gap.relative:.3g} of the largest value; {gap.allowed:.2g} is allowed"
    return f"largest error {gap.absolute:.3g} ({of_largest}): {gap.text}"


def _author(step: WrongStep) -> str:
    applied = step.application
    if applied is None:
        return f"pass {step.stage}"
    where = f" ({step.rule_place})" if step.rule_place else ""
    return f"application {applied.number} of rule {applied.rule}{where}, in pass {step.stage}"


def _made_notes(step: WrongStep, place: NodePlace | None) -> list[str]:
    shown = _listed("made there", [one for one in step.made if place is None or one.name != place.name])
    shown += _listed("removed there", list(step.removed))
    if step.application is not None:
        shown.append(f"rewritten: {', '.join('%' + name for name in step.application.before)}")
    return shown


def _listed(title: str, places: list[NodePlace], most: int = 3) -> list[str]:
    shown = [f"{title}: %{one.name} = {one.call}" for one in places[:most]]
    return shown + ([f"{title}: {len(places) - most} more"] if len(places) > most else [])


def _location(method: str, place: NodePlace) -> Location:
    return Location(
        method=method, node=f"%{place.name}", text=f"%{place.name} = {place.call}", source=place.source,
        module=place.module,
    )  # fmt: skip
