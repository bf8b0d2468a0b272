"""Invariants by name, which dialects imply which, and the checks that find out whether they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch.export import ExportedProgram

from exirkit.ir import Diagnostic
from exirkit.passes.analysis.graph_calls import graph_call_findings
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
