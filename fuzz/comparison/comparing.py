"""Comparing what eager torch, the reference runtime and the official runtime make of one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.emit import read_program
from exirkit.fuzz.examination import GraphSession
from exirkit.ir import pytree
from exirkit.visualization import method_names

from .file_values import InstructionValues, Official, RuntimeResult, WrongInstruction, run_reference
from .first_wrong import Calls, MethodJudge, NodePlace, WrongStep, first_wrong_step, place_of, results_of
from .lowering_steps import LoweringSteps
from .value_gaps import Tolerances, ValueGap, gap_of

EXPORTED = "exported program"
REFERENCE = "reference runtime"
OFFICIAL = "official runtime"


@dataclass(frozen=True)
class OutputGap:
    """One output of one run, of one executor.

    Attributes:
        executor: Who computed it.
        run: In which run, from 0.
        index: Position of the output.
        type: What it should be, such as `float32 [2, 3]`.
        gap: How far it is off.
    """

    executor: str
    run: int
    index: int
    type: str
    gap: ValueGap


@dataclass(frozen=True)
class RuntimeDifference:
    """An instruction at which a runtime departs from what it is compared to.

    Attributes:
        executor: The runtime.
        against: What it is compared to.
        instruction: The instruction.
        node: The node that it was emitted from, if the file is what the chain makes.
    """

    executor: str
    against: str
    instruction: WrongInstruction
    node: NodePlace | None


@dataclass(frozen=True)
class MethodComparison:
    """What the comparison of one method gave.

    Attributes:
        method: Its name.
        outputs: Gaps of all outputs, by executor, run and position.
        failures: Why executors failed, by executor.
        missing: Why executors were not asked, by executor.
        step: The first step of lowering after which the results are wrong.
        instructions: Where runtimes depart from the lowered program, or from each other.
        notes: What else is to be said.
    """

    method: str
    outputs: tuple[OutputGap, ...]
    failures: Mapping[str, str]
    missing: Mapping[str, str]
    step: WrongStep | None = None
    instructions: tuple[RuntimeDifference, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing that was asked failed or gave other results."""
        return not self.failures and not any(one.gap.is_bad for one in self.outputs)

    def wrong(self, executor: str) -> list[OutputGap]:
        """Return the outputs of an executor that are wrong."""
        return [one for one in self.outputs if one.executor == executor and one.gap.is_bad]


@dataclass(frozen=True)
class ComparedFile:
    """A program file to compare.

    Attributes:
        data: Its bytes.
        is_own: Whether it is what `steps` made.
    """

    data: bytes
    is_own: bool


def drawn_inputs(example: Sequence[Any], seed: int) -> list[Any]:
    """Return inputs like others: floats are normal, integers and booleans are drawn from those of the example.

    So integers that are indices stay in their range. Numbers, strings and None stay as they are.
    """
    generator = torch.Generator().manual_seed(seed)
    return [_drawn(one, generator) if isinstance(one, torch.Tensor) else one for one in example]


def compare_method(
    method: str,
    steps: LoweringSteps,
    file: ComparedFile,
    calls: Calls,
    official: Official,
    *,
    eager: Sequence[Sequence[Any]] | None = None,
    tolerances: Tolerances | None = None,
) -> MethodComparison:
    """Run a method on everything that there is, and find where results part.

    Args:
        method: Its name.
        steps: Its lowering.
        file: The program file.
        calls: Flat inputs of every run.
        official: The official runtime.
        eager: Flat outputs of every run of the model itself; those of the exported program if absent.
        tolerances: What is near enough.
    """
    tolerances = tolerances or Tolerances()
    exported = results_of(steps.exported[method], calls)
    wanted = [one.outputs for one in exported] if eager is None else eager
    results: dict[str, RuntimeResult] = {}
    if eager is not None:
        results[EXPORTED] = RuntimeResult([one.outputs for one in exported])
    results[REFERENCE] = run_reference(file.data, method, calls)
    missing: dict[str, str] = {}
    if official.missing is None:
        results[OFFICIAL] = official.run(file.data, method, calls)
    else:
        missing[OFFICIAL] = official.missing
    outputs = [one for name, result in results.items() for one in _gaps(name, result, wanted, tolerances)]
    failures = {name: one.failure for name, one in results.items() if one.failure is not None}
    compared = MethodComparison(method, tuple(outputs), failures, missing)
    if compared.ok:
        return compared
    judge = MethodJudge(exported, calls, tolerances)
    step = first_wrong_step(steps.snapshots(method), judge)
    search = _InstructionSearch(method, steps, file, calls, results, tolerances, official)
    found = search.differences(is_graph_right=step is None)
    notes = _notes(compared, step, found, file)
    return MethodComparison(method, tuple(outputs), failures, missing, step, tuple(found), tuple(notes))


