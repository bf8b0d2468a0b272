"""Generated programs, cut at random for two backends that check all they are handed, compute what they did."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from tests.program.delegation_models import Counting
from tests.thoroughness import TRIES_ALL
from torch.export import ExportedProgram, export

from exirkit import LoweredBackendModule, UsageError, to_backend, to_edge
from exirkit.emit import Int
from exirkit.fuzz import check, generate
from exirkit.fuzz.compilers import FunctionCompiler
from exirkit.fuzz.delegation import CheckingBackend, cut_manager, cutting
from exirkit.ir import delegate_of
from exirkit.program import EdgeProgramManager
from exirkit.runtime_ref import Runtime

COMPILER = FunctionCompiler("exirkit.fuzz.delegation:cut_at_random")
ORACLES = ("eager-run", "lowering", "poisoned-run", "memory-sanitizer", "repeated-runs", "changing-shapes")
SEEDS = range(400) if TRIES_ALL else range(24, 48)


def delegates_of(manager: EdgeProgramManager, seen: Counter[str]) -> None:
    """Count what the delegates of a program are like."""
    backends: list[str] = []
    for name in manager.methods:
        program = manager.exported_program(name)
        stored = {spec.arg.name for spec in program.graph_signature.input_specs if spec.target is not None}
        for node in program.graph.nodes:
            delegate = delegate_of(node)
            if delegate is not None:
                inner = delegate.original_module.graph_signature
                backends.append(delegate.backend_id)
                seen["delegates"] += 1
                seen["keeps constants"] += bool(delegate.original_module.state_dict)
                seen["writes a buffer"] += bool(inner.buffers_to_mutate)
                seen["is handed stored tensors"] += any(source.name in stored for source in node.all_input_nodes)
                seen["is handed numbers"] += any(isinstance(one.meta["val"], torch.SymInt) for one in
                                                 node.all_input_nodes if "val" in one.meta)  # fmt: skip
    seen["two backends"] += len(set(backends)) > 1


def test_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()

    def counted(programs: Mapping[str, ExportedProgram]) -> EdgeProgramManager:
        made = cut_manager(programs)
        delegates_of(made, seen)
        return made

    monkeypatch.setattr(cutting, "cut_manager", counted)
    for seed in SEEDS:
        verdict = check(generate(seed), compiler=COMPILER, seed=seed, oracles=ORACLES)
        assert not verdict.failures, (seed, verdict.failures[0].message)
        seen["taken"] += verdict.unsupported is None
    wanted = {"delegates", "keeps constants", "is handed stored tensors", "is handed numbers", "two backends"}
    assert seen.keys() >= wanted
    assert all(seen[one] for one in wanted)
    assert seen["taken"] > 0.8 * len(SEEDS)


def test_the_cut_follows_from_the_program() -> None:
    program = export(Counting(), (torch.ones(2, 4),))
    first, second = (cut_manager({"forward": program, "other": program}) for _ in range(2))
    assert first.methods == second.methods == {"forward", "other"}
    for name in ("forward", "other"):
        assert str(first.exported_program(name).graph) == str(second.exported_program(name).graph)


def test_state_that_delegates_keep_and_methods_that_share(monkeypatch: pytest.MonkeyPatch) -> None:
    class Two(torch.nn.Module):
        """Writes to a buffer of its own and to one that it reads elsewhere, and is handed constants."""

        def __init__(self) -> None:
            super().__init__()
            self.count: torch.Tensor
            self.last: torch.Tensor
            self.register_buffer("count", torch.zeros(3))
            self.other: torch.Tensor
            self.register_buffer("last", torch.ones(3))
            self.register_buffer("other", torch.ones(3))
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            self.count.add_(x.sum(0))
            y = self.layer(x) * self.last + torch.tensor([1.0, 2.0, 3.0])
            z = y[0].relu()
            self.last.copy_(z)
            self.other.copy_(z)
            return y.tanh(), y - self.last * x

    model = Two()
    program = export(model, (torch.ones(2, 3),))
    given = [(torch.linspace(-1, 1, 6) * (number + 1)).view(2, 3) for number in range(3)]
    seen: Counter[str] = Counter()
    for salt in range(60 if TRIES_ALL else 14):
        manager = cut_manager({"forward": program, "again": program}, salt)
        delegates_of(manager, seen)
        made = manager.to_executorch()
        modules = [one for name in manager.methods for one in manager.exported_program(name).graph_module.children()]
        payloads = [one.processed_bytes for one in modules if isinstance(one, LoweredBackendModule)]
        stored = len(made.executorch_program.backend_delegate_data)
        seen["shared between methods"] += len(set(payloads)) < len(payloads)
        assert stored == len(set(payloads))
        for name in ("forward", "again"):
            method = Runtime.get().load_program(made.buffer, sanitize=True).load_method(name)
            eager = copy.deepcopy(model)
            for x in given:
                with torch.no_grad():
                    wanted = eager(x)
                for got, one in zip(method.execute([x]), wanted, strict=True):
                    torch.testing.assert_close(got, one)
    wanted_kinds = {"writes a buffer", "keeps constants", "is handed stored tensors", "two backends"}
    assert all(seen[one] for one in wanted_kinds), seen


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((), "0 values are handed over, and 2 expected"),
        ((torch.ones(4), torch.ones(2, 3)), "value 0 is torch.float32 [4]"),
        ((torch.ones(2, 3), torch.ones(4)), "value 1 is torch.float32 [4]"),
        ((torch.ones(2, 3).double(), torch.ones(2, 3)), "value 0 is torch.float64 [2, 3]"),
        ((torch.ones(2, 4), torch.ones(2, 3)), "value 0 has sizes [2, 4]"),
        ((3, torch.ones(2, 3)), "value 0 is 3, and a tensor is expected"),
        ((torch.ones(12)[:6].view(2, 3), torch.ones(12)[:6].view(2, 3)), None),
    ],
)
def test_what_the_backend_rejects(given: tuple[object, ...], says: str | None) -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    edge = to_edge(export(Sum(), (torch.ones(2, 3), torch.zeros(2, 3))))
    whole = to_backend(CheckingBackend.__name__, edge.exported_program(), [])
    program = Runtime.get().load_program(whole.buffer())
    (delegate,) = program.load_method("forward")._interpreter._environment.facts.delegates
    if says is None:
        assert torch.equal(delegate.execute(list(given))[0], torch.full((2, 3), 2.0))
        both = torch.ones(2, 3)
        with pytest.raises(ValueError, match="lie over each other"):
            delegate.execute([both, both])
        return
    with pytest.raises(ValueError, match="value") as raised:
        delegate.execute(list(given))
    assert says in str(raised.value)


def test_numbers_that_vary_are_for_delegates_alone() -> None:
    class Growing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.arange(x.shape[0]) + x.shape[0]

    program = export(Growing(), (torch.ones(5),), dynamic_shapes=({0: torch.export.Dim("n", max=9)},))
    edge = to_edge(program)
    made = edge.to_backend(cutting.RandomPartitioner(_Always(), "ReferenceBackend"))
    method = Runtime.get().load_program(made.to_executorch().buffer, sanitize=True).load_method("forward")
    for size in (5, 2, 9, 5):
        assert torch.equal(method.execute([torch.ones(size)])[0], torch.arange(size) + size)
    numbers = [one for one in made.exported_program().graph_module.lowered_module_0.original_module.graph.nodes
               if one.op == "placeholder"]  # fmt: skip
    assert any(isinstance(one.meta["val"], torch.SymInt) for one in numbers)
    inner = made.exported_program().graph_module.lowered_module_0
    alone = Runtime.get().load_program(inner.processed_bytes).load_method("forward")
    usual = [entry.val for entry in (alone._interpreter.plan.values[index] for index in alone._interpreter.plan.inputs)]
    assert usual
    right = [one.int_val for one in usual if isinstance(one, Int)]
    assert torch.equal(
        alone.execute([one + 1 for one in right], numbers_vary=True)[0][-1:], torch.tensor([2 * right[0] + 1])
    )
    # What it was made with counts again afterwards.
    assert alone.execute(right)[0].shape == (right[0],)
    with pytest.raises(UsageError, match="EK645"):
        alone.execute([one + 1 for one in right])


class _Always(random.Random):
    """Draws whatever takes most."""

    def random(self) -> float:
        return 0.5

    def choice(self, seq: Any) -> Any:
        return seq[-1]
