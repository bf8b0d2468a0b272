"""A method in the making: its values, and the calls that compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from exirkit.fuzz.programs import Argument, Body, Call, Contents, Input, Ref, Size, TensorType
from exirkit.fuzz.programs.inference import operator_named

from .building import Building, fact_of
from .dims import from_either_end
from .extents import Affine, Extent, Extents, is_static, low_of
from .values import Fact, Value, fits, is_float, is_on_grid

_MANY_INPUTS = 5
_MANY_STORED = 8


class Scope:
    """Values of one method, and its calls so far.

    Args:
        building: The program in the making.

    Attributes:
        building: Shared by all methods.
        choices: Makes all choices.
        values: What calls can use, oldest first.
        inputs: Of the method.
        contents: Of each input at a run, but for the seed.
        steps: Calls so far.
        must_use: Values that the next fitting call shall take.
        must_use_again: Those of them that some call has used already.
        extents: Sizes with symbols that inputs of this method have.
        outputs_of_unknown_size: What is returned although calls cannot find it: values of a size that data decide.
    """

    def __init__(self, building: Building) -> None:
        self.building = building
        self.choices = building.choices
        self.values: list[Value] = list(building.stored_values)
        self.inputs: list[Input] = []
        self.contents: dict[str, Contents] = {}
        self.steps: list[Call] = []
        self.must_use: list[Value] = []
        self.must_use_again: list[Value] = []
        self.extents: list[Affine] = []
        self.outputs_of_unknown_size: list[Value] = []

    # Calls.

    def call(
        self,
        op: str,
        args: Sequence[Any],
        fact: Fact,
        kwargs: Sequence[tuple[str, Any]] = (),
        *,
        root: Value | None = None,
    ) -> Value:
        """Add a call with one result and return that."""
        return self.call_several(op, args, (fact,), kwargs, root=root)[0]

    def call_several(
        self,
        op: str,
        args: Sequence[Any],
        facts: Sequence[Fact],
        kwargs: Sequence[tuple[str, Any]] = (),
        *,
        root: Value | None = None,
        bodies: tuple[Body, ...] = (),
        is_verbatim: bool = False,
    ) -> list[Value]:
        """Add a call with several results.

        Args:
            op: Name of the operator.
            args: Values, sizes, numbers and lists of them.
            facts: What each result is.
            kwargs: By name.
            root: The value whose elements the results show, if they are views.
            bodies: Functions that it calls.
            is_verbatim: The arguments are to be written as they are given.
        """
        op = _settled_op(op, args)
        if self.building.requests("dims_from_end") and not bodies and not is_verbatim:
            args, kwargs = from_either_end(self.choices, op, args, kwargs)
        used: list[Value] = []
        written = tuple(self._argument(each, used) for each in args)
        named = tuple((name, self._argument(each, used)) for name, each in kwargs)
        tainted = any(value.fact.is_undecided for value in used)
        inexact = any(value.fact.bits is None for value in used)
        source = None if root is None else root.root or root.name
        results = []
        for fact in facts:
            value = Value(self.building.name("v"), self._settled(fact, tainted, inexact), "result", root=source)
            self.building.note(value)
            results.append(value)
        if self.building.requests("argument_left_out") and not bodies:
            written, named = _with_one_left_out(op, written, named)
        self.steps.append(Call(op, written, named, tuple(value.name for value in results), bodies))
        self.values += results
        return results

    @staticmethod
    def _settled(fact: Fact, tainted: bool, inexact: bool) -> Fact:
        """Return a fact with what follows from the operands."""
        undecided = fact.is_undecided or tainted
        bits = fact.bits
        magnitude = max(abs(fact.low), abs(fact.high))
        if not is_float(fact.dtype):
            undecided = undecided or inexact
            bits = 0
        elif inexact or not is_on_grid(fact.dtype, magnitude, bits):
            bits = None
        assert fits(fact.dtype, fact.low, fact.high), fact
        if undecided == fact.is_undecided and bits == fact.bits:
            return fact
        return fact._replace(is_undecided=undecided, bits=bits)

    def _argument(self, given: Any, used: list[Value]) -> Argument:
        if isinstance(given, Value):
            given.uses += 1
            used.append(given)
            return Ref(given.name)
        if isinstance(given, Affine):
            return Size(str(given))
        if isinstance(given, list | tuple):
            return tuple(self._argument(each, used) for each in given)
        found: Argument = given
        return found

    # Operands.

    def pick(
        self,
        dtypes: Sequence[torch.dtype],
        ranks: tuple[int, int] = (0, 5),
        accept: Callable[[Value], bool] | None = None,
        *,
        nonempty: bool = False,
        static: bool = False,
    ) -> Value:
        """Return a value that a call can take: one that is there, or a fresh one.

        Args:
            dtypes: One of these.
            ranks: Number of dims, least and most.
            accept: Whether a value that is there will do; fresh ones always have to.
            nonempty: It has elements, whatever the symbols are.
            static: Its sizes are numbers.
        """
        least, most = ranks
        found = [
            value
            for value in self.values
            if value.fact.dtype in dtypes
            and least <= len(value.fact.sizes) <= most
            and not (nonempty and 0 in value.fact.sizes)
            and not (static and not is_static(value.fact.sizes))
            and (accept is None or accept(value))
        ]
        must_use = [value for value in self.must_use if value in found]
        if must_use:
            self.must_use.remove(must_use[0])
            return must_use[0]
        if found and not self._wants_fresh():
            return self._one_of(found)
        if not found and self.values and self.choices.chance(0.7):
            made = self._adapted(dtypes, ranks)
            is_fine = made is not None and (accept is None or accept(made))
            if made is not None and is_fine and (is_static(made.sizes) or not static):
                return made
        sizes = self.building.draw_sizes(ranks, is_static=static, nonempty=nonempty)
        return self.fresh(self.dtype_of(dtypes), tuple(size if self.knows(size) else 2 for size in sizes))

    def knows(self, size: Extent) -> bool:
        """Return whether something of this size can be made."""
        del size
        return True

    def _adapted(self, dtypes: Sequence[torch.dtype], ranks: tuple[int, int]) -> Value | None:
        """Return a value with a number of dims in a range, made from one of the dtypes that has more or fewer."""
        near = [value for value in self.values if value.dtype in dtypes and 0 not in value.sizes]
        if not near:
            return None
        value = self._one_of(near)
        while value.rank < ranks[0]:
            fact = value.fact._replace(sizes=(1, *value.sizes))
            value = self.call("aten.unsqueeze.default", (value, 0), fact, root=value)
        while value.rank > ranks[1]:
            if low_of(value.sizes[0]) < 1:
                return None
            fact = value.fact._replace(sizes=value.sizes[1:], is_dense=False)
            value = self.call("aten.select.int", (value, 0, low_of(value.sizes[0]) - 1), fact, root=value)
        return value

    def _wants_fresh(self) -> bool:
        is_full = len(self.inputs) >= _MANY_INPUTS and len(self.building.stored) >= _MANY_STORED
        return not is_full and self.choices.chance(self.building.plan.fresh)

    def _one_of(self, found: Sequence[Value]) -> Value:
        """Return one of several values, more often a late one and one that no call has used."""
        last = len(found) - 1
        first = found[last - min(self.choices.integer(0, last), self.choices.integer(0, last))]
        if first.uses:
            second = found[last - self.choices.integer(0, last)]
            return second if not second.uses else first
        return first

    def dtype_of(self, dtypes: Sequence[torch.dtype]) -> torch.dtype:
        """Return the dtype of something fresh."""
        wanted = [dtype for dtype in self.building.plan.dtypes if dtype in dtypes]
        if not wanted:
            return dtypes[0]
        return wanted[0] if self.choices.chance(0.5) else self.choices.pick(wanted)

    def fresh(
        self,
        dtype: torch.dtype,
        sizes: Extents,
        low: float = -2,
        high: float = 2,
        bits: int = 2,
        *,
        stored: bool = False,
    ) -> Value:
        """Return a new input, or something new that is stored."""
        contents = self.building.contents(dtype, low, high, bits)
        if is_static(sizes) and (stored or self._wants_stored()):
            kind = self.choices.pick(("parameter", "constant", "buffer", "parameter"))
            if len(sizes) == 4 and self.building.requests("channels_last") and self.choices.chance(0.5):
                contents = replace(contents, layout="channels_last")
            value = self.building.store(kind, dtype, sizes, contents)
            self.values.append(value)
            return value
        return self.new_input(dtype, sizes, contents)

    def _wants_stored(self) -> bool:
        if len(self.inputs) >= _MANY_INPUTS:
            return True
        return bool(self.inputs) and self.building.requests("stored") and self.choices.chance(0.5)

    def new_input(self, dtype: torch.dtype, sizes: Extents, contents: Contents) -> Value:
        """Return a new input."""
        name = self.building.name("x")
        written = tuple(size if isinstance(size, int) else str(size) for size in sizes)
        self.inputs.append(Input(name, TensorType(dtype, written)))
        self.contents[name] = contents
        self.extents += [size for size in sizes if isinstance(size, Affine) and size not in self.extents]
        value = Value(name, fact_of(dtype, sizes, contents), "input")
        self.values.append(value)
        return value


_COPIES = {
    "aten.select.int": "aten.select_copy.int",
    "aten.slice.Tensor": "aten.slice_copy.Tensor",
    "aten.narrow.default": "aten.narrow_copy.default",
    "aten.unbind.int": "aten.unbind_copy.int",
    "aten.split.Tensor": "aten.split_copy.Tensor",
    "aten.split_with_sizes.default": "aten.split_with_sizes_copy.default",
    "aten.diagonal.default": "aten.diagonal_copy.default",
    "aten.unfold.default": "aten.unfold_copy.default",
}


def _settled_op(op: str, args: Sequence[Any]) -> str:
    """Return an operator, or one that copies instead of one that cuts out of a tensor of several symbols.

    Whether a part lies inside such a tensor's memory is about products of symbols, of which torch cannot tell.
    """
    if op not in _COPIES or not isinstance(args[0], Value):
        return op
    return _COPIES[op] if sum(isinstance(size, Affine) for size in args[0].sizes) > 1 else op


def _with_one_left_out(
    op: str, args: tuple[Argument, ...], named: tuple[tuple[str, Argument], ...]
) -> tuple[tuple[Argument, ...], tuple[tuple[str, Argument], ...]]:
    """Leave out the first argument that has its default, and give those behind it by name."""
    known = [_default_of(op, place) for place in range(len(args))]
    for place, (given, (_, default)) in enumerate(zip(args, known, strict=True)):
        if type(given) is type(default) and given == default and place + 1 < len(args):
            behind = tuple((known[at][0], args[at]) for at in range(place + 1, len(args)))
            return args[:place], (*behind, *named)
    return args, named


_NO_DEFAULT = object()


@cache
def _default_of(op: str, place: int) -> tuple[str, object]:
    """Return the name of a parameter and its default."""
    found = operator_named(op)
    parameters = () if found is None else found._schema.arguments
    if place >= len(parameters):
        return "", _NO_DEFAULT
    one = parameters[place]
    return one.name, one.default_value if one.has_default_value() else _NO_DEFAULT


def preferred(scope: Scope, decides: bool) -> Callable[[Value], bool] | None:
    """Return what values will do for a call: those that jump take exact ones, but for a few."""
    return _is_exact if decides and scope.choices.chance(0.93) else None


def _is_exact(value: Value) -> bool:
    return value.is_exact
