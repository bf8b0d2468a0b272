"""How far what instructions of a program file compute is from what the exported program computes in eager PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.devtools import ETRecord, Inspector
from exirkit.fuzz.examination import GraphResult, GraphSession
from exirkit.ir import GraphEditor, alloc, copy_program, pytree
from exirkit.passes import GenerateDebugHandles
from exirkit.program import ExecutorchProgramManager

from .file_values import copied_inputs
from .first_wrong import Calls, MethodJudge, NodePlace, WrongStep, first_wrong_step, place_of, results_of
from .lowering_steps import LoweringSteps
from .traced_runs import TracedRuntime, trace_runs
from .value_gaps import Tolerances, ValueGap, gap_of

# Nodes whose way through the lowering is followed, if the results of the program do not show which step is wrong.
_MOST_FOLLOWED = 4


@dataclass(frozen=True)
class InstructionGap:
    """An instruction whose value has a counterpart in the exported program.

    Attributes:
        instruction: Its index.
        kernel: What it calls, such as `add.out`, or the backend of a delegate.
        node: The node of the exported program with that value.
        operator: The ATen operator of that node.
        nodes: All nodes of the exported program that the instruction is a part of.
        measure: How far the value is off, in the measure that was asked for.
        gap: The same against the tolerances.
    """

    instruction: int
    kernel: str
    node: NodePlace
    operator: str
    nodes: tuple[str, ...]
    measure: float
    gap: ValueGap


@dataclass(frozen=True)
class MethodGap:
    """The numeric gap of a method.

    Attributes:
        method: Its name.
        runtime: Who ran it.
        instructions: The instructions that can be compared, in the order of the program.
        calls: How many instructions call a kernel or a delegate.
        outputs: How far each output is off.
        step: The first step of the lowering after which values leave the tolerances.
        followed: Node by which that step was found; None if results of the program show it.
    """

    method: str
    runtime: TracedRuntime
    instructions: tuple[InstructionGap, ...]
    calls: int
    outputs: tuple[ValueGap, ...]
    step: WrongStep | None = None
    followed: str | None = None

    @property
    def wrong(self) -> list[InstructionGap]:
        """The instructions that are off by more than the tolerances allow, in the order of the program."""
        return [one for one in self.instructions if one.gap.is_bad]

    @property
    def ok(self) -> bool:
        """Whether everything that was compared is within the tolerances."""
        return not self.wrong and not any(one.is_bad for one in self.outputs)


def with_debug_handles(program: ExportedProgram) -> ExportedProgram:
    """Return a copy whose calls have debug handles, so that what becomes of them can be traced back to them."""
    copied = copy_program(program)
    GenerateDebugHandles().run(GraphEditor(copied))
    return copied


def gap_to_eager(
    method: str,
    steps: LoweringSteps,
    inputs: Sequence[Any],
    *,
    measure: str = "relative",
    tolerances: Tolerances | None = None,
    runtime: TracedRuntime = TracedRuntime.REFERENCE,
) -> MethodGap:
    """Run a method that was lowered, compare each instruction with eager PyTorch, and find the step that is wrong.

    Args:
        method: Its name.
        steps: Its lowering, to the end, of programs that `with_debug_handles` returned.
        inputs: Flat inputs.
        measure: `relative`: the largest difference divided by the largest magnitude; `MSE`, `L1`, `SNR`.
        tolerances: What is near enough.
        runtime: Who runs the file.

    Raises:
        NotTracedError: The official runtime is not there, or did not run the file.
        DiagnosticError: The reference runtime does not.
    """
    tolerances = tolerances or Tolerances()
    manager = steps.manager
    assert manager is not None, "the lowering was not finished"
    exported = steps.exported[method]
    judge = MethodJudge(results_of(exported, [inputs]), [inputs], tolerances)
    traced = trace_runs(bytes(manager.buffer), method, inputs, runtime=runtime, values=True)
    record = record_of(manager, method, exported)
    record.update_representative_inputs(copied_inputs(inputs))
    inspector = Inspector(etdump_data=traced.etdump, etrecord=record, debug_buffer=traced.buffer)
    block = next(one for one in inspector.event_blocks if one.method == method)
    kernels: dict[int | None, str] = {
        event.instruction: event.kernel or _backend_of(record, method, event.instruction)
        for event in block.events
        if event.is_whole_instruction
    }
    nodes = {node.name: node for node in exported.graph.nodes}
    by_measure = measure if measure != "relative" else lambda one, other: gap_of(other, one, tolerances).relative
    rows = inspector.numeric_gap_rows(by_measure, method=method)
    found = tuple(_instruction_gap(row, nodes, record, method, kernels, tolerances) for row in rows)
    outputs = tuple(_output_gaps(block.run_output, judge.expected[0], tolerances))
    compared = MethodGap(method, runtime, found, len(kernels), outputs)
    if compared.ok:
        return compared
    step, followed = _wrong_step(compared, steps, judge)
    return MethodGap(method, runtime, found, len(kernels), outputs, step, followed)


def record_of(manager: ExecutorchProgramManager, method: str, exported: ExportedProgram) -> ETRecord:
    """Return a record that leads from instructions of one method to the nodes of its exported program."""
    return ETRecord(
        {method: exported},
        debug_handle_map={method: manager.debug_handle_map.get(method, {})},
        delegate_map={method: manager.delegate_map.get(method, {})},
        instruction_id_to_num_outs_map={method: manager.instruction_id_to_num_outs_map.get(method, {})},
    )


def _instruction_gap(
    row: Mapping[str, Any],
    nodes: Mapping[str, Node],
    record: ETRecord,
    method: str,
    kernels: Mapping[int | None, str],
    tolerances: Tolerances,
) -> InstructionGap:
    expected, got = row["aot_intermediate_output"], row["runtime_intermediate_output"]
    name = _node_of(row, record, method)
    return InstructionGap(
        instruction=row["instruction"],
        kernel=kernels.get(row["instruction"], ""),
        node=place_of(nodes[name]),
        operator=next(one.op for one in record.nodes[method] if one.name == name),
        nodes=tuple(row["aot_ops"]),
        measure=row["gap"][0],
        gap=gap_of(_like(got, expected), expected, tolerances),
    )


def _backend_of(record: ETRecord, method: str, instruction: int | None) -> str:
    called = record.delegate_map.get(method, {}).get(instruction or 0)
    return str(called["name"]) if called else "delegate"


def _node_of(row: Mapping[str, Any], record: ETRecord, method: str) -> str:
    """Return the node that a row compares with: it is the only one with its handles, or the last that has them."""
    same = [
        one for one in record.nodes[method] if one.name in row["aot_ops"] and one.handles == row["aot_debug_handle"]
    ]
    return same[-1].name


def _like(got: Any, expected: Any) -> Any:
    """Return a value in the dtypes of another: programs may compute in another one than the exported program says."""
    if isinstance(got, torch.Tensor) and isinstance(expected, torch.Tensor):
        return got.to(expected.dtype)
    if isinstance(got, list | tuple) and isinstance(expected, list | tuple) and len(got) == len(expected):
        return [_like(one, other) for one, other in zip(got, expected, strict=True)]
    return got


def _output_gaps(got: Sequence[Any], expected: GraphResult, tolerances: Tolerances) -> Iterator[ValueGap]:
    tensors = [one for one in expected.outputs if isinstance(one, torch.Tensor)]
    given = [one for one in got if isinstance(one, torch.Tensor)]
    if len(given) != len(tensors):
        yield ValueGap("type", text=f"{len(given)} tensors instead of {len(tensors)}")
        return
    for one, other in zip(given, tensors, strict=True):
        yield gap_of(one.reshape(other.shape) if one.numel() == other.numel() else one, other, tolerances)


def _wrong_step(compared: MethodGap, steps: LoweringSteps, judge: MethodJudge) -> tuple[WrongStep | None, str | None]:
    """Return the first wrong step, and the node by which it was found if results do not show it.

    Results of the program are asked first. Where a difference does not reach them, or is too small there, nodes that
    are off are followed from pass to pass by their debug handles.
    """
    path = steps.snapshots(compared.method)
    found = first_wrong_step(path, judge)
    if found is not None:
        return found, None
    order = {node.name: at for at, node in enumerate(steps.exported[compared.method].graph.nodes)}
    names = sorted({one.node.name for one in compared.wrong}, key=order.__getitem__)
    for name in names[:_MOST_FOLLOWED]:
        found = first_wrong_step(path, _NodeJudge(steps.exported[compared.method], name, judge.calls, judge.tolerances))
        if found is not None:
            return found, name
    return None, None


class _NodeJudge(MethodJudge):
    """Compares what becomes of one node of the exported program.

    Args:
        exported: The program, with debug handles.
        name: The node.
        calls: Flat inputs of every run.
        tolerances: What is near enough.
    """

    def __init__(self, exported: ExportedProgram, name: str, calls: Calls, tolerances: Tolerances) -> None:
        self._name = name
        self._handles = next(set(_handles(node)) for node in exported.graph.nodes if node.name == name)
        self._wanted = _values(exported, calls[0], lambda node: node.name == name)[-1]
        super().__init__(results_of(exported, calls[:1]), calls[:1], tolerances)

    def worst(self, program: ExportedProgram) -> tuple[str, ValueGap]:
        """Return how far the node is off; nothing if it has no counterpart in the program."""
        shapes = _shapes(self._wanted)
        found = _values(program, self.calls[0], lambda node: not self._handles.isdisjoint(_handles(node)))
        same = [one for one in found if _shapes(one) == shapes]
        gap = gap_of(_like(same[-1], self._wanted), self._wanted, self.tolerances) if same else ValueGap("equal")
        return f"%{self._name}", gap


def _values(program: ExportedProgram, inputs: Sequence[Any], is_wanted: Any) -> list[Any]:
    found: list[Any] = []

    def keep(node: Node, value: Any) -> None:
        if node.op == "call_function" and node.target is not alloc and is_wanted(node):
            found.append(pytree.tree_map_only(torch.Tensor, lambda one: one.detach().clone(), value))

    GraphSession(program).run(inputs, keep)
    return found


def _shapes(value: Any) -> list[Any]:
    return [tuple(one.shape) if isinstance(one, torch.Tensor) else type(one) for one in pytree.tree_leaves(value)]


def _handles(node: Node) -> tuple[int, ...]:
    handle = node.meta.get("debug_handle")
    return () if handle is None else handle if isinstance(handle, tuple) else (handle,)
