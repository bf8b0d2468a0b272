"""Settings: what the configuration of a lowering tells its pipelines, under names that files can use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from exirkit.passes.config.lowering_config import DynamicMemoryPlanningMode, EdgeCompileConfig, ExecutorchBackendConfig
from exirkit.passes.memory import MemoryPlanningPass


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
        "remove-view-copy": Setting(True, "`ExecutorchBackendConfig.remove_view_copy`"),
        "ignore-missing-out-variants": Setting(False, "`ToOutVarPass.ignore_to_out_var_failure`"),
        "out-variant-overrides": Setting(MappingProxyType({}), "out variants by the names of operators"),
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
        "allow-unbounded": config.dynamic_memory_planning_mode is DynamicMemoryPlanningMode.SYMBOLIC,
    }
