"""Tensor cells: the memory of one tensor value, and the tensor that it currently shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from exirkit.emit import Tensor
from exirkit.ir import TensorShapeDynamism, stride_from_dim_order


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
