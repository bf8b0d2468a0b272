"""How closely the results of a program must agree: what the program says of its values, by place of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from exirkit.fuzz.programs import Call, Method, Program, Ref, names_in

Closeness: TypeAlias = Literal["bits", "budget", "type"]
"""`bits`: bit for bit; `budget`: within the error budget; `type`: dtype and shape only."""

_BITS: Closeness = "bits"

# A last bit may change what these say, and with it everything behind them.
_DECISIONS = frozenset(
    [
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "argmax",
        "argmin",
        "sort",
        "topk",
        "kthvalue",
        "median",
        "mode",
        "nonzero",
        "floor",
        "ceil",
        "round",
        "trunc",
        "sign",
        "fmod",
        "remainder",
        "floor_divide",
        "div_mode",
        "frac",
        "isclose",
        "logical_not",
        "logical_and",
        "logical_or",
        "logical_xor",
        "any",
        "all",
        "quantize_per_tensor",
        "quantize_per_channel",
        "searchsorted",
        "bucketize",
        "max_dim",
        "min_dim",
        "unique",
        "to",
        "_to_copy",
    ]
)


# Which of 0.0 and -0.0 they take is left to the kernel, and differs between layouts.
_CHOOSING_AMONG_ZEROS = frozenset(
    ["relu", "maximum", "minimum", "fmax", "fmin", "max", "min", "amax", "amin", "aminmax"]
)
# Likewise if a limit is zero.
_LIMITING = frozenset(["clamp", "clamp_min", "clamp_max", "hardtanh"])


@dataclass(frozen=True)
class Expectation:
    """How the results of a method are compared.

    Attributes:
        outputs: For each output.
        buffers: For each buffer or input that the method writes to; others are compared bit for bit.
    """

    outputs: tuple[Closeness, ...]
    buffers: Mapping[str, Closeness]


def expectations_of(program: Program, *, is_exact: bool) -> dict[str, Expectation]:
    """Return how results are compared, by method.

    Args:
        program: The program.
        is_exact: What is compared was computed by the same operations, or by others that give the same bits. If not,
            any result may differ in its last bits, and what depends on a decision may differ at will.
    """
    undecided = program.undecided if is_exact else program.undecided | _behind_decisions(program)
    inexact = program.inexact

    def closeness(name: str) -> Closeness:
        if name in undecided:
            return "type"
        return "budget" if name in inexact or not is_exact else "bits"

    return {method.name: _expectation(method, closeness) for method in program.methods}


def leaves_signs_of_zeros_open(program: Program) -> bool:
    """Return whether a program calls an operator that takes any of 0.0 and -0.0."""
    return any(_chooses_among_zeros(call) for method in program.methods for call in _all_calls(method.steps))


def _chooses_among_zeros(call: Call) -> bool:
    name = _name(call)
    if name not in _LIMITING:
        return name in _CHOOSING_AMONG_ZEROS
    return any(isinstance(one, Ref) or one == 0 for one in (*call.args[1:], *(value for _, value in call.kwargs)))


def _all_calls(steps: Sequence[Call]) -> Iterator[Call]:
    for call in steps:
        yield call
        for body in call.bodies:
            yield from _all_calls(body.steps)


def _name(call: Call) -> str:
    parts = call.op.split(".")
    return parts[1] if len(parts) > 1 else call.op


def _expectation(method: Method, closeness: Callable[[str], Closeness]) -> Expectation:
    outputs = tuple(closeness(one.name) if isinstance(one, Ref) else _BITS for one in method.outputs)
    order: tuple[Closeness, ...] = ("bits", "budget", "type")
    buffers: dict[str, Closeness] = {}
    for name, ref in method.updates:
        both = (closeness(name), closeness(ref.name))
        buffers[name] = max(both, key=order.index)
    return Expectation(outputs, buffers)


def _behind_decisions(program: Program) -> frozenset[str]:
    """Return the names of values that depend on a decision, through buffers too."""
    tainted: set[str] = set()
    for _ in range(2 + len(program.stored)):
        before = len(tainted)
        for method in program.methods:
            for call in method.steps:
                if _decides(call) or any(name in tainted for name in names_in(call.arguments)):
                    tainted.update(name for name in call.results if name is not None)
            tainted.update(name for name, ref in method.updates if ref.name in tainted)
        if len(tainted) == before:
            break
    return frozenset(tainted)


def _decides(call: Call) -> bool:
    name = _name(call)
    parts = call.op.split(".")
    overload = parts[2] if len(parts) > 2 else ""
    return bool(call.bodies) or name in _DECISIONS or f"{name}_{overload.rpartition('_')[2]}" in _DECISIONS
