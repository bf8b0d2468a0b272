"""Graphs whose memory cannot be planned, and planners that break their word."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from tests.diagnostics.programs import exported
from tests.diagnostics.provocation import provokes
from tests.passes.memory.conftest import GraphBuilder
from torch.fx import GraphModule

from exirkit import MemoryPlanningAlgorithmSuite, MemoryPlanningPass, TensorSpec, exact, greedy
from exirkit.ir import TensorShapeDynamism


def two_operators(builder: GraphBuilder | None = None) -> tuple[GraphModule, Any, list[TensorSpec]]:
    """Return a graph of two operators, its signature, and the specs of their results."""
    builder = builder or GraphBuilder()
    first = builder.op(builder.input("x", [16]), [16])
    second = builder.op(first, [16])
    module, signature = builder.finish(second)
    return module, signature, [first.meta["spec"], second.meta["spec"]]


@provokes("EK451")
def shape_that_is_symbolic(_: Path) -> None:
    program = exported(lambda x: x + 1, torch.ones(3), dynamic_shapes=({0: torch.export.Dim("n", max=8)},))
    module, signature, (spec, _second) = two_operators()
    x = next(node for node in program.graph.nodes if node.name == "inputs_0" or node.op == "placeholder")
    spec.shape = [x.meta["val"].shape[0]]
    spec.shape_dynamism = TensorShapeDynamism.DYNAMIC_BOUND
    MemoryPlanningPass().run(module, signature)


@provokes("EK452")
def shape_without_bound(_: Path) -> None:
    module, signature, (spec, _second) = two_operators()
    spec.shape_dynamism = TensorShapeDynamism.DYNAMIC_UNBOUND
    MemoryPlanningPass().run(module, signature)


@provokes("EK453")
def arena_zero(_: Path) -> None:
    module, signature, (spec, _second) = two_operators()
    spec.mem_id = 0
    MemoryPlanningPass().run(module, signature)


@provokes("EK454")
def returned_view_that_the_caller_places(_: Path) -> None:
    builder = GraphBuilder()
    view = builder.view(builder.op(builder.input("x", [16]), [16]), [4, 4])
    module, signature = builder.finish(view)
    MemoryPlanningPass(alloc_graph_output=False).run(module, signature)


def lazy_planner(*_: Any, **__: Any) -> list[int]:
    return [0, 64]


@provokes("EK455")
def planner_that_leaves_tensors_out(_: Path) -> None:
    module, signature, _specs = two_operators()
    MemoryPlanningPass(lazy_planner).run(module, signature)


@provokes("EK456")
def view_without_spec(_: Path) -> None:
    builder = GraphBuilder()
    view = builder.view(builder.op(builder.input("x", [16]), [16]), [4, 4])
    module, signature = builder.finish(builder.op(view, [16]))
    del view.meta["spec"]
    MemoryPlanningPass().run(module, signature)


@provokes("EK457")
def shared_mutable_buffers(_: Path) -> None:
    MemoryPlanningPass(share_mutable_buffers=True, alloc_mutable_buffers=False)


@provokes("EK458")
def views_in_a_cycle(_: Path) -> None:
    builder = GraphBuilder()
    first = builder.view(builder.op(builder.input("x", [16]), [16]), [4, 4])
    second = builder.view(first, [16])
    first.meta["spec"].storage_base = second.meta["spec"]
    module, signature = builder.finish(builder.op(second, [16]))
    MemoryPlanningPass().run(module, signature)


@provokes("EK459")
def alignment_of_zero(_: Path) -> None:
    MemoryPlanningPass(alignment=0)


@provokes("EK460")
def pin_inside_of_a_branch(_: Path) -> None:
    builder = GraphBuilder()
    branch = builder.branch(16, 16)
    next(node for node in branch.graph.nodes if "alloc" in str(node.target)).meta["spec"].mem_offset = 0
    branches = [builder.submodule("yes", branch), builder.submodule("no", builder.branch(16, 16))]
    result = builder.cond(builder.input("pred", [1]), branches, [builder.input("x", [4])], [16])
    module, signature = builder.finish(result)
    MemoryPlanningPass().run(module, signature)


@provokes("EK461")
def suite_of_nothing(_: Path) -> None:
    MemoryPlanningAlgorithmSuite([])


@provokes("EK462")
def view_of_nothing(_: Path) -> None:
    builder = GraphBuilder()
    view = builder.view(builder.op(builder.input("x", [16]), [16]), [4, 4])
    view.meta["spec"].storage_base = TensorSpec(torch.uint8, [16])
    module, signature = builder.finish(builder.op(view, [16]))
    MemoryPlanningPass().run(module, signature)


@provokes("EK463")
def algorithm_without_lifetimes(_: Path) -> None:
    module, signature, specs = two_operators()
    greedy(16, specs, module, signature)


@provokes("EK464")
def branch_of_two_callers(_: Path) -> None:
    inner, outer = GraphBuilder(), GraphBuilder()
    shared = outer.branch(16, 16)
    nested = [inner.submodule("yes", shared), inner.submodule("no", shared)]
    middle, _signature = inner.finish(inner.cond(inner.input("pred", [1]), nested, [inner.input("x", [4])], [16]))
    branches = [outer.submodule("yes", middle), outer.submodule("no", shared)]
    result = outer.cond(outer.input("pred", [1]), branches, [outer.input("x", [4])], [16])
    module, signature = outer.finish(result)
    MemoryPlanningPass().run(module, signature)


@provokes("EK465")
def exact_planner_without_solver(_: Path) -> None:
    module, signature, (first, second) = two_operators()
    first.lifetime, first.mem_offset = [0, 1], 16
    # No smallest plan is as small as what is live: the gap below the pinned tensor is too small for the other one.
    second.shape, second.lifetime = [64], [0, 1]
    with mock.patch.dict(sys.modules, {"ortools.sat.python.cp_model": None}):
        exact(16, [first, second], module, signature)


@provokes("EK466")
def arena_that_is_too_small(_: Path) -> None:
    module, signature, _specs = two_operators()
    MemoryPlanningPass(arena_limits={1: 16}).run(module, signature)


@provokes("EK467")
def limit_of_arena_zero(_: Path) -> None:
    MemoryPlanningPass(arena_limits={0: 4096})
