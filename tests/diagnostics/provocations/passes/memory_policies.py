"""Memory policies that cannot be followed."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.diagnostics.provocation import provokes
from tests.diagnostics.provocations.passes.memory import two_operators
from torch.export import ExportGraphSignature
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult

from exirkit import ExecutorchBackendConfig, MemoryPlanningPass, to_edge
from exirkit.passes import load_memory_policy, parse_memory_policy


def board(scratch: Path, text: str) -> Path:
    path = scratch / "board.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def planned(text: str, **options: object) -> None:
    module, signature, _specs = two_operators()
    MemoryPlanningPass(policy=parse_memory_policy(text, "board.yaml"), **options).run(module, signature)  # type: ignore[arg-type]


@provokes("EK480")
def policy_with_a_tab(scratch: Path) -> None:
    load_memory_policy(board(scratch, "policy: 1\npools:\n\t- {name: sram}\n"))


@provokes("EK481")
def policy_with_a_limit_in_parsecs(scratch: Path) -> None:
    load_memory_policy(board(scratch, "policy: 1\npools:\n- {name: sram, limit: 12 parsecs}\n"))


@provokes("EK482")
def policy_with_a_pool_that_there_is_not(scratch: Path) -> None:
    load_memory_policy(board(scratch, "policy: 1\npools:\n- {name: sram}\nrules:\n- {dtype: f32, pool: srm}\n"))


@provokes("EK484")
def pool_that_is_too_small(_: Path) -> None:
    planned(
        "policy: 1\npools: [{name: sram, limit: 16}, {name: dram}]\n"
        "rules: [{name: made by neg, op: aten.neg.*, pool: sram, spill: false}]\ndefault: dram\n"
    )


@provokes("EK486")
def limits_of_pass_and_policy(_: Path) -> None:
    planned("policy: 1\npools: [{name: sram}]\n", arena_limits={1: 64})


@provokes("EK487")
def input_that_there_is_not(_: Path) -> None:
    planned("policy: 1\npools: [{name: sram}]\ninputs: {xx: provided}\n")


@provokes("EK223")
def condition_that_has_no_answer(_: Path) -> None:
    planned("policy: 1\npools: [{name: sram}]\nrules: [{where: 'shape(x)[3] > 4', pool: sram}]\n")


class _Counter(torch.nn.Module):
    count: torch.Tensor

    def __init__(self, writes: bool, size: int = 1) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(size))
        self.writes = writes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.writes:
            self.count.add_(1)
        return self.count + x


def _shared(**methods: torch.nn.Module) -> None:
    programs = {name: torch.export.export(module, (torch.ones(1),)) for name, module in methods.items()}
    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=True))
    to_edge(programs).to_executorch(config)


@provokes("EK488")
def reader_of_a_shared_buffer(_: Path) -> None:
    _shared(step=_Counter(writes=True), look=_Counter(writes=False))


@provokes("EK489")
def shared_buffers_of_two_sizes(_: Path) -> None:
    _shared(step=_Counter(writes=True), leap=_Counter(writes=True, size=2))


class _Once(MemoryPlanningPass):
    def run(self, graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None) -> PassResult:
        if "non_const_buffer_sizes" in graph_module.meta:
            return PassResult(graph_module, False)
        return super().run(graph_module, graph_signature)


@provokes("EK468")
def methods_that_keep_more_than_a_pool_holds(_: Path) -> None:
    policy = parse_memory_policy("policy: 1\npools: [{name: sram, limit: 170}]\n", "board.yaml")
    modules = {"step": _Counter(writes=True, size=9), "leap": _Counter(writes=True)}
    programs = {name: torch.export.export(module, (torch.ones(1),)) for name, module in modules.items()}
    to_edge(programs).to_executorch(ExecutorchBackendConfig(memory_planning_pass=_Once(policy=policy)))
