"""From names in a pipeline file to what they name, and checks of the order of stages."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from exirkit.ir import (
    Diagnostic,
    ModelError,
    UsageError,
    YamlPath,
    YamlSource,
    did_you_mean,
    find_plugins,
    form_diagnostic,
    load_plugin,
)
from exirkit.passes.contract import (
    BOOK_PLUGINS,
    BROKEN_BY_EDITS,
    PassOptions,
    PassRegistry,
    RegisteredPass,
    plugin_error,
    shipped_passes,
)
from exirkit.patterns import (
    CompiledRule,
    LoadedBook,
    RuleEngine,
    backend_books,
    chosen_by_cost,
    is_shipped,
    load_book,
    shipped_books,
)

from .model import CHECKS, HOLDS_IN, INVARIANTS, SETTINGS, Check, PipelineModel, Stage


@dataclass(frozen=True)
class ResolvedStage:
    """A stage and what its names stand for.

    Attributes:
        stage: As it was written.
        path: Where it stands in the file.
        number: Its place for people: `3`, or `3.2` inside stage 3; `otherwise` counts on.
        registered: The pass, of a stage with `pass`.
        check: The check, of a stage with `check`.
        rules: Rules, of a stage with `rules`.
        inner: Stages inside, by key.
    """

    stage: Stage
    path: YamlPath
    number: str
    registered: RegisteredPass | None = None
    check: Check | None = None
    rules: tuple[CompiledRule, ...] | None = None
    inner: Mapping[str, tuple[ResolvedStage, ...]] = field(default_factory=dict)

    @cached_property
    def engine(self) -> RuleEngine:
        """The engine for `rules`, made once for all runs."""
        return RuleEngine(self.rules or ())

    @property
    def requires(self) -> frozenset[str]:
        """Invariants that must hold before."""
        return frozenset(self.stage.requires) | (self.registered.requires if self.registered else frozenset())

    @property
    def ensures(self) -> frozenset[str]:
        """Invariants that hold afterwards."""
        own = self.registered.ensures if self.registered else self.check.confirms if self.check else frozenset()
        return own | frozenset(self.stage.ensures)

    @property
    def invalidates(self) -> frozenset[str]:
        """Invariants that need not hold afterwards."""
        own = self.registered.invalidates if self.registered else frozenset()
        return own | frozenset(self.stage.invalidates) | (BROKEN_BY_EDITS if self.rules is not None else frozenset())

    def answers_to(self, name: str) -> bool:
        """Return whether constraints and callers mean this stage by a name."""
        return name in (self.stage.label, self.stage.pass_)

    def walk(self) -> Iterator[ResolvedStage]:
        """Yield the stage and all inside it, in order."""
        yield self
        for listed in self.inner.values():
            for one in listed:
                yield from one.walk()


class Resolver:
    """Looks up the names of one file and collects all that cannot be found.

    Args:
        model: The file.
        source: Places in it.
        registry: Passes by name.

    Attributes:
        found: Complaints, in the order of the file.
    """

    def __init__(self, model: PipelineModel, source: YamlSource, registry: PassRegistry) -> None:
        self.found: list[Diagnostic] = []
        self._model = model
        self._source = source
        self._registry = registry
        # A chain of a backend has dozens of stages with rules of a few books.
        self._books: dict[str, LoadedBook] = {}
        self._invariants = {**INVARIANTS, **model.invariants}
        self._defaults = {**{name: one.default for name, one in SETTINGS.items()}, **model.settings}

    def resolve(self) -> tuple[ResolvedStage, ...]:
        """Return the stages; those with complaints lack what was not found."""
        self._check_settings()
        for key in ("requires", "ensures"):
            self._check_names(("",), key, getattr(self._model, key), self._invariants, "invariant")
        return self._stages(self._model.stages, ("stages",), "")

    def _stages(
        self, stages: tuple[Stage, ...], path: YamlPath, prefix: str, first: int = 1
    ) -> tuple[ResolvedStage, ...]:
        return tuple(self._stage(one, (*path, at), f"{prefix}{at + first}") for at, one in enumerate(stages))

    def _stage(self, stage: Stage, path: YamlPath, number: str) -> ResolvedStage:
        for key in ("requires", "ensures", "invalidates"):
            self._check_names(path, key, getattr(stage, key), self._invariants, "invariant")
        if stage.condition is not None:
            self._check_condition(stage.condition[0], path)
        inner: dict[str, tuple[ResolvedStage, ...]] = {}
        count = 1
        for key, listed in stage.inner():
            inner[key] = self._stages(listed, (*path, key), f"{number}.", count)
            count += len(listed)
        return ResolvedStage(
            stage,
            path,
            number,
            registered=self._pass(stage, path) if stage.pass_ is not None else None,
            check=self._named((*path, "check"), stage.check, CHECKS, "check") if stage.check is not None else None,
            rules=self._rules(stage, path) if stage.rules is not None else None,
            inner=inner,
        )

    def check_order_names(self, stages: tuple[ResolvedStage, ...]) -> None:
        """Complain about constraints that name neither a pass nor a stage of the file."""
        everything = [one for stage in stages for one in stage.walk()]
        labels = {one.stage.label for one in everything}
        for one in everything:
            for key in ("after", "before"):
                for at, name in enumerate(getattr(one.stage, key)):
                    if name not in labels and self._find(name, (*one.path, key, at)) is None:
                        self._unknown((*one.path, key, at), name, [*labels, *self._registry.names()], "stage or pass")

    def _pass(self, stage: Stage, path: YamlPath) -> RegisteredPass | None:
        assert stage.pass_ is not None, "asked for a pass"
        count = len(self.found)
        found = self._find(stage.pass_, (*path, "pass"))
        if found is None:
            if len(self.found) == count:
                self._unknown((*path, "pass"), stage.pass_, self._registry.names(), "pass")
            return None
        self._check_options(found, stage.options, (*path, "options"))
        return found

    def _find(self, name: str, path: YamlPath) -> RegisteredPass | None:
        try:
            return self._registry.find(name)
        except UsageError as error:
            message, notes = plugin_error(error)
            self._complain("EK472", path, message, name, notes=notes)
            return None

    def _check_options(self, found: RegisteredPass, options: Mapping[str, Any], path: YamlPath) -> None:
        known = True
        for key, value in options.items():
            name = setting_of(value)
            if name is not None:
                known = self._named((*path, key, "setting"), name, self._defaults, "setting") is not None and known
        if not known:
            return
        try:
            found.options.model_validate(option_values(options, self._defaults), context=context_of(self._source))
        except ModelError as error:
            self.found += error.diagnostics
        except ValidationError as error:
            keys = tuple(found.options.model_fields)
            findings = [form_diagnostic(each, self._source, "EK473", keys, base=path) for each in error.errors()]
            note = f"options of {found.name}: {', '.join(keys) or 'none'}"
            self.found += [one.model_copy(update={"notes": (*one.notes, note)}) for one in findings]

    def _rules(self, stage: Stage, path: YamlPath) -> tuple[CompiledRule, ...]:
        rules = self._rules_of(stage.rules or (), (*path, "rules"))
        rules += map(chosen_by_cost, self._rules_of(stage.weighed, (*path, "weighed")))
        if isinstance(stage.only, tuple):
            return self._chosen(rules, stage.only, (*path, "only"))
        return tuple(one for one in rules if stage.only is None or one.rule.equiv.is_exact)

    def _rules_of(self, books: Sequence[str], path: YamlPath) -> list[CompiledRule]:
        rules: list[CompiledRule] = []
        for at, name in enumerate(books):
            place = (*path, at)
            try:
                rules += self._book(name).require_valid().rules
            except UsageError as error:
                message, notes = plugin_error(error)
                self._complain("EK472", place, message, name, notes=notes)
            except ModelError as error:
                self.found += error.diagnostics
            except OSError as error:
                what = (error.strerror or str(error)).lower()
                known = [*shipped_books(), *backend_books(), *find_plugins(BOOK_PLUGINS)]
                hint = did_you_mean(name, known)
                self._complain("EK472", place, f"the rule book {name!r} cannot be read: {what}", name, hint=hint)
        return rules

    def _chosen(
        self, rules: Iterable[CompiledRule], names: tuple[str, ...], path: YamlPath
    ) -> tuple[CompiledRule, ...]:
        """Return the rules that a stage names, in its order; complain about those that its books do not have."""
        given = tuple(rules)
        chosen = [[one for one in given if one.is_named_in((name,))] for name in names]
        for at, (name, found) in enumerate(zip(names, chosen, strict=True)):
            # Books that cannot be read have been complained about.
            if not found and not self.found:
                self._unknown((*path, at), name, [one.id for one in given], "rule")
        return tuple(one for found in chosen for one in found)

    def _book(self, name: str) -> LoadedBook:
        if name not in self._books:
            self._books[name] = self._read_book(name)
        return self._books[name]

    def _read_book(self, name: str) -> LoadedBook:
        if is_shipped(name):
            return load_book(name)
        beside = Path(self._source.file).parent / name
        if beside.exists() or name not in find_plugins(BOOK_PLUGINS):
            return load_book(beside)
        offered = load_plugin(BOOK_PLUGINS, name)
        offered = offered() if callable(offered) else offered
        return offered if isinstance(offered, LoadedBook) else load_book(str(offered))

    def _check_settings(self) -> None:
        for name, value in self._model.settings.items():
            usual = SETTINGS[name].default if name in SETTINGS else value
            if name in SETTINGS and not _is_same_kind(usual, value):
                message = f"the setting {name!r} is {_kind(usual)}, this is {_kind(value)}"
                self._complain("EK471", ("settings", name), message, str(value))

    def _check_condition(self, name: str, path: YamlPath) -> None:
        known = {key: value for key, value in self._defaults.items() if isinstance(value, bool)}
        self._named((*path, "when"), name, known, "condition")

    def _check_names(self, path: YamlPath, key: str, names: tuple[str, ...], known: Collection[str], what: str) -> None:
        base = () if path == ("",) else path
        for at, name in enumerate(names):
            if name not in known:
                self._unknown((*base, key, at), name, known, what)

    def _named(self, path: YamlPath, name: str, known: Mapping[str, Any], what: str) -> Any:
        if name not in known:
            self._unknown(path, name, known, what)
            return None
        return (known[name],) if what == "setting" else known[name]

    def _unknown(self, path: YamlPath, name: str, known: Collection[str], what: str) -> None:
        self._complain("EK472", path, f"there is no {what} {name!r}", name, hint=did_you_mean(name, known))

    def _complain(self, code: str, path: YamlPath, message: str, name: str, **more: Any) -> None:
        text = self._source.text(path, name)
        # A value such as `not NAME` starts before the name.
        offset = max(0, (text.location().text or "").find(name, text.column - 1) - text.column + 1)
        self.found.append(text.diagnostic(code, message, offset=offset, length=len(name), **more))


def setting_of(value: Any) -> str | None:
    """Return the setting that an option stands for, or None if it is a plain value."""
    if isinstance(value, Mapping) and set(value) == {"setting"} and isinstance(value["setting"], str):
        return value["setting"]
    return None


def option_values(options: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the values of settings instead of their names."""
    named = {key: setting_of(value) for key, value in options.items()}
    return {key: value if named[key] is None else settings[named[key] or ""] for key, value in options.items()}


def context_of(source: YamlSource) -> dict[str, Any]:
    """Return what models of options are told about the file: the folder of other files that it names."""
    return {"folder": Path(source.file).parent}


def build_options(one: ResolvedStage, settings: Mapping[str, Any], source: YamlSource) -> PassOptions:
    """Return the options of the pass of a stage for certain settings.

    Raises:
        UsageError: EK473, a setting has a value that the pass does not take.
    """
    found = one.registered
    assert found is not None, "a stage with a pass"
    try:
        return found.options.model_validate(option_values(one.stage.options, settings), context=context_of(source))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise UsageError(
            code="EK473", message=f"option {name!r} of {found.name}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        ) from None


def _is_same_kind(usual: Any, value: Any) -> bool:
    return _kind(usual) == _kind(value)


def _kind(value: Any) -> str:
    kinds = (
        (bool, "a boolean"),
        (Mapping, "a mapping"),
        (str, "a text"),
        ((list, tuple), "a list"),
        ((int, float), "a number"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "nothing")


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
    """Return whether a stage runs with certain settings."""
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
