"""The form of pipeline files, and what they may name: settings and invariants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch.export import ExportedProgram

from exirkit.ir import Diagnostic
from exirkit.passes.analysis import graph_call_findings
from exirkit.passes.config.lowering_config import DynamicMemoryPlanningMode, EdgeCompileConfig, ExecutorchBackendConfig
from exirkit.passes.memory.planning_pass import MemoryPlanningPass
from exirkit.passes.to_executorch.out_variants import OutVariantTable, missing_out_variants
from exirkit.verifiers import (
    check_aten_program,
    check_debug_handles,
    check_dtypes,
    check_edge_program,
    check_executorch_program,
    check_form,
    check_layouts,
    check_metadata,
    check_out_arguments,
    check_separate_body_results,
    check_separate_outputs,
    check_specs,
    check_written_back,
)

INVARIANTS: Mapping[str, str] = MappingProxyType(
    {
        "debug-handles": "every call has a debug handle",
        "no-grad-regions": "no region of the graph switches gradients on or off",
        "core-operators": "ATen operators are core ones, or accepted by the configuration",
        "functional": "no operator writes to its arguments",
        "control-flow": "what calls other graphs is `cond`, `map`, `scan` or `while_loop`",
        "constants-lifted": "every tensor is an input of the graph or the result of a call",
        "no-views": "no operator returns a view",
        "numbers-lifted": "where a schema asks for a tensor, no Python number stands",
        "tensor-arguments": "where a schema asks for a tensor, a tensor stands",
        "edge-operators": "call targets are edge handles, arithmetic on sizes, or assertions",
        "mutations-written-back": "new values of buffers and inputs are copied to where they belong",
        "outputs-separate": "every output has memory of its own",
        "body-results-separate": "results of branches and loop bodies have memory of their own where they need it",
        "dim-orders-agree": "the layout of every value is the one that its operator makes",
        "no-assertions": "no assertion is left",
        "symbols-lowered": "arithmetic on sizes is made of the primitives of the runtime",
        "specs": "every value has a tensor spec that says what it is",
        "bounded-shapes": "every size has an upper bound",
        "out-variants-known": "every operator is known to have an out variant",
        "out-variants": "operators write their results into tensors that they are given",
    }
)

# What a program of a dialect is taken to be when a pipeline begins, and what has to hold when one ends.
HOLDS_IN: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "aten": frozenset(),
        "edge": frozenset(
            {
                "functional",
                "control-flow",
                "constants-lifted",
                "no-views",
                "tensor-arguments",
                "edge-operators",
            }
        ),
        "executorch": frozenset({"out-variants", "specs", "bounded-shapes", "outputs-separate", "no-assertions"}),
    }
)


@dataclass(frozen=True)
class Check:
    """A check that a stage can name.

    Attributes:
        confirms: Invariants that hold where it finds nothing.
        find: Examines a program and returns findings; it is also given the settings.
    """

    confirms: frozenset[str]
    find: Callable[[ExportedProgram, Mapping[str, Any]], list[Diagnostic]]


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        # The first two hold for every program, whatever its dialect.
        "form": Check(frozenset(), lambda program, settings: check_form(program)),
        "values": Check(frozenset(), lambda program, settings: check_metadata(program)),
        "debug-handles": Check(
            frozenset({"debug-handles"}),
            lambda program, settings: check_debug_handles(program),
        ),
        "core-aten": Check(
            frozenset({"core-operators", "functional"}),
            lambda program, settings: check_aten_program(program, exceptions=set(settings["accepted-operators"])),
        ),
        "control-flow": Check(
            frozenset({"control-flow"}), lambda program, settings: graph_call_findings(program.graph_module)
        ),
        "edge-dialect": Check(
            frozenset({"edge-operators", "functional", "tensor-arguments", "no-views"}),
            lambda program, settings: [*check_edge_program(program), *check_dtypes(program)],
        ),
        "layouts": Check(frozenset({"dim-orders-agree"}), lambda program, settings: check_layouts(program)),
        "written-back": Check(
            frozenset({"mutations-written-back"}), lambda program, settings: check_written_back(program)
        ),
        "body-results": Check(
            frozenset({"body-results-separate"}), lambda program, settings: check_separate_body_results(program)
        ),
        "outputs": Check(
            frozenset({"outputs-separate"}),
            lambda program, settings: check_separate_outputs(
                program,
                alloc_graph_input=settings["alloc-graph-input"],
                alloc_graph_output=settings["alloc-graph-output"],
            ),
        ),
        "specs": Check(frozenset({"specs"}), lambda program, settings: check_specs(program, bounded=False)),
        "bounds": Check(frozenset({"specs", "bounded-shapes"}), lambda program, settings: check_specs(program)),
        "executorch-dialect": Check(
            frozenset({"out-variants"}),
            lambda program, settings: [
                *check_executorch_program(program, allow_missing_out=settings["ignore-missing-out-variants"]),
                *check_out_arguments(program),
            ],
        ),
        "out-variants": Check(
            frozenset({"out-variants-known"}),
            lambda program, settings: missing_out_variants(
                program, OutVariantTable().with_overrides(settings["out-variant-overrides"])
            ),
        ),
    }
)


class Setting(NamedTuple):
    """A named value.

    Attributes:
        default: Value unless a caller says otherwise; its type is the type of the setting.
        doc: What it says.
    """

    default: Any
    doc: str


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "check-ir-validity": Setting(True, "`EdgeCompileConfig._check_ir_validity`"),
        "skip-dim-order": Setting(False, "`EdgeCompileConfig._skip_dim_order`"),
        "preserved-operators": Setting((), "`EdgeCompileConfig.preserve_ops`"),
        "accepted-operators": Setting((), "`EdgeCompileConfig._core_aten_ops_exception_list` and `preserve_ops`"),
        "target": Setting(None, "`ExecutorchBackendConfig.target`, for rules that choose by cost"),
        "scratch-room": Setting(
            None, "bytes that such a rule may use at a node, from `ExecutorchBackendConfig.arena_limit`"
        ),
        "tile-limit": Setting(
            None, "bytes that values may take at once, from `arena_limit`, where the program as it is needs more"
        ),
        "results-over-arguments": Setting(False, "`MemoryPlanningPass.in_place`"),
        "known-estimates": Setting(
            None, "what such rules were found to gain where the same program was rewritten before"
        ),
        "adds-calls": Setting(
            True,
            "such rules may make more calls than they replace; not if `ExecutorchBackendConfig.optimize_for` is `size`",
        ),
        "search": Setting(0, "how many rewrites are tried for sequences, from `ExecutorchBackendConfig.search`"),
        "searches": Setting(False, "`ExecutorchBackendConfig.search` is not 0"),
        "keep-layouts": Setting(False, "rewrites that would give a result another dim order are left out"),
        "remove-view-copy": Setting(True, "`ExecutorchBackendConfig.remove_view_copy`"),
        "ignore-missing-out-variants": Setting(False, "`ToOutVarPass.ignore_to_out_var_failure`"),
        "out-variant-overrides": Setting(MappingProxyType({}), "out variants by the names of operators"),
        "in-place": Setting(False, "`ExecutorchBackendConfig.run_reinplace_pass`, or the level"),
        "in-place-operators": Setting(MappingProxyType({}), "operators that write in place, by those they replace"),
        "result-over-argument": Setting((), "`ExecutorchBackendConfig.reinplace_extra_ops` without such an operator"),
        "states-in-place": Setting(False, "`ExecutorchBackendConfig.optimization_level` is not 0"),
        "in-place-least-nbytes": Setting(0, "smallest tensor, in bytes, that is written in place"),
        "alloc-graph-input": Setting(True, "`MemoryPlanningPass.alloc_graph_input`"),
        "alloc-graph-output": Setting(True, "`MemoryPlanningPass.alloc_graph_output`"),
        "allow-unbounded": Setting(False, "`ExecutorchBackendConfig.dynamic_memory_planning_mode` is `SYMBOLIC`"),
    }
)


def edge_settings(config: EdgeCompileConfig) -> dict[str, Any]:
    """Return what the choices of `to_edge` say."""
    preserved = tuple(config.preserve_ops)
    return {
        "check-ir-validity": config._check_ir_validity,
        "skip-dim-order": config._skip_dim_order,
        "preserved-operators": preserved,
        "accepted-operators": (*config._core_aten_ops_exception_list, *preserved),
    }


def executorch_settings(config: ExecutorchBackendConfig, planner: MemoryPlanningPass) -> dict[str, Any]:
    """Return what the choices of `to_executorch` say.

    Args:
        config: Choices of the caller.
        planner: Says whether inputs and outputs will be planned.
    """
    return {
        "remove-view-copy": config.remove_view_copy and planner.share_views,
        "ignore-missing-out-variants": config.to_out_var_pass.ignore_to_out_var_failure,
        "alloc-graph-input": planner.alloc_graph_input,
        "alloc-graph-output": planner.alloc_graph_output,
        "results-over-arguments": planner.in_place,
        "allow-unbounded": config.dynamic_memory_planning_mode is DynamicMemoryPlanningMode.SYMBOLIC,
    }


RuleId = Annotated[str, Field(min_length=1, max_length=200)]
KebabName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=80)]
DialectName = Literal["aten", "edge", "executorch"]
Names = tuple[KebabName, ...]

LARGEST_BOUND = 1_000
DEFAULT_BOUND = 10
_KINDS = ("pass", "rules", "check", "repeat", "group")
_BELONGS = {
    "options": ("pass",),
    "limit": ("rules",),
    "weighed": ("rules",),
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
        weighed: More books, whose rules are applied only where they gain by the description of the target.
        limit: Most applications of rules.
        only: `exact`: leave out rules whose contract allows results to differ; or the ids of the rules to take.
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
    weighed: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    limit: int | None = Field(default=None, ge=0)
    only: Literal["exact"] | Annotated[tuple[RuleId, ...], Field(min_length=1)] | None = None
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
        listed = ("rules", "weighed", "requires", "ensures", "invalidates", "after", "before")
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
