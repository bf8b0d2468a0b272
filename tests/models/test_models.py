"""Every model of the zoo through the chain: one test a model, which exports and lowers it once, with named checks.

The traced program agrees with eager. No verifier finds anything, in any dialect and after any pass. Files of all levels
and plans answer like eager on the reference runtime, with its memory sanitizer, and on the official runtime. `-O1`
needs no more memory than `-O0`. No instruction needs bytes of two values at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from tests.models.agreement import assert_agree
from tests.models.case import DEEP, EXACT, Built, ModelCase, Value
from tests.models.control_flow import forms, sized_by_data
from tests.models.control_flow.programs import MODELS
from tests.models.zoo import CASES
from tests.official.oracle import OfficialRuntime
from tests.thoroughness import some_of
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from exirkit import (
    Diagnostic,
    EdgeProgramManager,
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    Pipeline,
    check_program,
    to_edge,
)
from exirkit.passes import MemoryPlanningPass, naive, shipped_text
from exirkit.runtime_ref import Runtime
from exirkit.verifiers import EXIREdgeDialectVerifier, check_memory_plan
from exirkit.verifiers.program_check import DialectName
from exirkit.visualization import MappedValue, memory_map_of_manager

Answers = dict[str, list[list[Value]]]

for _models in (sized_by_data, forms):
    assert _models.model, "imported for the models that they register"

ALL = [*CASES.values(), *(ModelCase(name, build, EXACT, frozenset({"control"})) for name, build in MODELS.items())]

PLANS: dict[str, Callable[[], dict[str, Any]]] = {
    "O0": lambda: {"optimization_level": 0},
    "O1": lambda: {"optimization_level": 1},
    "O2": lambda: {"optimization_level": 2},
    "O2 for size": lambda: {"optimization_level": 2, "optimize_for": "size"},
    "naive": lambda: {"memory_planning_pass": MemoryPlanningPass(naive)},
    "aligned to 8": lambda: {"memory_planning_pass": MemoryPlanningPass(alignment=8)},
    "caller's inputs": lambda: {"memory_planning_pass": MemoryPlanningPass(alloc_graph_input=False)},
    "caller's outputs": lambda: {"memory_planning_pass": MemoryPlanningPass(alloc_graph_output=False)},
    "views copied": lambda: {"remove_view_copy": False},
    "in place": lambda: {"memory_planning_pass": MemoryPlanningPass(in_place=True)},
    "scheduled": lambda: {"memory_planning_pass": MemoryPlanningPass(schedule=True)},
}
ALWAYS = ("O0", "O1", "O2")


class ModelUnderTest:
    """One model with what is made of it, and the checks."""

    def __init__(self, case: ModelCase, request: pytest.FixtureRequest, subtests: pytest.Subtests) -> None:
        self.case = case
        self.request = request
        self.subtests = subtests
        self.built: Built = case.make()
        self.expected: Answers = {name: method.expected() for name, method in self.built.methods.items()}

    def check(self) -> None:
        """Run all checks; each that fails is reported by its name."""
        exported = self.built.export()
        with self.subtests.test("answers are large enough to compare"):
            self.answers_are_large()
        self.no_findings("exported", exported)
        edge = to_edge(exported, pipeline=verifying("to_edge"))
        self.no_findings("edge", {name: edge.exported_program(name) for name in edge.methods})
        made = self.lowered(edge)
        for plan, manager in made.items():
            with self.subtests.test(f"reference runtime, {plan}"):
                self.on_reference_runtime(plan, manager)
        for plan in ALWAYS:
            with self.subtests.test(f"official runtime, {plan}"):
                self.on_official_runtime(made[plan])
        with self.subtests.test("O1 needs no more memory than O0"):
            before, after = (arena_sizes(made[plan]) for plan in ("O0", "O1"))
            assert all(one <= other for one, other in zip(after, before, strict=True))
        if "control" in self.case.tags:
            for plan in {"O0", "scheduled"} & set(made):
                with self.subtests.test(f"bytes have one owner, {plan}"):
                    bytes_have_one_owner(made[plan])
        # Last, since what runs writes to the buffers of the exported program.
        self.compare("traced program", self.traced(exported), max(self.case.tolerance, DEEP, key=lambda one: one.atol))

    def compare(self, name: str, got: Answers, tolerance: Any) -> None:
        with self.subtests.test(name):
            for method, answers in got.items():
                assert_agree(answers, self.expected[method], tolerance)

    def traced(self, exported: Mapping[str, ExportedProgram]) -> Answers:
        got: Answers = {}
        for name, method in self.built.methods.items():
            module = exported[name].module()
            got[name] = []
            for call in method.calls:
                private = call.cloned()
                with torch.no_grad():
                    leaves = pytree.tree_leaves(module(*private.args, **private.kwargs))
                got[name].append([leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])
        return got

    def answers_are_large(self) -> None:
        """An answer that is smaller than its tolerance compares nothing, and is what untrained networks give."""
        for answers in self.expected.values():
            values = [one for one in pytree.tree_leaves(answers) if isinstance(one, torch.Tensor) and one.numel()]
            values = [one for one in values if one.is_floating_point()]
            assert all(largest(one) >= 25 * self.case.tolerance.atol or not one.any() for one in values)
            assert not values or any(one.any() for one in values)

    def no_findings(self, dialect: DialectName, programs: Mapping[str, ExportedProgram]) -> None:
        with self.subtests.test(f"no findings, {dialect}"):
            found: list[Diagnostic] = []
            for program in programs.values():
                found += check_program(program, dialect, debug_handles=dialect == "edge")
                if dialect == "edge":
                    EXIREdgeDialectVerifier()(program)
                if dialect == "executorch":
                    found += check_memory_plan(program.graph_module, program.graph_signature)
            assert [each.render() for each in found] == []

    def lowered(self, edge: EdgeProgramManager) -> dict[str, ExecutorchProgramManager]:
        number = [one.name for one in ALL].index(self.case.name)
        made = {}
        for plan in some_of(list(PLANS), ALWAYS, number, 1):
            pipeline = verifying("to_executorch") if plan == "O0" else None
            made[plan] = edge.to_executorch(ExecutorchBackendConfig(**PLANS[plan]()), pipeline=pipeline)
            if plan in ("O0", "O2"):
                programs = {name: made[plan].exported_program(name) for name in made[plan].methods}
                self.no_findings("executorch", programs)
        return made

    def on_reference_runtime(self, plan: str, manager: ExecutorchProgramManager) -> None:
        ways: list[dict[str, Any]] = [
            {"sanitize": True, "in_place": plan == "in place"},
            {"sanitize": True, "in_place": plan == "in place", "views": manager.view_bases},
        ]
        for way in [{}, *ways] if plan == "O1" else ways:
            program = Runtime.get().load_program(manager.buffer, **way)
            for name, method in self.built.methods.items():
                loaded = program.load_method(name)
                got = [list(loaded.execute(call.cloned().leaves())) for call in method.calls]
                assert_agree(got, self.expected[name], self.case.tolerance)

    def on_official_runtime(self, manager: ExecutorchProgramManager) -> None:
        runtime: OfficialRuntime = self.request.getfixturevalue("official_runtime")
        for name, method in self.built.methods.items():
            calls = [call.leaves() for call in method.calls]
            got = runtime.run(manager.buffer, calls, method=name).unwrap()
            assert_agree(got, self.expected[name], self.case.tolerance)


def verifying(step: str) -> Pipeline:
    """Return the pipeline of a step with checks after every stage."""
    return Pipeline.parse(shipped_text(step).replace("verify: none", "verify: each"))


def largest(value: torch.Tensor) -> float:
    """Return the largest finite magnitude in a tensor."""
    magnitudes = value.double().abs()
    return magnitudes[magnitudes.isfinite()].max().item() if magnitudes.isfinite().any() else 0.0


def arena_sizes(manager: ExecutorchProgramManager) -> list[int]:
    return [sum(plan.non_const_buffer_sizes) for plan in manager.executorch_program.execution_plan]


def bytes_have_one_owner(manager: ExecutorchProgramManager) -> None:
    (method,) = memory_map_of_manager(manager).methods
    for index, one in enumerate(method.values):
        for other in method.values[index + 1 :]:
            if one.offset < other.offset + other.nbytes and other.offset < one.offset + one.nbytes:
                assert not steps_of(one) & steps_of(other), (one, other)


def steps_of(value: MappedValue) -> set[int]:
    return {step for first, last in value.spans for step in range(first, last + 1)}


@pytest.mark.executorch
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_model(case: ModelCase, request: pytest.FixtureRequest, subtests: pytest.Subtests) -> None:
    ModelUnderTest(case, request, subtests).check()
