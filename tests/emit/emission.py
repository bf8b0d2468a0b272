"""From a module to an emitted program, and a short way to say what is in it."""

from __future__ import annotations

from typing import Any

from tests.passes.lowering import edge_program, executorch_program
from torch.export import ExportedProgram

from exirkit.emit import EmitterOutput, EValue, ExecutionPlan, KernelCall, Tensor, emit_program, lay_out
from exirkit.passes import MemoryPlanningPass


def planned_program(model: Any, *args: Any, alloc: tuple[bool, bool] = (True, True), **options: Any) -> ExportedProgram:
    """Lower to the ExecuTorch dialect and plan memory.

    Args:
        model: Module or function.
        args: Example inputs.
        alloc: Whether inputs and outputs are planned.
        options: For `torch.export.export`.
    """
    sides: dict[str, Any] = {"alloc_graph_input": alloc[0], "alloc_graph_output": alloc[1]}
    made = executorch_program(edge_program(model, *args, **options), **sides)
    MemoryPlanningPass(**sides).run(made.graph_module, made.graph_signature)
    return made


def emitted(model: Any, *args: Any, alloc: tuple[bool, bool] = (True, True), **options: Any) -> EmitterOutput:
    """Lower, plan and emit as the method `forward`."""
    return emit_program(planned_program(model, *args, alloc=alloc, **options))


def file_of(output: EmitterOutput) -> bytes:
    """Return the file of an emitted program."""
    return lay_out(output.program, mutable_data=output.mutable_data).to_bytes()


def plan_of(output: EmitterOutput) -> ExecutionPlan:
    """Return the first plan."""
    return output.program.execution_plan[0]


def calls(plan: ExecutionPlan) -> list[tuple[str, list[int]]]:
    """Return the kernel calls as `aten::add.out` and the indices of the arguments."""
    found = []
    for instruction in plan.chains[0].instructions:
        call = instruction.instr_args
        assert isinstance(call, KernelCall)
        operator = plan.operators[call.op_index]
        found.append((f"{operator.name}.{operator.overload}".rstrip("."), call.args))
    return found


def shown(value: EValue) -> Any:
    """Return a value in short: numbers as they are, lists with their kind, tensors as kind and sizes."""
    member = value.val
    if isinstance(member, Tensor):
        kind = "input" if member.allocation_info is None else "planned"
        return ("constant" if member.data_buffer_idx and member.allocation_info is None else kind, member.sizes)
    fields = list(member.model_dump().values())
    return (type(member).__name__, *fields)
