"""Arithmetic on sizes means the same on the runtime's primitives, as far as those differ from Python's functions."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.passes.lowering import edge_program
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, SymIntArgument
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir import DefinedOperator, GraphEditor, ModelError, copy_program, defined_operator
from exirkit.passes import LowerSymbolicArithmetic, RemoveAsserts

BASE = edge_program(
    lambda x: x.sum(),
    torch.ones(3, 4),
    dynamic_shapes=(({0: Dim("rows", min=2, max=40), 1: Dim("columns", min=2, max=40)},),),
)


def prim(name: str) -> DefinedOperator:
    found = defined_operator(f"executorch_prim::{name}.Scalar")
    assert found is not None
    return found


def reject_integer(meaning: Callable[[float], int]) -> Callable[[Any], int]:
    def run(value: Any) -> int:
        assert type(value) is float, "the runtime's kernel takes floats only"
        return meaning(value)

    return run


def reject_mixture(meaning: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(left: Any, right: Any) -> Any:
        assert type(left) is type(right), "the runtime's kernel takes two of one kind only"
        return meaning(left, right)

    return run


def remainder(left: Any, right: Any) -> int:
    assert type(left) is int, "the runtime's kernel takes integers only"
    assert type(right) is int, "the runtime's kernel takes integers only"
    return int(math.fmod(left, right))


def negation(value: Any) -> bool:
    assert type(value) is bool, "the runtime's kernel takes bools only"
    return not value


# What the official runtime was seen to do, where it is not what Python does.
RUNTIME: dict[Any, Callable[..., Any]] = {
    prim("mod"): remainder,
    prim("ceil"): reject_integer(math.ceil),
    prim("round"): reject_integer(round),
    prim("trunc"): reject_integer(math.trunc),
    prim("sym_max"): reject_mixture(max),
    prim("sym_min"): reject_mixture(min),
    prim("sym_not"): negation,
}


def program(build: Callable[[Callable[..., Node], Node, Node], Node]) -> ExportedProgram:
    """Return a program whose one output is a number made from the two sizes of its input."""
    made = copy_program(BASE)
    editor = GraphEditor(made)
    output = made.graph.output_node()
    (x,) = made.graph.find_nodes(op="placeholder")
    with editor.transaction("test"):

        def call(target: Callable[..., Any], *args: Any) -> Node:
            return editor.call(target, args, before=output)

        result = build(call, *(call(torch.ops.aten.sym_size.int, x, dim) for dim in (0, 1)))
    output.args = ((result,),)
    spec = OutputSpec(OutputKind.USER_OUTPUT, SymIntArgument(result.name), None)
    made.graph_signature.output_specs[:] = [spec]
    return made


def evaluate(program: ExportedProgram, rows: int, columns: int) -> Any:
    """Run the numbers of a lowered graph as the runtime does."""
    values: dict[Node, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            values[node] = torch.ones(rows, columns)
        elif node.op == "call_function" and not isinstance(node.meta["val"], torch.Tensor):
            assert isinstance(node.target, DefinedOperator) or node.target is torch.ops.aten.sym_size.int
            args = map_arg(node.args, values.__getitem__)
            values[node] = RUNTIME.get(node.target, node.target)(*args)
    return values[program.graph.output_node().args[0][0]]


def lowered(program: ExportedProgram) -> ExportedProgram:
    changed = copy_program(program)
    assert LowerSymbolicArithmetic().run(GraphEditor(changed)).modified
    changed.graph.lint()
    assert not LowerSymbolicArithmetic().run(GraphEditor(changed)).modified
    return changed


def constant(value: Any) -> Callable[[Any, Node, Node], Any]:
    return lambda call, rows, columns: value


OPERANDS: dict[str, Callable[[Any, Node, Node], Any]] = {
    "rows": lambda call, rows, columns: rows,
    "columns": lambda call, rows, columns: columns,
    "difference": lambda call, rows, columns: call(operator.sub, rows, columns),
    "quotient": lambda call, rows, columns: call(operator.truediv, call(operator.sub, rows, columns), 4),
    "three": constant(3),
    "minus five": constant(-5),
    "half": constant(2.5),
}
BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "ge": operator.ge,
    "max": torch.sym_max,
    "min": torch.sym_min,
}
DIVISION = {"floordiv": operator.floordiv, "mod": operator.mod, "truediv": operator.truediv}
UNARY = {
    "neg": operator.neg,
    "abs": operator.abs,
    "float": torch.sym_float,
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
    "round": builtins.round,
}
SIZES = st.integers(2, 40)


def same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    assert ours == pytest.approx(theirs)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("right", OPERANDS)
@pytest.mark.parametrize("left", ["rows", "difference", "quotient"])
def test_functions_of_two_numbers(left: str, right: str, name: str) -> None:
    made = lowered(
        program(lambda call, *sizes: call(BINARY[name], *(OPERANDS[s](call, *sizes) for s in (left, right))))
    )
    plain: Any = {"max": max, "min": min}.get(name, BINARY[name])
    for rows, columns in ((2, 40), (40, 2), (7, 7), (5, 6)):
        values = numbers(rows, columns)
        expected = plain(values[left], values[right])
        if name in ("max", "min") and isinstance(values[left], float) != isinstance(values[right], float):
            expected = float(expected)
        same(evaluate(made, rows, columns), expected)


def numbers(rows: int, columns: int) -> dict[str, Any]:
    difference = rows - columns
    fixed = {"three": 3, "minus five": -5, "half": 2.5}
    return {"rows": rows, "columns": columns, "difference": difference, "quotient": difference / 4, **fixed}


@pytest.mark.parametrize("name", DIVISION)
@pytest.mark.parametrize("right", ["columns", "three", "minus five"])
@pytest.mark.parametrize("left", ["rows", "difference"])
def test_division_of_negative_numbers(left: str, right: str, name: str) -> None:
    made = lowered(
        program(lambda call, *sizes: call(DIVISION[name], *(OPERANDS[s](call, *sizes) for s in (left, right))))
    )
    for rows, columns in ((2, 40), (40, 2), (7, 7), (5, 6), (6, 5), (9, 12)):
        values = numbers(rows, columns)
        same(evaluate(made, rows, columns), DIVISION[name](values[left], values[right]))


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("operand", ["rows", "difference", "quotient"])
def test_functions_of_one_number(operand: str, name: str) -> None:
    def build(call: Any, *sizes: Node) -> Node:
        # A whole number is its own ceiling; adding makes a call of it, whatever the function leaves.
        return call(operator.add, call(UNARY[name], OPERANDS[operand](call, *sizes)), 1)

    made = lowered(program(build))
    plain: Any = float if name == "float" else UNARY[name]
    for rows, columns in ((2, 40), (40, 2), (7, 7), (5, 6), (6, 8)):
        same(evaluate(made, rows, columns), plain(numbers(rows, columns)[operand]) + 1)


@given(SIZES, SIZES, st.integers(1, 5))
def test_powers(rows: int, columns: int, exponent: int) -> None:
    made = program(lambda call, rows, columns: call(operator.mul, call(operator.pow, rows, exponent), columns))
    assert evaluate(lowered(made), rows, columns) == rows**exponent * columns


@pytest.mark.parametrize(("rows", "columns"), [(2, 40), (40, 2), (30, 30), (5, 5)])
def test_logic_and_choice(rows: int, columns: int) -> None:
    def build(call: Any, rows: Node, columns: Node) -> Node:
        wide, high = call(operator.gt, columns, 10), call(operator.gt, rows, 10)
        both, one = call(operator.and_, wide, high), call(operator.or_, wide, high)
        neither = call(torch.sym_ite, call(torch.sym_not, one), columns, call(operator.mul, rows, columns))
        return call(torch.sym_ite, both, rows, neither)

    expected = {0: columns, 1: rows * columns, 2: rows}[(rows > 10) + (columns > 10)]
    assert evaluate(lowered(program(build)), rows, columns) == expected


def test_sums_and_shifts() -> None:
    def build(call: Any, rows: Node, columns: Node) -> Node:
        total = call(torch.sym_sum, (rows, columns, 7))
        return call(operator.rshift, call(operator.lshift, total, 3), 1)

    made = lowered(program(build))
    assert evaluate(made, 5, 6) == ((5 + 6 + 7) << 3) >> 1


def test_everything_unsupported_is_reported_at_once() -> None:
    def build(call: Any, rows: Node, columns: Node) -> Node:
        root = call(operator.pow, call(torch.sym_float, rows), 0.5)
        return call(operator.add, root, call(operator.pow, rows, 99))

    made = program(build)
    with pytest.raises(ModelError) as caught:
        LowerSymbolicArithmetic().run(GraphEditor(made))
    assert [one.code for one in caught.value.diagnostics] == ["EK431", "EK431"]
    assert "pow" in caught.value.diagnostics[0].message


def test_what_only_an_assertion_computes_goes_with_it() -> None:
    def checked(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        count = n.item()
        torch._check(count >= 1)
        torch._check(count**3 <= 1000)
        torch._check(count <= 10)
        return x[:1] + torch.ones(count)  # type: ignore[arg-type]

    made = edge_program(checked, torch.ones(1), torch.tensor(4))
    editor = GraphEditor(made)
    assert RemoveAsserts().run(editor).modified
    left = [str(node.target) for node in made.graph.nodes if node.op == "call_function"]
    assert not any("assert" in target or "pow" in target or "constrain" in target for target in left)
    assert any("_local_scalar_dense" in target for target in left)
    assert not RemoveAsserts().run(editor).modified
