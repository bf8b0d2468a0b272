"""The value table of a loaded method: arenas, constants, and one entry for each value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    ProgramVerifyError,
    PteFile,
    String,
    Tensor,
)
from exirkit.ir import Diagnostic, Location
from exirkit.runtime_ref.checks.values import data_of, extent_nbytes, is_constant, is_external

from .cells import Heap, TensorCell

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
                Diagnostic(
                    code="EK624",
                    message=f"the arenas take {sum(sizes[1:])} bytes, which the system does not give",
                    location=Location(method=method),
                    hint="run the program on a machine with more memory, or plan it with smaller bounds",
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
