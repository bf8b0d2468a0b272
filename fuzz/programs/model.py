"""Programs as data: what the generator makes, the corpus keeps, the reducer cuts and bug reports show.

A program says everything that a failure depends on: what is stored, what is computed and how it is called. It has
one printed form, a subset of Python's syntax that is parsed and never run:

    program(1)
    s0 = symbol(1, 7)
    w = parameter("f32[3, 5]", dyadic(3))
    b = buffer("f32[3]", zeros())

    def forward(x: "f32[s0, 5]"):
        turned = aten.permute_copy.default(w, [1, 0])
        y = aten.mm.default(x, turned)
        values, _ = aten.max.dim(y, 0)
        def more(v):
            v2 = aten.mul.Tensor(v, 2)
            return v2
        def same(u):
            u1 = aten.clone.default(u)
            return u1
        positive = aten.gt.Scalar(values, 0)
        some = aten.any.default(positive)
        picked = cond(some, more, same, [values])
        update(b, picked)
        return values, s0 + 1, None

    run("forward", s0=3, x=dyadic(1))
    run("forward", s0=7, x=dyadic(2))
    inexact(y)

Names are those of Python and each names one thing in the whole program. A body sees its own inputs and steps alone;
what it needs from outside is an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import torch

# A size: a number, or an expression over the symbols of the program such as `s0` or `2 * s0 + 1`.
Dim: TypeAlias = "int | str"


@dataclass(frozen=True)
class Symbol:
    """A size that the callers of a program choose.

    Attributes:
        name: A Python name that nothing else in the program has.
        low: Least value.
        high: Greatest value.
    """

    name: str
    low: int
    high: int


@dataclass(frozen=True)
class TensorType:
    """What is known of a tensor before a program runs.

    Attributes:
        dtype: Of its elements.
        sizes: One entry for each dim.
    """

    dtype: torch.dtype
    sizes: tuple[Dim, ...]


@dataclass(frozen=True)
class Contents:
    """How the elements of a tensor are made; the same description always makes the same bytes.

    Attributes:
        kind: `dyadic`: small multiples of a power of two, so that sums and products of few of them are exact; `zeros`;
            `numbers`: those that are listed, row by row; `special`: NaN, infinities, -0.0 and denormals among others.
        seed: Of `dyadic` and `special`.
        low: Least value.
        high: Greatest value.
        bits: Binary places after the point of `dyadic` floats.
        numbers: Of `numbers`.
        layout: Strides: `dense`, `channels_last`, `transposed` (the last two dims swapped in memory), `strided` (every
            second element of a larger tensor), `expanded` (the first dim has stride 0).
    """

    kind: Literal["dyadic", "zeros", "numbers", "special"] = "dyadic"
    seed: int = 0
    low: float = -2
    high: float = 2
    bits: int = 2
    numbers: tuple[float | int | bool, ...] = ()
    layout: Literal["dense", "channels_last", "transposed", "strided", "expanded"] = "dense"


@dataclass(frozen=True)
class Stored:
    """A tensor that belongs to the program.

    Attributes:
        name: A Python name that nothing else in the program has.
        kind: A `parameter`, a `buffer`, or a `constant` that the exporter lifts.
        type: Its sizes are numbers.
        contents: At the start.
    """

    name: str
    kind: Literal["parameter", "buffer", "constant"]
    type: TensorType
    contents: Contents


@dataclass(frozen=True)
class Ref:
    """A use of a value by name: of an input, something stored, or a result."""

    name: str


@dataclass(frozen=True)
class Size:
    """A use of a size: an expression over symbols."""

    text: str


# Lists are tuples; dtypes, layouts and memory formats are the objects of torch.
Argument: TypeAlias = (
    "Ref | Size | int | float | bool | str"
    " | torch.dtype | torch.memory_format | torch.layout | tuple[Argument, ...] | None"
)


def leaves_of(argument: Argument) -> Iterator[Argument]:
    """Yield an argument, or all that is in it if it is a list."""
    if isinstance(argument, tuple):
        for one in argument:
            yield from leaves_of(one)
    else:
        yield argument


def names_in(argument: Argument) -> list[str]:
    """Return the names of values in an argument."""
    return [one.name for one in leaves_of(argument) if isinstance(one, Ref)]


def mapped(argument: Argument, change: Callable[[Any], Any]) -> Any:
    """Return an argument with each leaf changed; lists stay lists."""
    return tuple(mapped(one, change) for one in argument) if isinstance(argument, tuple) else change(argument)


@dataclass(frozen=True)
class Body:
    """A function that control flow calls.

    Attributes:
        name: A Python name that nothing else in the program has.
        inputs: Names of its parameters.
        steps: Calls in order.
        outputs: What it returns.
    """

    name: str
    inputs: tuple[str, ...]
    steps: tuple[Call, ...]
    outputs: tuple[Argument, ...]


@dataclass(frozen=True)
class Call:
    """A call of an operator.

    Attributes:
        op: `aten.add.Tensor`, or one of the higher-order operators `cond`, `map`, `scan`, `while_loop`.
        args: As the schema has them. Without the bodies, higher-order operators have `cond(predicate, operands)`,
            `map(slices, extras)`, `scan(carried, slices, extras)` and `while_loop(carried, extras)`; all but the
            predicate are lists of values, and slices are taken along the first dim.
        kwargs: By name, in any order.
        results: A name for each result, or for each element where the operator returns a list; None for one that
            is not used. Empty where the operator returns nothing.
        bodies: Functions that a higher-order operator calls: two for `cond` (if true, if false) and `while_loop`
            (whether to go on, one turn), else one.
    """

    op: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...] = ()
    results: tuple[str | None, ...] = ()
    bodies: tuple[Body, ...] = ()

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """All arguments, named ones last."""
        return (*self.args, *(value for _, value in self.kwargs))

    def with_arguments(self, change: Callable[[Any], Any]) -> Call:
        """Return the call with each leaf of its arguments changed."""
        kwargs = tuple((name, mapped(value, change)) for name, value in self.kwargs)
        return replace(self, args=mapped(self.args, change), kwargs=kwargs)


@dataclass(frozen=True)
class Input:
    """A tensor that callers give.

    Attributes:
        name: A Python name that nothing else in the program has.
        type: Its sizes may name symbols.
    """

    name: str
    type: TensorType


def _reads_of(steps: Iterable[Call]) -> Iterator[Argument]:
    for step in steps:
        yield from leaves_of(step.arguments)
        for body in step.bodies:
            yield from _reads_of(body.steps)
            yield from leaves_of(body.outputs)


@dataclass(frozen=True)
class Method:
    """One entry point.

    Attributes:
        name: Of the method.
        inputs: In order.
        steps: Calls in order.
        outputs: What it returns: values, numbers or None.
        updates: At the end of a run, what is written to which buffer or input; all values are read before any is
            written.
    """

    name: str
    inputs: tuple[Input, ...]
    steps: tuple[Call, ...]
    outputs: tuple[Argument, ...]
    updates: tuple[tuple[str, Ref], ...] = ()

    def reads(self) -> Iterator[Argument]:
        """Yield the leaves of all arguments, outputs and sources of updates, those of bodies included."""
        yield from _reads_of(self.steps)
        yield from leaves_of(self.outputs)
        yield from (source for _, source in self.updates)

    @property
    def names_read(self) -> set[str]:
        """Names of the values that the method reads; bodies read nothing but what they are given."""
        steps = {name for step in self.steps for name in names_in(step.arguments)}
        return steps | {*names_in(self.outputs), *(source.name for _, source in self.updates)}


@dataclass(frozen=True)
class Run:
    """One call of a method; runs follow each other on one loaded program, so that state goes on.

    Attributes:
        method: Name of the method.
        sizes: Value of every symbol.
        inputs: Contents of every input.
    """

    method: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, Contents] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """A program, and how it is called.

    Attributes:
        symbols: Sizes that callers choose.
        stored: Parameters, buffers and constants.
        methods: At least one; they share what is stored.
        runs: Calls, in order.
        inexact: Names of values that executors may compute differently in their last bits; all others must agree bit
            for bit.
        undecided: Names of values that a last bit may change at will (the argmax of inexact values): their shape and
            dtype are compared only.
    """

    symbols: tuple[Symbol, ...]
    stored: tuple[Stored, ...]
    methods: tuple[Method, ...]
    runs: tuple[Run, ...]
    inexact: frozenset[str] = frozenset()
    undecided: frozenset[str] = frozenset()
