"""The passes of exirkit as pipelines know them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo
from torch._ops import OpOverload

from exirkit.ir import ops, underlying
from exirkit.passes.legalize.dim_order import LegalizeDimOrder
from exirkit.passes.legalize.dtype_policy import DtypePolicy, read_dtype_policy
from exirkit.passes.legalize.dtypes import LegalizeDtypes
from exirkit.passes.legalize.integers import LegalizeIntegers
from exirkit.passes.legalize.library_operators import DecomposeLibraryOperators
from exirkit.passes.legalize.padding import LegalizePadding
from exirkit.passes.legalize.sorts import LegalizeSorts
from exirkit.passes.legalize.splits import LegalizeSplits
from exirkit.passes.legalize.volumes import LegalizeVolumes
from exirkit.passes.optimize.eliminate_dead_code import EliminateDeadCode
from exirkit.passes.optimize.fold_constants import FoldConstants
from exirkit.passes.optimize.merge_equal_nodes import MergeEqualNodes
from exirkit.passes.optimize.remove_unused_inputs import RemoveUnusedInputs
from exirkit.passes.to_aten.decompose_counting import DecomposeCounting
from exirkit.passes.to_aten.decompose_to_core import DecomposeToCore
from exirkit.passes.to_aten.decompose_whole_graph import DecomposeWholeGraph
from exirkit.passes.to_aten.functionalize import Functionalize
from exirkit.passes.to_aten.generate_debug_handles import GenerateDebugHandles
from exirkit.passes.to_aten.inline_grad_regions import InlineGradRegions
from exirkit.passes.to_edge.convert_to_edge_operators import ConvertToEdgeOperators
from exirkit.passes.to_edge.lift_constants import LiftConstants
from exirkit.passes.to_edge.promote_types import PromoteTypes
from exirkit.passes.to_edge.remove_metadata_asserts import RemoveMetadataAsserts
from exirkit.passes.to_edge.remove_noops import RemoveNoops
from exirkit.passes.to_edge.replace_views_with_copies import ReplaceViewsWithCopies
from exirkit.passes.to_edge.scalars_to_tensors import ScalarsToTensors, SymbolsToTensors
from exirkit.passes.to_edge.use_dim_order_operators import UseDimOrderOperators
from exirkit.passes.to_executorch.bound_symbolic_shapes import BoundSymbolicShapes
from exirkit.passes.to_executorch.convert_to_out_variants import ConvertToOutVariants
from exirkit.passes.to_executorch.eliminate_views import EliminateViews
from exirkit.passes.to_executorch.free_unbounded import FreeUnbounded
from exirkit.passes.to_executorch.lower_symbolic_arithmetic import LowerSymbolicArithmetic
from exirkit.passes.to_executorch.out_variants import shipped_out_variants
from exirkit.passes.to_executorch.propagate_specs import PropagateSpecs
from exirkit.passes.to_executorch.remove_asserts import RemoveAsserts
from exirkit.passes.to_executorch.separate_outputs import SeparateOutputs
from exirkit.passes.to_executorch.separate_subgraph_results import SeparateBodyResults
from exirkit.passes.to_executorch.write_back_mutations import WriteBackMutations
from exirkit.passes.user_passes.running import CompleteMetadata

from .invariants import BROKEN_BY_EDITS
from .registry import PassOptions, RegisteredPass, registered

_LAYOUT = ("dim-orders-agree", "specs", "bounded-shapes")


def _overload(given: Any) -> Any:
    """Turn the name of an overload, `aten.silu.default`, into the overload."""
    if not isinstance(given, str):
        return given
    found: Any = ops.edge
    parts = given.split(".")
    if len(parts) != 3 or not all(part.isidentifier() for part in parts):
        raise ValueError(f"{given!r} is no overload; write library.name.overload")
    for part in parts:
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ValueError(f"there is no operator {given}") from None
    return underlying(found)


Overload = Annotated[OpOverload, BeforeValidator(_overload)]


class Preserving(PassOptions):
    """Options of decompositions.

    Attributes:
        preserve: Operators that stay whole.
    """

    preserve: tuple[Overload, ...] = ()


class SkipDimOrder(PassOptions):
    """Options of passes that make layouts agree.

    Attributes:
        skip_dim_order: Introduce no operators of `dim_order_ops`.
    """

    skip_dim_order: bool = False


class Bounds(PassOptions):
    """Options of `bound-symbolic-shapes`.

    Attributes:
        allow_unbounded: Sizes without a bound are left to the runtime.
    """

    allow_unbounded: bool = False


class Outputs(SkipDimOrder):
    """Options of `separate-outputs`.

    Attributes:
        alloc_graph_input: Inputs will be planned.
        alloc_graph_output: Outputs will be planned.
    """

    alloc_graph_input: bool = True
    alloc_graph_output: bool = True


class Views(PassOptions):
    """Options of `eliminate-views`.

    Attributes:
        alloc_graph_output: Outputs will be planned.
    """

    alloc_graph_output: bool = True


class LibraryOperators(PassOptions):
    """Options of `decompose-library-operators`.

    Attributes:
        overrides: Names of overloads that write their results, by names of operators.
    """

    overrides: Mapping[str, str] = {}


class OutVariants(LibraryOperators):
    """Options of `convert-to-out-variants`.

    Attributes:
        ignore_missing: Keep an operator that has no out variant as it is.
    """

    ignore_missing: bool = False


def _policy(given: Any, info: ValidationInfo) -> Any:
    """Read the file that a text names, beside the pipeline."""
    if not isinstance(given, str):
        return given
    try:
        return read_dtype_policy(Path((info.context or {}).get("folder", ".")) / given)
    except OSError as error:
        raise ValueError(f"{given} cannot be read: {(error.strerror or str(error)).lower()}") from None


class Dtypes(PassOptions):
    """Options of `legalize-dtypes`.

    Attributes:
        policy: File that says which operators take which dtypes.
    """

    policy: Annotated[DtypePolicy, BeforeValidator(_policy)]


class Folding(PassOptions):
    """Options of `fold-constants`; see `FoldConstants`.

    Attributes:
        byte_budget: Bytes by which stored tensors may grow; without a bound when absent.
        fold_quantization: Also fold what makes quantised weights wide.
        creation_nbytes: Largest tensor made from nothing that is stored, in bytes.
    """

    byte_budget: int | None = 0
    fold_quantization: bool = False
    creation_nbytes: int = 0


def _out_variants(given: OutVariants) -> ConvertToOutVariants:
    table = shipped_out_variants().with_overrides(given.overrides)
    return ConvertToOutVariants(table=table, ignore_to_out_var_failure=given.ignore_missing)


@cache
def builtin_passes() -> Mapping[str, RegisteredPass]:
    """Return the passes of exirkit by name."""
    return {one.name: one for one in (*_to_aten(), *_to_edge(), *_optimizing(), *_to_executorch())}


def _to_aten() -> tuple[RegisteredPass, ...]:
    return (
        registered(GenerateDebugHandles, ensures=("debug-handles",)),
        registered(InlineGradRegions, ensures=("no-grad-regions",), invalidates=("debug-handles",)),
        registered(
            DecomposeCounting,
            build=lambda given: DecomposeCounting(frozenset(given.preserve)),
            options=Preserving,
            invalidates=("core-operators",),
        ),
        registered(
            DecomposeToCore,
            build=lambda given: DecomposeToCore(frozenset(given.preserve)),
            options=Preserving,
            ensures=("core-operators",),
            after=("inline-grad-regions",),
        ),
        registered(
            Functionalize, requires=("core-operators",), ensures=("functional",), invalidates=("core-operators",)
        ),
        RegisteredPass(
            DecomposeWholeGraph.name,
            lambda given: DecomposeWholeGraph(given.preserve),
            Preserving,
            ensures=frozenset({"core-operators", "functional"}),
        ),
        registered(EliminateDeadCode),
        registered(CompleteMetadata),
    )


def _to_edge() -> tuple[RegisteredPass, ...]:
    return (
        registered(LiftConstants, ensures=("constants-lifted",)),
        registered(RemoveMetadataAsserts),
        registered(
            ReplaceViewsWithCopies,
            requires=("functional",),
            ensures=("no-views",),
            before=("use-dim-order-operators", "convert-to-edge-operators"),
        ),
        registered(ScalarsToTensors, requires=("constants-lifted",), ensures=("numbers-lifted",)),
        registered(SymbolsToTensors, requires=("numbers-lifted",), ensures=("tensor-arguments",)),
        registered(PromoteTypes, requires=("tensor-arguments",), before=("convert-to-edge-operators",)),
        registered(
            RemoveNoops,
            requires=("no-views",),
            after=("promote-types",),
            before=("use-dim-order-operators", "convert-to-edge-operators"),
        ),
        registered(UseDimOrderOperators, requires=("no-views",), before=("convert-to-edge-operators",)),
        registered(
            ConvertToEdgeOperators,
            requires=("functional", "control-flow", "no-views", "tensor-arguments", "constants-lifted"),
            ensures=("edge-operators",),
            invalidates=("core-operators",),
        ),
        registered(RemoveUnusedInputs, after=("eliminate-dead-code",)),
    )


def _optimizing() -> tuple[RegisteredPass, ...]:
    return (
        registered(FoldConstants, options=Folding, invalidates=BROKEN_BY_EDITS),
        registered(MergeEqualNodes, invalidates=BROKEN_BY_EDITS),
        registered(
            LegalizeDtypes,
            build=lambda given: LegalizeDtypes(given.policy),
            options=Dtypes,
            invalidates=BROKEN_BY_EDITS,
        ),
        registered(LegalizeSorts, options=SkipDimOrder, requires=("edge-operators",), invalidates=BROKEN_BY_EDITS),
        registered(LegalizeIntegers, requires=("edge-operators",), invalidates=BROKEN_BY_EDITS),
        registered(LegalizeSplits, requires=("edge-operators",), invalidates=BROKEN_BY_EDITS),
        registered(LegalizeVolumes, requires=("edge-operators",), invalidates=BROKEN_BY_EDITS),
        registered(
            DecomposeLibraryOperators,
            build=lambda given: DecomposeLibraryOperators(shipped_out_variants().with_overrides(given.overrides)),
            options=LibraryOperators,
            requires=("edge-operators",),
            invalidates=("edge-operators", "tensor-arguments", "no-views", "constants-lifted", *BROKEN_BY_EDITS),
        ),
    )


def _to_executorch() -> tuple[RegisteredPass, ...]:
    return (
        registered(LegalizePadding, requires=("edge-operators",), invalidates=BROKEN_BY_EDITS),
        registered(
            WriteBackMutations,
            options=SkipDimOrder,
            requires=("edge-operators", "functional"),
            ensures=("mutations-written-back",),
            invalidates=("edge-operators", "functional", *_LAYOUT),
        ),
        registered(
            SeparateOutputs,
            options=Outputs,
            requires=("mutations-written-back",),
            ensures=("outputs-separate",),
            invalidates=_LAYOUT,
        ),
        registered(
            SeparateBodyResults,
            options=SkipDimOrder,
            requires=("mutations-written-back",),
            ensures=("body-results-separate",),
            invalidates=_LAYOUT,
        ),
        registered(
            LegalizeDimOrder,
            options=SkipDimOrder,
            ensures=("dim-orders-agree",),
            invalidates=("specs", "bounded-shapes"),
        ),
        registered(RemoveAsserts, ensures=("no-assertions",)),
        registered(
            LowerSymbolicArithmetic,
            ensures=("symbols-lowered",),
            invalidates=("edge-operators", "specs", "bounded-shapes"),
            after=("remove-asserts",),
        ),
        registered(
            PropagateSpecs,
            requires=(
                "dim-orders-agree",
                "symbols-lowered",
                "outputs-separate",
                "body-results-separate",
                "no-assertions",
            ),
            ensures=("specs",),
            invalidates=("bounded-shapes",),
        ),
        registered(BoundSymbolicShapes, options=Bounds, requires=("specs",), ensures=("bounded-shapes",)),
        registered(FreeUnbounded, requires=("bounded-shapes",), after=("convert-to-out-variants",)),
        registered(EliminateViews, options=Views, requires=("specs", "bounded-shapes", "outputs-separate")),
        registered(
            ConvertToOutVariants,
            build=_out_variants,
            options=OutVariants,
            requires=("specs", "bounded-shapes"),
            ensures=("out-variants",),
            invalidates=("edge-operators", "out-variants-known"),
        ),
    )
