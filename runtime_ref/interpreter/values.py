"""The value table of a loaded method: tensor cells in arenas, constants, arguments of calls fetched from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import numpy as np
import torch

from exirkit.emit import (
    Bool,
    BoolList,
    Double,
    DoubleList,
    ExecutionPlan,
    Int,
    IntList,
    Null,
    OptionalTensorList,
    ProgramVerifyError,
    PteFile,
    String,
    Tensor,
    TensorList,
)
from exirkit.ir import Diagnostic, Location, TensorShapeDynamism, stride_from_dim_order
from exirkit.runtime_ref.checks.calls import PlanFacts, data_of, extent_nbytes, is_constant, is_external
from exirkit.runtime_ref.kernels.kernel import Kernel, Slot

from .shape_inference import ShapeInference, key_of


class StepFailure(Exception):  # noqa: N818 - never leaves the room; the interpreter makes a ModelError of it
    """One instruction cannot continue; the interpreter adds which one it is.

    Attributes:
        code: Diagnostic code.
        message: What is wrong.
        value: Index of the value that is concerned.
        expected: What would have been right.
        notes: More facts, each a line.
        hint: How to fix it.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        value: int | None = None,
        expected: str | None = None,
        notes: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.value = value
        self.expected = expected
        self.notes = notes
        self.hint = hint