class _InstructionSearch:
    """Looks for the instructions at which runtimes depart."""

    def __init__(
        self,
        method: str,
        steps: LoweringSteps,
        file: ComparedFile,
        calls: Calls,
        results: Mapping[str, RuntimeResult],
        tolerances: Tolerances,
        official: Official,
    ) -> None:
        self._method = method
        self._steps = steps
        self._file = file
        # Values in between are examined in a first run: later ones depend on what a file that ends early has not kept.
        self._calls = calls[:1]
        self._results = results
        self._tolerances = tolerances
        self._runs: dict[str, Callable[[bytes, str, Calls], RuntimeResult]] = {REFERENCE: run_reference}
        if official.missing is None:
            self._runs[OFFICIAL] = official.run

    def differences(self, *, is_graph_right: bool) -> list[RuntimeDifference]:
        """Return one difference for each runtime that has one."""
        values = InstructionValues(self._file.data, self._method, self._calls)
        ready = {name: run for name, run in self._runs.items() if self._results[name].failure is None}
        if not values.can_be_examined or not ready:
            return []
        if self._file.is_own:
            return self._against_the_graph(values, ready)
        if len(ready) == 2 and is_graph_right:
            return self._against_each_other(values, ready)
        return []

    def _against_the_graph(self, values: InstructionValues, ready: Mapping[str, Any]) -> list[RuntimeDifference]:
        manager = self._steps.manager
        assert manager is not None, "there is a file"
        planned = manager.exported_program(self._method)
        nodes, known = _node_values(planned, self._calls[0])
        names = method_names(planned, manager.debug_handle_map.get(self._method, {})).remaining()
        origins: dict[int, str] = {}
        for index in values.kernels:
            origin = names.take(index, values.operator(index))
            if origin is not None and origin.name in known:
                origins[index] = origin.name
        found = []
        for name, run in ready.items():
            wrong = values.first_difference(run, lambda at: known[origins[at]], self._tolerances, list(origins))
            if wrong is not None:
                place = place_of(nodes[origins[wrong.index]])
                found.append(RuntimeDifference(name, "the lowered program on torch", wrong, place))
        return found

    def _against_each_other(self, values: InstructionValues, ready: Mapping[str, Any]) -> list[RuntimeDifference]:
        reference = ready[REFERENCE]
        wrong = values.first_difference(ready[OFFICIAL], lambda at: values.value(at, reference), self._tolerances)
        return [] if wrong is None else [RuntimeDifference(OFFICIAL, REFERENCE, wrong, None)]


def _node_values(program: ExportedProgram, inputs: Sequence[Any]) -> tuple[dict[str, Node], dict[str, Any]]:
    """Return nodes by name, and lists of the tensors and numbers that are their values."""
    known: dict[str, Any] = {}
    nodes: dict[str, Node] = {}

    def keep(node: Node, value: Any) -> None:
        if node.op == "call_function":
            leaves = pytree.tree_leaves(value)
            known[node.name] = [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in leaves]
            nodes[node.name] = node

    GraphSession(program).run(inputs, keep)
    return nodes, known


def _gaps(
    executor: str, result: RuntimeResult, wanted: Sequence[Sequence[Any]], tolerances: Tolerances
) -> list[OutputGap]:
    found = []
    for run, (got, expected) in enumerate(zip(result.outputs, wanted, strict=False)):
        if len(got) != len(expected):
            gap = ValueGap("type", text=f"{len(got)} outputs instead of {len(expected)}")
            found.append(OutputGap(executor, run, 0, f"{len(expected)} outputs", gap))
            continue
        found += [
            OutputGap(executor, run, index, type_text(other), gap_of(one, other, tolerances))
            for index, (one, other) in enumerate(zip(got, expected, strict=True))
        ]
    return found


def type_text(value: Any) -> str:
    """Return the type of a value, `float32 [2, 3]`."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return type(value).__name__


def _notes(
    compared: MethodComparison, step: WrongStep | None, found: Sequence[RuntimeDifference], file: ComparedFile
) -> list[str]:
    notes = []
    if compared.wrong(EXPORTED):
        notes.append("the exported program differs from the model before anything is lowered: torch.export, or a model "
                     "that is random or keeps state outside of its buffers")  # fmt: skip
    runtimes = [name for name in (REFERENCE, OFFICIAL) if compared.wrong(name)]
    if not file.is_own:
        notes.append("the file is not what these options make of the model: steps of lowering are those of another "
                     "file; give the options that it was lowered with")  # fmt: skip
    # Where the file was lowered otherwise, the steps of these options say nothing about it.
    if file.is_own and runtimes and step is None and not found and not compared.wrong(EXPORTED):
        notes.append("every step of lowering computes the same as the exported program, and no single instruction "
                     "differs: examine the memory plan with `exirkit run --sanitize`")  # fmt: skip
    return notes


def eager_outputs(model: torch.nn.Module, exported: ExportedProgram, calls: Calls) -> list[list[Any]]:
    """Return the flat outputs of the model itself, which has its state back afterwards.

    Args:
        model: The model that was exported.
        exported: Says how flat inputs become arguments.
        calls: Flat inputs of every run.
    """
    kept = {name: value.detach().clone() for name, value in model.named_buffers()}
    outputs = []
    try:
        with torch.no_grad():
            for inputs in calls:
                copied = [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in inputs]
                args, kwargs = pytree.tree_unflatten(copied, exported.call_spec.in_spec)
                leaves = pytree.tree_leaves(model(*args, **kwargs))
                outputs.append([one.clone() if isinstance(one, torch.Tensor) else one for one in leaves])
    finally:
        with torch.no_grad():
            for name, value in model.named_buffers():
                if name in kept and value.shape == kept[name].shape:
                    value.copy_(kept[name])
    return outputs


def _drawn(example: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if not example.numel():
        return example.clone()
    if example.is_floating_point():
        # Narrow floats have no generator of their own.
        return torch.randn(example.shape, generator=generator).to(example.dtype)
    if example.is_complex():
        return torch.randn(example.shape, generator=generator, dtype=torch.complex64).to(example.dtype)
    chosen = torch.randint(0, example.numel(), example.shape, generator=generator)
    return example.reshape(-1)[chosen]


def is_own_file(data: bytes, steps: LoweringSteps) -> bool:
    """Whether a file has the instructions and values that a lowering gives: padding and alignment may differ."""
    if steps.manager is None:
        return False
    return data == steps.manager.buffer or (
        read_program(data).program.execution_plan == read_program(steps.manager.buffer).program.execution_plan
    )
