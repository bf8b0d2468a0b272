"""Time grows with the size of a file, and not faster: parts that refer to each other, thousands of times."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from exirkit.emit import (
    ExecutionPlan,
    Instruction,
    JumpFalseCall,
    MoveCall,
    NamedData,
    Operator,
    Program,
    ProgramVerifyError,
    Tensor,
    format_program,
    read_program,
    restore,
    restore_named_data,
)
from exirkit.fuzz.loader import seed_files
from exirkit.fuzz.loader.contract import Bounds, load
from exirkit.fuzz.loader.editing import rebuilt
from exirkit.runtime_ref import Runtime

MANY = 4000
# Twenty times what loading and printing takes on a quiet machine; what is quadratic takes more.
MICROSECONDS_A_BYTE = 25.0


def plan_of(program: Program) -> ExecutionPlan:
    return program.execution_plan[0]


def keys(program: Program) -> None:
    entries = program.named_data or []
    program.named_data = [NamedData(key=f"key {number}") for number in range(MANY)] + entries
    plan = plan_of(program)
    plan.values += [
        entry for entry in plan.values if isinstance(entry.val, Tensor) and entry.val.extra_tensor_info
    ] * MANY


def inputs_and_outputs(program: Program) -> None:
    plan_of(program).inputs *= MANY
    plan_of(program).outputs *= MANY


def calls(program: Program) -> None:
    plan_of(program).chains[0].instructions *= MANY


def jumps(program: Program) -> None:
    chain = plan_of(program).chains[0]
    chain.instructions = [one for one in chain.instructions if isinstance(one.instr_args, JumpFalseCall)] * MANY


def moves(program: Program) -> None:
    plan = plan_of(program)
    first = len(plan.values)
    plan.values += [plan.values[0]] * MANY
    plan.chains[0].instructions = [
        Instruction(instr_args=MoveCall(move_from=first + at, move_to=first + at + 1)) for at in range(MANY - 1)
    ]


def operators(program: Program) -> None:
    plan_of(program).operators += [Operator(name=f"aten::no_{number}", overload="out") for number in range(MANY)]


def lists(program: Program) -> None:
    for entry in plan_of(program).values:
        value: Any = entry.val
        if hasattr(value, "items"):
            value.items = value.items * MANY


def arguments(program: Program) -> None:
    for instruction in plan_of(program).chains[0].instructions:
        step: Any = instruction.instr_args
        step.args = step.args * MANY


def dimensions(program: Program) -> None:
    for entry in plan_of(program).values:
        if isinstance(entry.val, Tensor):
            entry.val.sizes, entry.val.dim_order = entry.val.sizes * MANY, entry.val.dim_order * MANY


def delegates(program: Program) -> None:
    plan_of(program).delegates *= MANY


@pytest.mark.parametrize(
    ("name", "enlarge"),
    [
        ("external_weight", keys),
        ("sum_of_two", inputs_and_outputs),
        ("sum_of_two", calls),
        ("loop", jumps),
        ("sum_of_two", moves),
        ("two_methods", operators),
        ("lists", lists),
        ("lists", arguments),
        ("sum_of_two", dimensions),
        ("delegates", delegates),
    ],
)
def test_time_grows_with_the_size(name: str, enlarge: Callable[[Program], None]) -> None:
    data = seed_files()[name]
    file = read_program(data)
    enlarge(file.program)
    large = rebuilt(file, data)
    assert len(large) > 10_000
    # The garbage of other tests may be collected at any time; what is quadratic is slow each time.
    assert min(seconds_for(large) for _ in range(3)) * 1e6 / len(large) < MICROSECONDS_A_BYTE


def seconds_for(large: bytes) -> float:
    started = time.thread_time()
    outcome = load(large, Bounds(), lambda _name: None)
    assert outcome.error is None
    again = read_program(large)
    for verbose in (False, True):
        assert sum(1 for _ in format_program(again.program, verbose=verbose))
    restore(again)
    restore_named_data(again)
    return time.thread_time() - started


@pytest.mark.parametrize("name", ["two_methods", "delegates"])
def test_long_texts_are_not_repeated(name: str) -> None:
    data = seed_files()[name]
    file = read_program(data)
    plan, long = plan_of(file.program), "x" * 1_000_000
    plan.name = long
    plan.operators += [Operator(name=long, overload=str(number % 10)) for number in range(MANY)]
    for delegate in plan.delegates:
        delegate.id = long
    plan.delegates *= MANY
    outcome = load(rebuilt(file, data), Bounds(), lambda _name: None)
    assert outcome.error is None
    plan.chains[0].instructions *= 1000
    assert sum(len(line) for line in format_program(file.program)) < 2_000_000
    plan.name = "\x1b[2J\n"
    assert "\x1b" not in "".join(format_program(file.program))
    with pytest.raises(ProgramVerifyError) as caught:
        Runtime.get().load_program(rebuilt(file, data)).load_method(plan.name)
    assert len(caught.value.diagnostics) == 50
    assert len(str(caught.value)) < 200_000
