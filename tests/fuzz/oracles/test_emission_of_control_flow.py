"""Every jump, move and copy of emitted control flow that is made wrong is found, before anything runs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from tests.models.control_flow.programs import MODELS

import exirkit
from exirkit import ExecutorchProgramManager
from exirkit.emit import Instruction, JumpFalseCall, KernelCall, MoveCall, read_program
from exirkit.fuzz.examination.emission import emission_fault
from exirkit.fuzz.generation import Policy, features_of, generate
from exirkit.fuzz.oracles import check

MOVING = ["aten::clone", "executorch_prim::et_copy_index", "executorch_prim::lt", "aten::sym_size"]
# In a model that selects nothing itself, it is rows that are selected.
SELECTING = {"dynamic_scan": [*MOVING, "aten::select_copy"]}


@cache
def lowered(name: str) -> ExecutorchProgramManager:
    return exirkit.to_edge(MODELS[name]().methods["forward"].export()).to_executorch()


def damaged(call: Any, names: list[str], count: int, moving: list[str]) -> Iterator[Any]:
    """Yield an instruction of control flow with one number in it that is another one."""
    if isinstance(call, JumpFalseCall):
        yield call.model_copy(update={"destination_instruction": (call.destination_instruction + 1) % count})
        yield call.model_copy(update={"cond_value_index": 0})
    elif isinstance(call, MoveCall):
        yield call.model_copy(update={"move_from": 0})
        yield call.model_copy(update={"move_to": 0})
    elif isinstance(call, KernelCall) and names[call.op_index] in moving:
        for place in range(len(call.args) - 1):
            if names[call.op_index] != "aten::clone" or place != 1:
                yield call.model_copy(
                    update={"args": [*call.args[:place], call.args[place] - 1, *call.args[place + 1 :]]}
                )


@pytest.mark.parametrize(
    "name", ["nested", "loop_that_rotates", "loop_with_a_number", "dynamic_scan", "rows_of_varying_size", "everything"]
)
def test_damage_is_found(name: str) -> None:
    manager = lowered(name)
    program = manager.exported_program()
    file = read_program(manager.buffer)
    assert emission_fault(program, file, "forward") is None
    plan = file.program.execution_plan[0]
    names = [one.name for one in plan.operators]
    (chain,) = plan.chains
    moving, tried = SELECTING.get(name, MOVING), 0
    for number, instruction in enumerate(chain.instructions):
        for wrong in damaged(instruction.instr_args, names, len(chain.instructions), moving):
            other = copy.deepcopy(chain.instructions)
            other[number] = Instruction(instr_args=wrong)
            changed = plan.model_copy(update={"chains": [chain.model_copy(update={"instructions": other})]})
            broken = copy.copy(file)
            object.__setattr__(broken, "program", file.program.model_copy(update={"execution_plan": [changed]}))
            assert emission_fault(program, broken, "forward") is not None, (number, wrong)
            tried += 1
    assert tried >= 8


def test_generated_programs_pass_all_oracles() -> None:
    kinds: set[str] = set()
    for seed in (3, 37, 64, 12):
        program = generate(seed, Policy(control_flow=True))
        kinds |= features_of(program) & {"cond", "map", "scan", "while_loop"}
        verdict = check(program)
        assert not verdict.failures
        assert verdict.unsupported is None
    assert kinds == {"cond", "map", "scan", "while_loop"}
