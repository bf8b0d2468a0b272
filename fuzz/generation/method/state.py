"""Buffers and inputs that methods write, in all orders of reading and writing."""

from __future__ import annotations

from dataclasses import replace

import torch

from exirkit.fuzz.generation.operators.binary import into_sum
from exirkit.fuzz.programs import Contents, Ref

from .extents import greatest_count
from .guards import fitting, tamed, within
from .scope import Scope
from .values import Fact, Value, is_float

_CACHES = ((33, 32), (40, 32))
"""More than 4 KiB of float32: lowering copies smaller buffers rather than to write where they lie."""


class Writes:
    """What one method writes at its end.

    Args:
        scope: The method.

    Attributes:
        updates: Buffer or input, and the value that is written.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.building = scope.building
        self.updates: dict[str, Value] = {}
        self._place: Value | None = None
        """The index that rows or columns of a cache were last written by."""

    def prepare(self) -> None:
        """Add the buffers that the method is to write, so that calls read them."""
        if self.building.requests("large_state"):
            self._prepare_cache()
        if self.building.requests("odd_state"):
            self._prepare_odd()
        if not self.building.requests("mutable_buffer"):
            return
        is_pair = self.building.requests("swapped_buffers") or self.building.requests("delayed_buffers")
        count = 2 if is_pair else self.scope.choices.integer(1, 2)
        sizes = self.building.draw_sizes((1, 3), is_static=True, nonempty=True)
        dtype = self.building.plan.dtypes[0]
        for _ in range(count):
            if not is_pair and self.scope.choices.chance(0.5):
                sizes = self.building.draw_sizes((1, 3), is_static=True, nonempty=True)
                dtype = self.scope.choices.pick(self.building.plan.dtypes)
            zeros = self.scope.choices.chance(0.4)
            contents = Contents(kind="zeros") if zeros else self.building.contents(dtype)
            value = self.building.store("buffer", dtype, sizes, contents)
            # All that is ever written stays in the interval and on the grid that readers count on.
            value.fact = state_fact(value.fact)
            self.building.written.add(value.name)
            self.scope.values.append(value)
            self.scope.must_use.append(value)
            if self.building.requests("equal_stored") and self.scope.choices.chance(0.5):
                # The same bytes at the start, and at the end not: only one of the two is written.
                kind = self.scope.choices.pick(("buffer", "constant", "parameter"))
                other = self.building.store(kind, dtype, sizes, contents)
                self.scope.values.append(other)
                self.scope.must_use.append(other)

    def _prepare_cache(self) -> None:
        """Add a buffer that is large enough to be written where it lies, or two with other numbers of rows."""
        for sizes in _CACHES[: 2 if self.scope.choices.chance(0.4) else 1]:
            value = self.building.store("buffer", torch.float32, sizes, self.building.contents(torch.float32))
            value.fact = state_fact(value.fact)
            self.building.written.add(value.name)
            self.scope.values.append(value)

    def _prepare_odd(self) -> None:
        """Add a buffer without elements, dims or with one element, one in another layout, or with zeros of a sign."""
        choices = self.scope.choices
        kind = choices.integer(0, 9)
        if kind < 6:
            (self._prepare_signed_zeros if kind < 3 else self._prepare_laid_out)()
            return
        dtype = choices.pick((torch.float32, torch.float32, torch.int64, torch.bool))
        contents = self.building.contents(dtype)
        sizes = choices.pick(((0, 3), (), (0,), (1,), (2, 0, 3), (1, 1)))
        value = self.building.store("buffer", dtype, sizes, contents)
        value.fact = state_fact(value.fact)
        self.building.written.add(value.name)
        self.scope.values.append(value)
        self.scope.must_use.append(value)

    def _prepare_laid_out(self) -> None:
        """Add a buffer that lies channels last, and combine it with an input that does."""
        sizes = (self.scope.choices.integer(1, 2), *self.scope.choices.pick(((2, 3, 3), (3, 2, 1))))
        contents = replace(self.building.contents(torch.float32), layout="channels_last")
        value = self.building.store("buffer", torch.float32, sizes, contents)
        value.fact = state_fact(value.fact)._replace(is_dense=False)
        self.building.written.add(value.name)
        given = self.scope.new_input(torch.float32, sizes, contents)
        fact = value.fact._replace(low=-4, high=4)
        self.scope.must_use += [self.scope.call("aten.add.Tensor", (value, given), fact), value]
        self.scope.values.append(value)

    def _prepare_signed_zeros(self) -> None:
        """Add a buffer of zeros that all are negative, or some, which what is divided by it shows."""
        choices = self.scope.choices
        count = choices.integer(1, 3)
        numbers = tuple(0.0 if choices.chance(0.15) else -0.0 for _ in range(count))
        value = self.building.store("buffer", torch.float32, (count,), Contents(kind="numbers", numbers=numbers))
        value.fact = state_fact(value.fact)
        self.building.written.add(value.name)
        self.scope.values.append(value)
        fact = Fact(value.dtype, value.sizes, 0, 1, None, False)
        shown = self.scope.call("aten.reciprocal.default", (value,), fact)
        # Other calls cannot take what may be infinite.
        self.scope.values.remove(shown)
        self.scope.outputs_of_unknown_size.append(shown)

    def written_values(self) -> list[Value]:
        """Return the buffers that methods of the program write."""
        return [value for value in self.building.stored_values if value.name in self.building.written]

    def write_early(self) -> None:
        """Write a buffer in the middle of a method: what is written is read, written to again, and kept at the end."""
        buffers = [one for one in self.written_values() if not _is_odd(one)]
        if not buffers:
            return
        buffer = self.scope.choices.pick(buffers)
        first = self._new_value(buffer)
        fact = buffer.fact
        written = self.scope.call("aten.copy.default", (buffer, first), fact)
        self.scope.must_use.append(written)
        again = into_sum(self.scope, written)
        second = self._settled(again, buffer)
        self.updates[buffer.name] = self.scope.call("aten.copy.default", (written, second), fact)

    def finish(self, *, is_reader: bool = False) -> None:
        """Decide what is written at the end.

        Args:
            is_reader: The method only reads the buffers that others write.
        """
        buffers = self.written_values()
        if not is_reader:
            self._pass_on(buffers)
            for buffer in buffers:
                if buffer.name not in self.updates:
                    self.updates[buffer.name] = self._shared(buffer) or self._update_of(buffer)
            if buffers and self.building.requests("old_value_read_late"):
                # What is written is known by now; the buffer still has what it had.
                into_sum(self.scope, self.scope.choices.pick([one for one in buffers if not _is_odd(one)] or buffers))
        if self.building.requests("written_input") and self.scope.inputs:
            self._write_input()

    def _pass_on(self, buffers: list[Value]) -> None:
        """Give each of two buffers what the other had, or one of them, as in a delay line."""
        is_swap = self.building.requests("swapped_buffers")
        if not (is_swap or self.building.requests("delayed_buffers")) or len(buffers) < 2:
            return
        one, other = buffers[:2]
        if one.dtype != other.dtype or one.sizes != other.sizes:
            return
        is_direct = self.scope.choices.chance(0.4)
        pairs = [(one, other), (other, one)]
        for target, source in pairs if is_swap else [self.scope.choices.pick(pairs)]:
            if is_direct:
                self.updates[target.name] = source
                continue
            fact = state_fact(target.fact)
            self.updates[target.name] = self.scope.call("aten.copy.default", (target, source), fact)

    def _shared(self, buffer: Value) -> Value | None:
        """Return what another buffer of the type becomes, at times: one value is written to both."""
        same = [value for value in self.updates.values() if value.sizes == buffer.sizes and value.dtype == buffer.dtype]
        return same[-1] if same and self.scope.choices.chance(0.25) else None

    def _update_of(self, buffer: Value) -> Value:
        """Return what a buffer becomes: all new, or a part of it overwritten."""
        if _is_odd(buffer):
            given = self.scope.new_input(buffer.dtype, buffer.sizes, self.building.contents(buffer.dtype))
            return self._copied(buffer, given) if self.scope.choices.chance(0.4) else given
        kind = self.scope.choices.integer(0, 3)
        new = self._new_value(buffer)
        if buffer.sizes in _CACHES and kind > 0:
            return self._with_columns(buffer, new) if self.scope.choices.chance(0.2) else self._with_rows(buffer, new)
        if kind == 0:
            return new if new.source == "result" else self._copied(buffer, new)
        if kind == 1:
            return self._copied(buffer, new)
        size = buffer.sizes[0]
        assert isinstance(size, int)
        if kind == 2 and size > 1:
            at = self.scope.choices.integer(0, size - 2)
            part = new.fact._replace(sizes=(size - at - 1, *buffer.sizes[1:]), is_dense=False)
            source = self.scope.call("aten.slice.Tensor", (new, 0, 0, size - at - 1), part, root=new)
            return self.scope.call(
                "aten.slice_scatter.default", (buffer, source, 0, at, size - 1), state_fact(buffer.fact)
            )
        part = new.fact._replace(sizes=buffer.sizes[1:], is_dense=False)
        source = self.scope.call("aten.select.int", (new, 0, 0), part, root=new)
        at = self.scope.choices.integer(0, size - 1)
        return self.scope.call("aten.select_scatter.default", (buffer, source, 0, at), state_fact(buffer.fact))

    def _with_rows(self, buffer: Value, new: Value) -> Value:
        """Put rows into a cache, one of them at a place that is counted from the end at times."""
        if self.scope.choices.chance(0.3):
            # Rows change places: what is put is what is overwritten.
            places = tuple(self.scope.choices.shuffled(range(greatest_count(buffer.sizes[:1]))))
            index = self.building.store(
                "constant", torch.int64, (len(places),), Contents(kind="numbers", numbers=places)
            )
            return self.scope.call("aten.index_put.default", (new, [index], new), state_fact(buffer.fact))
        index = self._two_places()
        part = new.fact._replace(sizes=(2, *buffer.sizes[1:]), is_dense=False)
        rows = self.scope.call("aten.slice.Tensor", (new, 0, 1, 3), part, root=new)
        if self.scope.choices.chance(0.4):
            # What is added to rows makes others of them, whose bounds are those of a buffer again.
            before = self.scope.call("aten.index.Tensor", (buffer, [index]), buffer.fact._replace(sizes=part.sizes))
            low, high = part.low - buffer.fact.high, part.high - buffer.fact.low
            grids = (part.bits, before.fact.bits)
            bits = None if None in grids else max(grid or 0 for grid in grids)
            added = self.scope.call("aten.sub.Tensor", (rows, before), part._replace(low=low, high=high, bits=bits))
            return self.scope.call("aten.index_put.default", (buffer, [index], added, True), state_fact(buffer.fact))
        return self.scope.call("aten.index_put.default", (buffer, [index], rows), state_fact(buffer.fact))

    def _with_columns(self, buffer: Value, new: Value) -> Value:
        part = new.fact._replace(sizes=(buffer.sizes[0], 2), is_dense=False)
        columns = self.scope.call("aten.slice.Tensor", (new, 1, 1, 3), part, root=new)
        args = (buffer, [None, self._two_places()], columns)
        return self.scope.call("aten.index_put.default", args, state_fact(buffer.fact))

    def _two_places(self) -> Value:
        """Return an index of two places, one of them counted from the end at times; or that of another cache."""
        choices = self.scope.choices
        if self._place is None or choices.chance(0.25):
            numbers = (choices.integer(2, 9), choices.pick((1, 0, -1)))
            contents = Contents(kind="numbers", numbers=numbers)
            if choices.chance(0.5):
                self._place = self.building.store("constant", torch.int64, (2,), contents)
            else:
                self._place = self.scope.new_input(torch.int64, (2,), contents)
        return self._place

    def _copied(self, buffer: Value, new: Value) -> Value:
        return self.scope.call("aten.copy.default", (buffer, new), state_fact(buffer.fact))

    def _new_value(self, buffer: Value) -> Value:
        """Return an exact value with dtype, sizes, interval and grid of a buffer."""
        exact = [value for value in self.scope.values if value.is_exact and value is not buffer]
        same = [value for value in exact if value.dtype == buffer.dtype and value.sizes == buffer.sizes]
        if same and self.scope.choices.chance(0.6):
            return self._settled(same[-1], buffer)
        if exact:
            late = [exact[-1 - self.scope.choices.integer(0, min(len(exact) - 1, 5))] for _ in range(3)]
            alike = [value for value in late if value.rank == buffer.rank or value.dtype == buffer.dtype]
            return self._settled(max(alike or late, key=lambda value: greatest_count(value.sizes)), buffer)
        return self._settled(buffer, buffer)

    def _settled(self, value: Value, buffer: Value) -> Value:
        if not value.is_exact:
            value = buffer
        made = fitting(self.scope, value, buffer.dtype, buffer.sizes)
        if not made.is_exact:
            made = fitting(self.scope, buffer, buffer.dtype, buffer.sizes)
        low, high = buffer.fact.low, buffer.fact.high
        if is_float(buffer.dtype):
            bits = buffer.fact.bits or 0
            if made.fact.bits is not None and made.fact.bits > bits:
                made = tamed(self.scope, made, min(-low, high), bits)
        return within(self.scope, made, low, high)

    def _write_input(self) -> None:
        targets = [value for value in self.scope.values if value.source == "input" and value.rank > 0]
        if not targets:
            return
        target = self.scope.choices.pick(targets)
        same = [
            value
            for value in self.scope.values
            if value.dtype == target.dtype and value.sizes == target.sizes and value.source == "result"
        ]
        made = same[-1] if same else fitting(self.scope, self.scope.values[-1], target.dtype, target.sizes)
        if made.source != "result" or made.fact.sizes != target.sizes:
            made = self.scope.call("aten.clone.default", (made,), made.fact)
        self.updates[target.name] = made

    def references(self) -> tuple[tuple[str, Ref], ...]:
        """Return the updates of the method."""
        for value in self.updates.values():
            value.uses += 1
        return tuple((name, Ref(value.name)) for name, value in self.updates.items())


def _is_odd(buffer: Value) -> bool:
    """Return whether a buffer has no dims, or no elements."""
    return not buffer.sizes or 0 in buffer.sizes


def state_fact(fact: Fact) -> Fact:
    """Return what is always true of a buffer that is written: numbers from -2 to 2, or from 0 to 2, or conditions."""
    if is_float(fact.dtype):
        return fact._replace(low=-2, high=2, bits=2)
    low = 0 if fact.low >= 0 and fact.dtype.is_signed is False else -2
    return fact._replace(low=low, high=1 if str(fact.dtype) == "torch.bool" else 2, bits=0)
