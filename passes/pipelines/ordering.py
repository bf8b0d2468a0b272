"""Checks of the order of stages: whether what each requires holds when it runs, whatever the conditions are."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from exirkit.ir import Diagnostic
from exirkit.passes.registry import shipped_passes
from exirkit.ir import YamlSource

from .invariants import CHECKS, HOLDS_IN
from .model import PipelineModel
from .resolving import ResolvedStage

_MOST_CONDITIONS = 8


@dataclass
class Knowledge:
    """Which invariants hold at a point of the pipeline.

    Attributes:
        held: Those that hold.
        broken: Those that held and need not any more, with the stage that may have broken them.
    """

    held: frozenset[str]
    broken: dict[str, ResolvedStage] = field(default_factory=dict)

    def after(self, one: ResolvedStage) -> Knowledge:
        """Return what holds after a stage."""
        broken = {**self.broken, **dict.fromkeys(self.held & one.invalidates, one)}
        held = (self.held - one.invalidates) | one.ensures
        return Knowledge(held, {name: stage for name, stage in broken.items() if name not in held})


def initial_knowledge(model: PipelineModel) -> Knowledge:
    """Return what holds for the programs that a pipeline is given."""
    return Knowledge(HOLDS_IN[model.dialect.from_] | frozenset(model.requires))


def is_active(one: ResolvedStage, settings: Mapping[str, object]) -> bool:
    """Tell whether a stage runs with certain settings."""
    condition = one.stage.condition
    return condition is None or settings.get(condition[0]) is condition[1]


class OrderCheck:
    """Walks through a pipeline once for every combination of its conditions.

    Args:
        model: The file.
        source: Places in it.
        stages: Its stages, with all names found.
    """

    def __init__(self, model: PipelineModel, source: YamlSource, stages: tuple[ResolvedStage, ...]) -> None:
        self._model = model
        self._source = source
        self._stages = stages
        # By what is wrong: the complaint, and the combinations of conditions that show it.
        self._found: dict[tuple[str, ...], tuple[Diagnostic, set[tuple[bool, ...]]]] = {}
        self._scenario: dict[str, bool] = {}

    def findings(self) -> list[Diagnostic]:
        """Return all complaints: EK474 requirements, EK475 order, EK471 too many conditions."""
        walked = [one for stage in self._stages for one in stage.walk()]
        conditions = list(dict.fromkeys(one.stage.condition[0] for one in walked if one.stage.condition))
        if len(conditions) > _MOST_CONDITIONS:
            message = f"the stages depend on {len(conditions)} conditions; at most {_MOST_CONDITIONS} are checked"
            return [self._source.key(("stages",)).diagnostic("EK471", message, length=len("stages"))]
        combinations = list(itertools.product((True, False), repeat=len(conditions)))
        for each in combinations:
            self._scenario = dict(zip(conditions, each, strict=True))
            self._check_scenario()
        return [
            finding if len(shown) == len(combinations) else _under(finding, conditions, shown)
            for finding, shown in self._found.values()
        ]

    def _check_scenario(self) -> None:
        sequence = list(self._active(self._stages))
        for at, one in enumerate(sequence):
            self._check_order(sequence, at, one)
        end = self._run(self._stages, initial_knowledge(self._model))
        wanted = HOLDS_IN[self._model.dialect.to] | frozenset(self._model.ensures)
        for name in sorted(wanted - end.held):
            places = [("ensures", at) for at, each in enumerate(self._model.ensures) if each == name]
            text = self._source.text(places[0] if places else ("dialect", "to"))
            message = f"the pipeline must end with {name!r}, {_why(name, end)}"
            key = ("EK474", "end", name)
            self._note(key, text.diagnostic("EK474", message, length=max(1, len(text.value)), hint=_hint(name)))

    def _active(self, stages: tuple[ResolvedStage, ...]) -> Iterator[ResolvedStage]:
        for one in stages:
            if is_active(one, self._scenario):
                yield one
                for listed in one.inner.values():
                    yield from self._active(listed)

    def _run(self, stages: tuple[ResolvedStage, ...], state: Knowledge) -> Knowledge:
        for one in stages:
            if not is_active(one, self._scenario):
                continue
            for name in sorted(one.requires - state.held):
                self._note(("EK474", one.number, name), self._unmet(one, name, state))
            # What is missing is said once, not again for every stage that needs it too.
            state = Knowledge(state.held | one.requires, state.broken)
            before = state
            for key, listed in one.inner.items():
                if key == "otherwise":
                    other = self._run(listed, before)
                    state = Knowledge(state.held & other.held, {**state.broken, **other.broken})
                    continue
                state = self._run(listed, state)
                if key == "repeat":
                    state = self._run(listed, state)
            state = state.after(one)
        return state

    def _unmet(self, one: ResolvedStage, name: str, state: Knowledge) -> Diagnostic:
        text = self._source.text((*one.path, one.stage.kind), one.stage.label)
        message = f"stage {one.number}, {one.stage.label}, requires {name!r}, {_why(name, state)}"
        return text.diagnostic("EK474", message, length=len(text.value), hint=_hint(name))

    def _check_order(self, sequence: list[ResolvedStage], at: int, one: ResolvedStage) -> None:
        registered = one.registered
        for key, wrong, right in (
            ("after", sequence[at + 1 :], sequence[:at]),
            ("before", sequence[:at], sequence[at + 1 :]),
        ):
            for name in (*getattr(one.stage, key), *(getattr(registered, key) if registered else ())):
                misplaced = next((other for other in wrong if other.answers_to(name)), None)
                if misplaced is None or any(other.answers_to(name) for other in right):
                    continue
                text = self._source.text((*one.path, one.stage.kind), one.stage.label)
                message = (
                    f"stage {one.number}, {one.stage.label}, must come {key} {name}, which is stage {misplaced.number}"
                )
                finding = text.diagnostic("EK475", message, length=len(text.value))
                self._note(("EK475", one.number, key, name), finding)

    def _note(self, key: tuple[str, ...], finding: Diagnostic) -> None:
        self._found.setdefault(key, (finding, set()))[1].add(tuple(self._scenario.values()))


def _why(name: str, state: Knowledge) -> str:
    broken = state.broken.get(name)
    if broken is None:
        return "which nothing before it ensures"
    return f"which stage {broken.number}, {broken.stage.label}, may have broken"


def _hint(name: str) -> str:
    known = [known for known, one in shipped_passes().items() if name in one.ensures]
    known += [f"check: {each}" for each, check in CHECKS.items() if name in check.confirms]
    offered = f"{' or '.join(known)} ensures it; " if known else ""
    return f"{offered}a stage of yours that does can say so: `ensures: [{name}]`"


def _under(finding: Diagnostic, conditions: Sequence[str], shown: Iterable[tuple[bool, ...]]) -> Diagnostic:
    """Note the conditions under which a complaint is raised."""
    values = [set(each) for each in zip(*shown, strict=True)]
    fixed = [(name, each) for name, each in zip(conditions, values, strict=True) if len(each) == 1]
    where = " and ".join(f"{name} is {str(True in each).lower()}" for name, each in fixed)
    return finding.model_copy(update={"notes": (*finding.notes, f"where {where}")}) if where else finding
