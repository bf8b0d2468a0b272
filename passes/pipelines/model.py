"""What stands in a pipeline file: stages in order, what each needs and leaves, and when it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

KebabName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=80)]
DialectName = Literal["aten", "edge", "executorch"]
Names = tuple[KebabName, ...]

LARGEST_BOUND = 1_000
DEFAULT_BOUND = 10
_KINDS = ("pass", "rules", "check", "repeat", "group")
_BELONGS = {
    "options": ("pass",),
    "limit": ("rules",),
    "only": ("rules",),
    "bound": ("repeat",),
    "stages": ("group",),
    "otherwise": ("group",),
}


class Strict(BaseModel):
    """A part of the file; a key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Dialects(Strict):
    """Which dialect a pipeline takes, and which it makes.

    Attributes:
        from_: Dialect of the program that it is given.
        to: Dialect of the program that comes out.
    """

    from_: DialectName = Field(alias="from")
    to: DialectName


class Stage(Strict):
    """One stage; exactly one of `pass`, `rules`, `check`, `repeat` and `group` says what it does.

    Attributes:
        pass_: Name of a registered pass.
        options: Options of the pass; `{setting: NAME}` stands for the value of a setting.
        rules: A rule book or several, all of whose rules are applied together: files beside the pipeline, or names.
        limit: Most applications of rules.
        only: `exact`: leave out rules whose contract allows results to differ.
        check: Name of a check, whose findings end the run.
        repeat: Stages to run until they change nothing more.
        bound: Most rounds of `repeat`.
        group: Name of a group of stages.
        stages: The stages of the group.
        otherwise: What runs instead where a pass of the group needs the whole graph.
        title: A line of text to tell while the stage runs.
        name: What the stage is called in reports and constraints; the name of its pass, check or group when absent.
        when: Name of a setting, or `not` and a name: the stage runs only then.
        requires: Invariants that must hold before, in addition to those of the pass.
        ensures: Invariants that hold afterwards, in addition.
        invalidates: Invariants that need not hold any more, in addition.
        after: Stages that have to come before this one, where they are there at all.
        before: Stages that have to come after this one, where they are there at all.
    """

    pass_: KebabName | None = Field(default=None, alias="pass")
    options: dict[str, Any] = {}
    rules: tuple[Annotated[str, Field(min_length=1)], ...] | None = None
    limit: int | None = Field(default=None, ge=0)
    only: Literal["exact"] | None = None
    check: KebabName | None = None
    repeat: tuple[Stage, ...] | None = Field(default=None, min_length=1)
    bound: int = Field(default=DEFAULT_BOUND, ge=1, le=LARGEST_BOUND)
    group: KebabName | None = None
    stages: tuple[Stage, ...] | None = Field(default=None, min_length=1)
    otherwise: tuple[Stage, ...] | None = Field(default=None, min_length=1)
    title: str | None = None
    name: KebabName | None = None
    when: Annotated[str, Field(pattern=r"^(not +)?[a-z][a-z0-9]*(-[a-z0-9]+)*$")] | None = None
    requires: Names = ()
    ensures: Names = ()
    invalidates: Names = ()
    after: Names = ()
    before: Names = ()

    @model_validator(mode="before")
    @classmethod
    def _lists(cls, given: Any) -> Any:
        """One book, invariant or stage may stand without brackets."""
        if not isinstance(given, dict):
            return given
        listed = ("rules", "requires", "ensures", "invalidates", "after", "before")
        return {key: [value] if key in listed and isinstance(value, str) else value for key, value in given.items()}

    @model_validator(mode="after")
    def _one_kind(self) -> Stage:
        given = [name for name in _KINDS if getattr(self, _attribute(name)) is not None]
        if len(given) != 1:
            what = "none of them" if not given else " and ".join(given)
            raise ValueError(f"a stage has exactly one of the keys {', '.join(_KINDS)}; this one has {what}")
        for key, kinds in _BELONGS.items():
            if key in self.model_fields_set and given[0] not in kinds:
                raise ValueError(f"the key {key!r} belongs to stages with {kinds[0]!r}, this one has {given[0]!r}")
        if self.group is not None and self.stages is None:
            raise ValueError(f"the group {self.group!r} has no 'stages'")
        return self

    @property
    def kind(self) -> str:
        """`pass`, `rules`, `check`, `repeat` or `group`."""
        return next(name for name in _KINDS if getattr(self, _attribute(name)) is not None)

    @property
    def label(self) -> str:
        """What the stage is called in reports and constraints."""
        if self.rules is not None:
            return self.name or f"rules {', '.join(self.rules)}"
        return self.name or self.pass_ or self.check or self.group or "repeat"

    @property
    def condition(self) -> tuple[str, bool] | None:
        """The setting that decides whether the stage runs, and the value at which it does."""
        if self.when is None:
            return None
        return (self.when.removeprefix("not").strip(), False) if self.when.startswith("not ") else (self.when, True)

    def inner(self) -> Iterator[tuple[str, tuple[Stage, ...]]]:
        """Yield the lists of stages inside this one, each under its key."""
        for key in ("repeat", "stages", "otherwise"):
            listed = getattr(self, key)
            if listed is not None:
                yield key, listed


def _attribute(name: str) -> str:
    return "pass_" if name == "pass" else name


class PipelineModel(Strict):
    """A pipeline file.

    Attributes:
        pipeline: Version of the form: 1.
        name: What the pipeline is called.
        doc: What it is for.
        dialect: What it takes and what it makes.
        verify: When the checks of all invariants that should hold are made: after `each` stage, at the `end`, or not.
        settings: Settings of this pipeline's own, with the values that they have unless a caller says otherwise.
        invariants: Invariants of this pipeline's own, each with a string that states what it means.
        requires: Invariants that hold for the programs that the pipeline is given.
        ensures: Invariants that must hold in the end.
        stages: What happens, in order.
    """

    pipeline: Literal[1]
    name: KebabName
    doc: str | None = None
    dialect: Dialects
    verify: Literal["each", "end", "none"] = "none"
    settings: dict[KebabName, Any] = {}
    invariants: dict[KebabName, str] = {}
    requires: Names = ()
    ensures: Names = ()
    stages: tuple[Stage, ...] = Field(min_length=1)