class Heap:
    """Counts the memory that tensors without a largest size have while a method runs.

    Attributes:
        nbytes: Bytes that they have now.
        peak_nbytes: Most bytes that they had at once.
    """

    __slots__ = ("nbytes", "peak_nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        self.peak_nbytes = 0

    def count(self, nbytes: int) -> None:
        """Count bytes that are found, or, if negative, given back."""
        self.nbytes += nbytes
        self.peak_nbytes = max(self.peak_nbytes, self.nbytes)


class TensorCell:
    """A tensor value at run time.

    Values hold cells, not tensors, because a cell can be shared: a move makes two values one tensor, so a later
    resize or write through either is seen by both, as with the handles of the C++ runtime.

    Attributes:
        index: Index of the value in its plan.
        dtype: Element type.
        sizes: Declared sizes; the upper bound if the shape is dynamic.
        current: The tensor with its present shape, or None while there is no memory.
    """

    __slots__ = (
        "_dim_order",
        "_dynamism",
        "_flat",
        "_heap",
        "_offset",
        "_owns_memory",
        "current",
        "dtype",
        "index",
        "sizes",
    )

    def __init__(self, index: int, declared: Tensor, heap: Heap | None = None) -> None:
        self.index = index
        self._heap = heap or Heap()
        self.dtype = declared.scalar_type.dtype
        self.sizes = torch.Size(declared.sizes)
        self.current: torch.Tensor | None = None
        self._dim_order = tuple(declared.dim_order)
        self._dynamism = declared.shape_dynamism
        if declared.allocation_info is not None and not self.is_static:
            # A planned place is a bound, whatever the program says.
            self._dynamism = TensorShapeDynamism.DYNAMIC_BOUND
        self._offset = declared.storage_offset
        self._flat: torch.Tensor | None = None
        self._owns_memory = True
        if self.capacity == 0 and self._dynamism is not TensorShapeDynamism.DYNAMIC_UNBOUND:
            self.resize(self.sizes)

    @property
    def capacity(self) -> int:
        """Number of elements that the declared sizes hold."""
        return math.prod(self.sizes)

    @property
    def is_static(self) -> bool:
        """Whether the tensor keeps its shape for ever."""
        return self._dynamism is TensorShapeDynamism.STATIC

    @property
    def has_memory(self) -> bool:
        """Whether it shows memory at present."""
        return self.current is not None

    def place(self, flat: torch.Tensor, offset: int) -> None:
        """Give it memory: element `offset` of the one-dimensional tensor `flat`, behind its own storage offset."""
        self._flat = flat
        self._offset += offset
        self._owns_memory = False
        self.current = self._show(self.sizes)

    def tensor(self) -> torch.Tensor:
        """Return the present tensor; it is an error if nothing has been written yet."""
        if self.current is None:
            raise StepFailure(
                "EK652",
                f"value {self.index} is read before anything wrote to it, or after it was freed",
                value=self.index,
            )
        return self.current

    def check_shape(self, sizes: torch.Size) -> None:
        """Raise a `StepFailure` (EK651) unless the tensor may take on this shape.

        As in the C++ runtime the bound of a dynamic shape is its number of elements, not each dimension.
        """
        if sizes == self.sizes:
            return
        if self.is_static:
            raise StepFailure(
                "EK651",
                f"value {self.index} has the static shape {list(self.sizes)} and cannot become {list(sizes)}",
                value=self.index,
                expected=f"shape {list(self.sizes)}",
            )
        if len(sizes) != len(self.sizes):
            raise StepFailure(
                "EK651",
                f"value {self.index} has {len(self.sizes)} dimensions and cannot become {list(sizes)}",
                value=self.index,
                expected=f"{len(self.sizes)} dimensions",
            )
        if self._dynamism is TensorShapeDynamism.DYNAMIC_BOUND and math.prod(sizes) > self.capacity:
            raise StepFailure(
                "EK651",
                f"value {self.index} cannot become {list(sizes)}: its bound is {list(self.sizes)}",
                value=self.index,
                expected=f"at most {self.capacity} elements",
            )

    def resize(self, sizes: Sequence[int]) -> torch.Tensor:
        """Take on this shape, check the bound, find memory where there is none, and return the tensor.

        The elements keep their places in memory, so the old contents are only meaningful if the strides stay.
        """
        wanted = torch.Size(sizes)
        if self.current is not None and self.current.shape == wanted:
            return self.current
        self.check_shape(wanted)
        self._reserve(math.prod(wanted))
        self.current = self._show(wanted)
        return self.current

    def free(self) -> None:
        """Give back memory that was found at run time; planned memory stays."""
        if self._owns_memory:
            self._count(None)
            self._flat = None
            self.current = None

    def dense_like_declared(self, tensor: torch.Tensor) -> bool:
        """Return whether `tensor` lies in memory the way this value declares."""
        strides = stride_from_dim_order(tensor.shape, self._dim_order)
        return all(
            size <= 1 or have == want for size, have, want in zip(tensor.shape, tensor.stride(), strides, strict=True)
        )

    def _reserve(self, elements: int) -> None:
        if self._flat is not None and (
            self._dynamism is not TensorShapeDynamism.DYNAMIC_UNBOUND or self._offset + elements <= len(self._flat)
        ):
            return
        if self._dynamism is not TensorShapeDynamism.DYNAMIC_UNBOUND:
            elements = self.capacity
        flat = torch.empty(self._offset + elements, dtype=self.dtype)
        if self._flat is not None:
            flat[: len(self._flat)] = self._flat
        self._count(flat)
        self._flat = flat

    def _count(self, flat: torch.Tensor | None) -> None:
        if self._dynamism is TensorShapeDynamism.DYNAMIC_UNBOUND:
            self._heap.count(sum(one.nbytes * sign for one, sign in ((flat, 1), (self._flat, -1)) if one is not None))

    def _show(self, sizes: torch.Size) -> torch.Tensor:
        assert self._flat is not None
        return self._flat.as_strided(sizes, stride_from_dim_order(sizes, self._dim_order), self._offset)


ALIGNMENT_NBYTES = 16


@dataclass(frozen=True)
class Arenas:
    """The planned memory of one method, or of several that share it.

    Attributes:
        bytes_of: One tensor of bytes for each arena, by its number; entry 0 is empty.
    """

    bytes_of: Sequence[torch.Tensor]

    @classmethod
    def allocate(cls, sizes: Sequence[int], *, method: str) -> Arenas:
        """Allocate arenas of these sizes in bytes, all zero.

        The pages of a large arena are only touched when something is written to them.

        Raises:
            ProgramVerifyError: EK624 if the system does not give that much.
        """
        try:
            return cls([_zeros(0 if number == 0 else size) for number, size in enumerate(sizes)])
        except MemoryError:
            raise ProgramVerifyError(
                Diagnostic.of(
                    "EK624",
                    f"the arenas take {sum(sizes[1:])} bytes, which the system does not give",
                    location=Location(method=method),
                )
            ) from None

    def flat(self, memory_id: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a whole arena as a one-dimensional tensor."""
        return self.bytes_of[memory_id].view(dtype)


def _zeros(nbytes: int) -> torch.Tensor:
    # NumPy takes zeroed pages from the system where torch writes them one by one. The length is rounded up so that
    # an arena can be seen as elements of any size.
    rounded = -(-nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
    return torch.from_numpy(np.zeros(rounded, dtype=np.uint8))


def make_values(file: PteFile, plan: ExecutionPlan, arenas: Arenas, heap: Heap) -> list[Any]:
    """Return the entries of the value table: a `TensorCell`, a number, a text, a list of numbers, or None.

    Lists of values (boxed integers, tensors) have None: their users read the entries that they name.

    Requires: the plan has been checked.
    """
    return [_entry(file, index, each.val, arenas, heap) for index, each in enumerate(plan.values)]


_CONTENT: Final[dict[type, Callable[[Any], Any]]] = {
    Int: attrgetter("int_val"),
    Double: attrgetter("double_val"),
    Bool: attrgetter("bool_val"),
    String: attrgetter("string_val"),
    DoubleList: attrgetter("items"),
    BoolList: attrgetter("items"),
}


def _entry(file: PteFile, index: int, value: Any, arenas: Arenas, heap: Heap) -> Any:
    read = _CONTENT.get(type(value))
    if read is not None:
        return read(value)
    return _cell(file, index, value, arenas, heap) if isinstance(value, Tensor) else None


def _cell(file: PteFile, index: int, tensor: Tensor, arenas: Arenas, heap: Heap) -> TensorCell:
    cell = TensorCell(index, tensor, heap)
    reach = extent_nbytes(tensor)
    if reach == 0:
        return cell
    place = tensor.allocation_info
    if place is not None:
        cell.place(arenas.flat(place.memory_id, cell.dtype), place.memory_offset // cell.dtype.itemsize)
        if tensor.data_buffer_idx > 0 or is_external(tensor):
            target = arenas.bytes_of[place.memory_id][place.memory_offset : place.memory_offset + reach]
            target.copy_(_bytes_of(data_of(file, tensor)[:reach]))
    elif is_constant(tensor):
        cell.place(_bytes_of(data_of(file, tensor)[:reach]).view(cell.dtype), 0)
    return cell


def _bytes_of(data: memoryview) -> torch.Tensor:
    """Return a tensor of bytes that shows `data` without copying it."""
    return torch.from_numpy(np.asarray(_Shown(data)))


class _Shown:
    """Presents read-only memory to NumPy as if it could be written.

    Torch has no read-only tensors and warns about every memory that is. The static check has made sure that no
    instruction writes to a constant, so the promise to leave it alone is kept.
    """

    def __init__(self, data: memoryview) -> None:
        address = np.frombuffer(data, dtype=np.uint8).__array_interface__["data"][0]
        self.__array_interface__ = {
            "version": 3,
            "shape": (len(data),),
            "typestr": "|u1",
            "data": (address, False),
        }
        self._owner = data


Fetch = Callable[[], Any]


@dataclass
class Environment:
    """What the steps of one loaded method share.

    Attributes:
        plan: The method as it stands in the file.
        facts: What its instructions do to values.
        values: The entries of the value table, which steps read and replace.
        generator: Source of random numbers of this method.
        shape_inference: Finds the shapes of results.
    """

    plan: ExecutionPlan
    facts: PlanFacts
    values: list[Any]
    generator: torch.Generator
    shape_inference: ShapeInference = field(default_factory=ShapeInference)

    def keeps(self, index: int) -> bool:
        """Return whether a value is the same object with the same shape whenever it is there."""
        if index in self.facts.rebound:
            return False
        entry = self.values[index]
        return not isinstance(entry, TensorCell) or (entry.is_static and index not in self.facts.reshown)


@dataclass
class Arguments:
    """The arguments of one call, out arguments left out.

    Attributes:
        is_fixed: Whether they are the same objects at every run.
    """

    positional: list[Any] = field(default_factory=list)
    keywords: dict[str, Any] = field(default_factory=dict)
    is_fixed: bool = True
    _positional_fetches: list[tuple[int, Fetch]] = field(default_factory=list)
    _keyword_fetches: list[tuple[str, Fetch]] = field(default_factory=list)

    def gather(self) -> tuple[list[Any], dict[str, Any], tuple[Any, ...]]:
        """Return positional and named arguments, and a key of all that may differ from run to run.

        The key holds shapes and dtypes of tensors and values of numbers: two runs with one key give results of one
        shape, unless that depends on elements.
        """
        positional, keywords = self.positional.copy(), self.keywords.copy()
        key = []
        for place, fetch in self._positional_fetches:
            positional[place] = fetched = fetch()
            key.append(key_of(fetched))
        for name, fetch in self._keyword_fetches:
            keywords[name] = fetched = fetch()
            key.append(key_of(fetched))
        return positional, keywords, tuple(key)

    def add(self, slot: Slot, constant: Any, fetch: Fetch | None) -> None:
        """Add the next argument: a constant, or one that has to be fetched."""
        if slot.keyword:
            self.keywords[slot.name] = constant
            if fetch is not None:
                self._keyword_fetches.append((slot.name, fetch))
        else:
            if fetch is not None:
                self._positional_fetches.append((len(self.positional), fetch))
            self.positional.append(constant)


def bind_arguments(environment: Environment, kernel: Kernel, args: Sequence[int], *, cells: bool = False) -> Arguments:
    """Return the arguments of a call of `kernel` on the values `args`.

    Args:
        environment: The method.
        kernel: What is called.
        args: Indices of values, as the instruction lists them.
        cells: Pass the cells of tensors instead of the tensors.
    """
    bound = Arguments()
    for slot, index in zip(kernel.slots, args, strict=False):
        if slot.is_out:
            continue
        constant, fetch, keeps = _bind(environment, slot, index, cells=cells)
        bound.add(slot, constant, fetch)
        bound.is_fixed &= keeps
    if kernel.random:
        bound.keywords["generator"] = environment.generator
    return bound


def _bind(environment: Environment, slot: Slot, index: int, *, cells: bool) -> tuple[Any, Fetch | None, bool]:
    """Return the constant or else what fetches the argument, and whether it is the same object for ever."""
    value = environment.plan.values[index].val
    if isinstance(value, Null):
        return (environment.generator if slot.wants_generator else None), None, True
    if isinstance(value, Tensor):
        return _bind_tensor(environment, index, cells=cells)
    if isinstance(value, IntList):
        keeps = all(environment.keeps(item) for item in value.items)
        return _bind_list(keeps, [_fetch_number(environment, item) for item in value.items])
    if isinstance(value, TensorList | OptionalTensorList):
        keeps = all(item < 0 or environment.keeps(item) for item in value.items)
        fetches = [_fetch_none if item < 0 else _fetch_tensor(environment, item) for item in value.items]
        return None, lambda: [fetch() for fetch in fetches], keeps
    fetch = _fetch_number(environment, index)
    if slot.decode is not None:
        fetch = _decoded(fetch, slot.decode)
    return (fetch(), None, True) if environment.keeps(index) else (None, fetch, False)


def _bind_tensor(environment: Environment, index: int, *, cells: bool) -> tuple[Any, Fetch | None, bool]:
    keeps = environment.keeps(index)
    cell = environment.values[index]
    if cells:
        values = environment.values
        return (cell, None, True) if index not in environment.facts.rebound else (None, lambda: values[index], False)
    if keeps and cell.has_memory:
        return cell.current, None, True
    return None, _fetch_tensor(environment, index), keeps


def _bind_list(keeps: bool, fetches: list[Fetch]) -> tuple[Any, Fetch | None, bool]:
    if keeps:
        return [fetch() for fetch in fetches], None, True
    return None, lambda: [fetch() for fetch in fetches], False


def _fetch_number(environment: Environment, index: int) -> Fetch:
    values = environment.values
    return lambda: values[index]


def _fetch_tensor(environment: Environment, index: int) -> Fetch:
    values = environment.values
    if index in environment.facts.rebound:
        return lambda: values[index].tensor()
    return values[index].tensor  # type: ignore[no-any-return]


def _fetch_none() -> None:
    return None


def _decoded(fetch: Fetch, decode: Callable[[Any], Any]) -> Fetch:
    return lambda: decode(fetch())
