"""Types of options that several passes have, with how they are written in YAML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from exirkit.ir import OpOverload, ops, underlying
from exirkit.passes.memory.planning_pass import MemoryPlanningPass
from exirkit.patterns import Target


def _overload(given: Any) -> Any:
    """Turn the name of an overload, `aten.silu.default`, into the overload."""
    if not isinstance(given, str):
        return given
    found: Any = ops.edge
    parts = given.split(".")
    if len(parts) != 3 or not all(part.isidentifier() for part in parts):
        raise ValueError(f"{given!r} is not an overload; write library.name.overload")
    for part in parts:
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ValueError(f"there is no operator {given}") from None
    return underlying(found)


Overload = Annotated[OpOverload, BeforeValidator(_overload)]


class DynamicMemoryPlanningMode(Enum):
    """How tensors of dynamic shape get memory.

    Attributes:
        UPPER_BOUND: Each has a place for its largest size; a size without a bound is an error.
        SYMBOLIC: So has each whose size has a bound. The others get memory while the program runs and give it back
            behind their last use, which runtimes can do that allocate; the official one does not.
    """

    UPPER_BOUND = 0
    SYMBOLIC = 1


@dataclass
class EdgeCompileConfig:
    """Choices of `to_edge`.

    Attributes:
        _check_ir_validity: Check the program after decomposition, after lowering, and after each `transform`.
        _skip_dim_order: Keep memory formats; do not introduce `dim_order_ops`.
        _core_aten_ops_exception_list: Overloads accepted although they are not core ATen.
        preserve_ops: Overloads that are not decomposed, and not removed where they change nothing, such as copies that
            a pass of yours looks for.
    """

    _check_ir_validity: bool = True
    _skip_dim_order: bool = False
    _core_aten_ops_exception_list: list[OpOverload] = field(default_factory=list)
    preserve_ops: list[OpOverload] = field(default_factory=list)


@dataclass
class ToOutVarPass:
    """Options of the conversion to out variants.

    Attributes:
        ignore_to_out_var_failure: Keep an operator without out variant as it is instead of rejecting the program.
    """

    ignore_to_out_var_failure: bool = False


@dataclass
class ConstraintBasedSymShapeEvalPass:
    """Stands for bounding sizes by their ranges, which is what exirkit always does."""


@dataclass
class ExecutorchBackendConfig:
    """Choices of `to_executorch`.

    Attributes:
        passes: Passes to run first, on the Edge program of each method.
        memory_planning_pass: Planner, or one for each method name.
        to_out_var_pass: Options of the conversion to out variants.
        dynamic_memory_planning_mode: Memory of dynamic tensors: a place for their largest size, or, of those that have
            none, memory that the runtime finds and frees.
        emit_stacktrace: Store the source lines of instructions in the program.
        extract_delegate_segments: Store delegate payloads in segments behind the program.
        segment_alignment: Alignment of segments in the file, in bytes.
        constant_tensor_alignment: Alignment of constants in their segment, in bytes; 16 when absent.
        delegate_alignment: Alignment of delegate payloads, in bytes; 16 when absent.
        sym_shape_eval_pass: Sizes are always bounded by their ranges.
        remove_view_copy: Let reshaping copies share the memory of their source.
        external_constants: Store constants in data files beside the program: all of them (but not lifted ones) in one
            file, or each in the file whose name a function returns for its placeholder (None: in the program). Their
            keys are their names in the model, and nothing is computed from their values, so that another file with
            other values can take the place of the one written.
        external_mutable_weights: Store parameters that have a gradient output in a data file.
        fold_external_constants: Let optimization compute with the values of external constants. The program is faster
            and smaller, and only the data file that is written with it fits: keys are then those of what was computed.
        emit_mutable_buffer_names: Store the names of mutable buffers in the program.
        do_quant_fusion_and_const_prop: Move, join, add and look up quantized values as integers where the runtime has
            kernels for it, and compute what follows from constants, as the pipeline `quant_fusion` says.
        run_reinplace_pass: Let `index_put` write into its first argument where nothing needs the old value any more,
            whatever the level is; from level 1 on this is done anyway for tensors of some size.
        enable_non_cpu_memory_planning: Has no effect as long as there are no delegates.
        reinplace_extra_ops: More operators of Edge whose results take the place of an argument: by an operator that
            writes in place, where the target has a kernel for it, or by a kernel that may overwrite what it reads.
        optimization_level: 0: lower the program as it is; 1: without any change of results; 2: within the tolerances
            that rules declare, for the target.
        optimize_for: `speed`, or `size`: no larger arena than without optimization, and no rewrite for speed that makes
            more calls than it replaces.
        arena_limit: Most bytes that planned memory may take in a method; what gains time costs memory only up to here,
            and from level 1 on parts of the program are computed in bands where it needs more. None: at level 2, for
            speed, at most twice what level 1 takes.
        search: At level 2, how many rewrites may be tried in each method to find sequences of them that gain more than
            the best one at each node; 0: none.
        target: Description of the target, or the name of a shipped one or of a file. Calls that its kernels do not
            take are an error; `any`, or None, is a target of which nothing is known, for runtimes with other kernels.
    """

    passes: Sequence[Any] = field(default_factory=list)
    memory_planning_pass: MemoryPlanningPass | dict[str, MemoryPlanningPass] = field(default_factory=MemoryPlanningPass)
    to_out_var_pass: ToOutVarPass = field(default_factory=ToOutVarPass)
    dynamic_memory_planning_mode: DynamicMemoryPlanningMode = DynamicMemoryPlanningMode.UPPER_BOUND
    emit_stacktrace: bool = False
    extract_delegate_segments: bool = True
    segment_alignment: int = 128
    constant_tensor_alignment: int | None = None
    delegate_alignment: int | None = None
    sym_shape_eval_pass: Any = field(default_factory=ConstraintBasedSymShapeEvalPass)
    remove_view_copy: bool = True
    external_constants: bool | Callable[[Any], str | None] = False
    external_mutable_weights: bool = False
    fold_external_constants: bool = False
    emit_mutable_buffer_names: bool = False
    do_quant_fusion_and_const_prop: bool = False
    run_reinplace_pass: bool = False
    enable_non_cpu_memory_planning: bool = True
    reinplace_extra_ops: Any = None
    optimization_level: int = 1
    optimize_for: Literal["speed", "size"] = "speed"
    arena_limit: int | None = None
    search: int = 0
    target: Target | str | Path | None = "official_host"
