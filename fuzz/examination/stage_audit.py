"""Whether passes report truthfully what they change, and are done when they have run once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from exirkit.fuzz.compilers import ExirkitCompiler, LoweringTrace
from exirkit.ir import DiagnosticError, called_graphs, pytree
from exirkit.passes import Pass, StageEvent, apply_user_passes, watching

from .examination import Examination, NotRunError


class StageAudit(LoweringTrace):
    """Listens to a compiler, and examines every stage of its pipelines.

    Args:
        has_state: Whether the program keeps something from run to run.
        runs_again: Run each pass that changes the program once more on its own result.

    Attributes:
        untruthful: Stages that changed the program and reported that they had not, or the other way round.
        repeating: Stages whose pass changes the program once more when it runs on its own result.
    """

    def __init__(self, *, has_state: bool = False, runs_again: bool = False) -> None:
        super().__init__(has_state=has_state)
        self.untruthful: dict[str, str] = {}
        self.repeating: dict[str, str] = {}
        self._runs_again = runs_again
        self._before: dict[int, _Known] = {}

    @property
    def sees_passes(self) -> bool:
        """Whether passes that are applied without a pipeline are told as stages too: all are audited."""
        return True

    def see(self, event: StageEvent) -> None:
        """Take note of an event of a pipeline, and examine the stage that has worked."""
        if event.pipeline or self._runs_again:
            super().see(event)
        if event.moment == "before":
            known = self._before.get(event.run)
            # Between two stages nothing works on the program; a group that starts again goes on with a copy.
            if known is None or known.program is not event.program:
                self._before[event.run] = _Known(event.program, fingerprint(event.program))
        elif event.moment == "after" and event.edit is not None:
            before, after = self._before[event.run].parts, fingerprint(event.program)
            self._before[event.run] = _Known(event.program, after)
            changed = [part for part, lines in after.items() if before[part] != lines]
            # Passes in the official style often report a change whatever they do, which costs time and nothing else.
            is_false = not event.modified if changed else event.modified and isinstance(event.edit, Pass)
            if is_false:
                self.untruthful.setdefault(event.name, _lie(changed, before, after))
            if event.modified and self._runs_again:
                again = _run_again(event.edit, event.program)
                if again is not None:
                    self.repeating.setdefault(event.name, again)
        elif event.moment == "end":
            self._before.pop(event.run, None)


@dataclass(frozen=True)
class _Known:
    program: ExportedProgram
    parts: dict[str, list[str]]


def fingerprint(program: ExportedProgram) -> dict[str, list[str]]:
    """Return everything of a program that a pass may change, as text by part."""
    graphs = [module.graph for module in called_graphs(program.graph_module)]
    stored = {**program.state_dict, **program.constants}
    return {
        "graph": [line for graph in graphs for line in str(graph).splitlines()],
        "signature": str(program.graph_signature).splitlines(),
        "recorded values": _recorded(graphs),
        "stored tensors": [f"{name}: {_identity(value)}" for name, value in stored.items()],
    }


def _recorded(graphs: list[Graph]) -> list[str]:
    first: dict[int, str] = {}
    """By the identity of a spec: the first node that has it. Values with one spec lie in one place."""
    lines: list[str] = []
    for graph in graphs:
        for node in graph.nodes:
            spec = node.meta.get("spec")
            leaves = [one for one in pytree.tree_leaves(spec) if one is not None]
            shared = [owner for one in leaves if (owner := first.setdefault(id(one), node.name)) != node.name]
            lines.append(
                f"{node.name}: {_described(node.meta.get('val'))} {spec} {shared} {node.meta.get('debug_handle')}"
            )
    return lines


def _described(value: Any) -> str:
    leaves = pytree.tree_leaves(value)
    return ", ".join(
        f"{one.dtype}{tuple(one.shape)}{_strides(one)}" if isinstance(one, torch.Tensor) else str(one) for one in leaves
    )


def _strides(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.stride()) if tensor.layout is torch.strided else ()


def _identity(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(type(value))
    return f"{value.dtype}{tuple(value.shape)}{_strides(value)} at {value.data_ptr():#x}"


def _lie(changed: list[str], before: dict[str, list[str]], after: dict[str, list[str]]) -> str:
    if not changed:
        return "it reports a change and has made none"
    part = changed[0]
    lines = set(before[part])
    new = next((one for one in after[part] if one not in lines), "")
    return f"it reports no change and has changed the {part}: {new.strip()[:200]}"


def _run_again(edit: Any, program: ExportedProgram) -> str | None:
    """Return the first line that a second run changes."""
    try:
        with watching():
            after = _numbered(apply_user_passes(program, edit))
    except DiagnosticError:
        # Made for another dialect than that of its result.
        return None
    before = _numbered(program)
    if before == after:
        return None
    pairs = itertools.zip_longest(before, after, fillvalue="nothing")
    one, other = next((old, new) for old, new in pairs if old != new)
    return f"a second run makes {other[:160]} of {one[:160]}"


def _numbered(program: ExportedProgram) -> list[str]:
    """Return the graphs as text with numbers for names, so that a node that is created again is the same."""
    lines: list[str] = []
    for module in called_graphs(program.graph_module):
        places = {node: f"%{place}" for place, node in enumerate(module.graph.nodes)}

        def name_of(one: Node, places: Mapping[Node, str] = places) -> _Name:
            return _Name(places[one])

        for node, place in places.items():
            args, kwargs = map_arg((node.args, dict(node.kwargs)), name_of)
            target = "" if node.op in ("placeholder", "get_attr") else node.target
            lines.append(f"{place} = {node.op} {target} {args} {kwargs}")
    return lines


class _Name(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def watch_stages(examination: Examination) -> None:
    """Have the stages of the lowering examined while it works, unless the program has been lowered already."""
    if isinstance(examination.compiler, ExirkitCompiler):
        examination.listener = StageAudit


def audited(examination: Examination, *, runs_again: bool) -> StageAudit:
    """Return what was found in the stages of the lowering (raises `NotRunError`).

    Args:
        examination: The program is lowered once more, unless its stages were watched (`watch_stages`).
        runs_again: Run each pass on its own result, too.
    """
    compiler = examination.compiler
    if not isinstance(compiler, ExirkitCompiler):
        raise NotRunError("the compiler is a black box")
    if not runs_again and isinstance(examination.trace, StageAudit):
        return examination.trace

    def run() -> StageAudit:
        audit = StageAudit(has_state=examination.trace.has_state, runs_again=runs_again)
        # From a fresh export: what torch learns of sizes while a pass runs once more must not meet the first run.
        compiler.lower(examination.build(), audit)
        return audit

    return examination.once("audit" if runs_again else "watched", run, oracle="lowering", stage=None)
