"""Static checks of the value table: tensors fit their memory, constants their bytes, lists name what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from exirkit.emit import (
    DeviceType,
    ExecutionPlan,
    Int,
    IntList,
    OptionalTensorList,
    PteFile,
    ScalarType,
    Tensor,
    TensorDataLocation,
    TensorList,
)
from exirkit.runtime_ref.limits import Limits

from .findings import Findings

# Element types without plain storage: torch keeps scales with them, or several elements in one byte.
_UNSUPPORTED = frozenset(
    (
        ScalarType.QINT8,
        ScalarType.QUINT8,
        ScalarType.QINT32,
        ScalarType.QUINT4X2,
        ScalarType.QUINT2X4,
        ScalarType.BITS16,
    )
)

# What the items of a list name, and the least item.
_LISTS: Final[dict[type, tuple[type, int]]] = {
    IntList: (Int, 0),
    TensorList: (Tensor, 0),
    OptionalTensorList: (Tensor, -1),
}


def check_values(file: PteFile, plan: ExecutionPlan, findings: Findings, limits: Limits) -> None:
    """Check every value of a plan by itself, and the arenas that tensors are placed in."""
    _check_arenas(plan, findings, limits)
    kinds = [type(entry.val) for entry in plan.values]
    for index, kind in enumerate(kinds):
        if findings.full:
            return
        if kind in _LISTS:
            wanted, lowest = _LISTS[kind]
            listed: Any = plan.values[index].val
            _check_items(listed.items, kinds, wanted, findings, index, lowest=lowest)
        elif kind is Tensor:
            tensor: Any = plan.values[index].val
            _TensorCheck(file, plan, findings, limits, index, tensor).run()


def is_constant(tensor: Tensor) -> bool:
    """Return whether the tensor shows read-only data of the file, or of another file."""
    return tensor.allocation_info is None and (tensor.data_buffer_idx > 0 or is_external(tensor))


def is_external(tensor: Tensor) -> bool:
    """Return whether the data of the tensor is found by its name."""
    extra = tensor.extra_tensor_info
    return extra is not None and extra.location is TensorDataLocation.EXTERNAL


def extent_nbytes(tensor: Tensor) -> int:
    """Return how many bytes from the start of its memory the data of a tensor reaches."""
    elements = prod(tensor.sizes)
    return (tensor.storage_offset + elements) * tensor.scalar_type.itemsize if elements else 0


def _check_arenas(plan: ExecutionPlan, findings: Findings, limits: Limits) -> None:
    sizes = plan.non_const_buffer_sizes
    negative = [number for number, size in enumerate(sizes) if size < 0]
    for number in negative:
        findings.add("EK617", f"arena {number} has a size of {sizes[number]} bytes", expected="0 or more")
    if not negative and sum(sizes[1:]) > limits.arena_nbytes:
        findings.add(
            "EK617",
            f"the arenas take {sum(sizes[1:])} bytes",
            expected=f"at most {limits.arena_nbytes} bytes",
            hint="load with a larger `Limits.arena_nbytes` if the program is meant to be that large",
        )
    for place in plan.non_const_buffer_device or ():
        if place.device_type is not DeviceType.CPU:
            findings.add(
                "EK618",
                f"arena {place.buffer_idx} is on device {place.device_type.name}",
                expected="CPU, the only device of this runtime",
            )


def _check_items(
    items: Sequence[int], kinds: Sequence[type], wanted: type, findings: Findings, index: int, *, lowest: int
) -> None:
    count = len(kinds)
    for item in items:
        if lowest <= item < count and (item == -1 or kinds[item] is wanted):
            continue
        found = f"value {item}, a {kinds[item].__name__}" if 0 <= item < count else f"value {item}"
        findings.add(
            "EK603",
            f"the list of value {index} names {found}",
            at=f"value {index}",
            expected=f"index of a {wanted.__name__} among {count} values" + (" or -1" if lowest else ""),
        )
        return


class _TensorCheck:
    """The rules that one tensor value must keep."""

    def __init__(
        self, file: PteFile, plan: ExecutionPlan, findings: Findings, limits: Limits, index: int, tensor: Tensor
    ) -> None:
        self._file = file
        self._plan = plan
        self._findings = findings
        self._limits = limits
        self._index = index
        self._tensor = tensor

    def run(self) -> None:
        """Check shape and layout first: places in memory mean nothing before those hold."""
        if not self._has_shape():
            return
        self._check_features()
        tensor = self._tensor
        if tensor.allocation_info is not None:
            self._check_place()
        if is_external(tensor):
            self._check_external()
        elif tensor.data_buffer_idx > 0:
            self._check_data()

    def _add(self, code: str, message: str, expected: str | None = None) -> None:
        self._findings.add(code, message, at=f"value {self._index}", expected=expected)

    def _has_shape(self) -> bool:
        tensor, limits = self._tensor, self._limits
        sizes = tensor.sizes
        if len(sizes) > limits.dimensions or (sizes and min(sizes) < 0):
            expected = f"at most {limits.dimensions} dimensions of 0 or more"
            self._add("EK611", f"a tensor has the sizes {_brief(sizes)}", expected)
            return False
        if sorted(tensor.dim_order) != list(range(len(sizes))):
            self._add(
                "EK610",
                f"dim order {_brief(tensor.dim_order)} is not a permutation of {len(sizes)} dimensions",
                f"each of {list(range(len(sizes)))} once",
            )
            return False
        # A dimension of size 0 counts as 1 in the strides, which must not overflow either.
        reach = (tensor.storage_offset + prod(size or 1 for size in sizes)) * tensor.scalar_type.itemsize
        if tensor.storage_offset < 0 or reach > limits.arena_nbytes:
            self._add(
                "EK611",
                f"a tensor of sizes {_brief(sizes)} at storage offset {tensor.storage_offset} takes {reach} bytes",
                f"storage offset of 0 or more, at most {limits.arena_nbytes} bytes",
            )
            return False
        return True

    def _check_features(self) -> None:
        tensor = self._tensor
        if tensor.scalar_type in _UNSUPPORTED:
            self._add("EK618", f"element type {tensor.scalar_type.name} cannot be computed with")
        if tensor.layout != 0:
            self._add("EK618", f"layout {tensor.layout} is not supported", "0, strided")
        extra = tensor.extra_tensor_info
        if extra is not None and extra.device_type is not DeviceType.CPU:
            self._add("EK618", f"a tensor is on device {extra.device_type.name}", "CPU")

    def _check_place(self) -> None:
        tensor, sizes = self._tensor, self._plan.non_const_buffer_sizes
        place = tensor.allocation_info
        assert place is not None
        if not 1 <= place.memory_id < len(sizes):
            self._add("EK607", f"a tensor is in arena {place.memory_id}", f"1 to {len(sizes) - 1}")
            return
        itemsize = tensor.scalar_type.itemsize
        end = place.memory_offset + extent_nbytes(tensor)
        # A negative size is a finding of its own.
        if end > sizes[place.memory_id] >= 0:
            self._add(
                "EK608",
                f"a tensor takes bytes {place.memory_offset} to {end} of arena {place.memory_id}",
                f"end at most {sizes[place.memory_id]}, the size of the arena",
            )
        elif place.memory_offset % itemsize:
            self._add(
                "EK609",
                f"offset {place.memory_offset} of a tensor is not a multiple of its element size",
                f"a multiple of {itemsize}",
            )

    def _check_data(self) -> None:
        tensor = self._tensor
        extra = tensor.extra_tensor_info
        program = self._file.program
        if tensor.allocation_info is None:
            what, offsets = "constant", program.constant_segment.offsets
            count = len(offsets) or len(program.constant_buffer)
        else:
            what = "initial value"
            number = extra.mutable_data_segments_idx if extra is not None else 0
            segments = program.mutable_data_segments or []
            if number >= len(segments):
                self._add("EK623", f"mutable data segment {number} does not exist", f"one of {len(segments)}")
                return
            offsets = segments[number].offsets
            count = len(offsets)
        index = tensor.data_buffer_idx
        if index >= count:
            self._add("EK612", f"there is no {what} {index}", f"less than {count}")
        elif offsets and offsets[index] % tensor.scalar_type.itemsize and what == "constant":
            expected = f"a multiple of {tensor.scalar_type.itemsize}"
            self._add("EK609", f"{what} {index} starts at byte {offsets[index]} of its segment", expected)
        else:
            self._check_data_nbytes(what)

    def _check_data_nbytes(self, what: str) -> None:
        tensor = self._tensor
        needed, available = extent_nbytes(tensor), len(data_of(self._file, tensor))
        if available < needed:
            message = f"{what} {tensor.data_buffer_idx} has {available} bytes"
            self._add("EK613", message, f"at least {needed} bytes for sizes {_brief(tensor.sizes)}")

    def _check_external(self) -> None:
        tensor = self._tensor
        name = tensor.extra_tensor_info.fully_qualified_name if tensor.extra_tensor_info else None
        if name is None or not self._file.has_named_data(name):
            self._add("EK619", f"the data of {name!r} is in another file", "named data of this file")
        elif len(self._file.named_data(name)) < extent_nbytes(tensor):
            message = f"named data {name!r} has {len(self._file.named_data(name))} bytes"
            self._add("EK613", message, f"at least {extent_nbytes(tensor)} bytes")


def data_of(file: PteFile, tensor: Tensor) -> memoryview:
    """Return the bytes of a constant, or the initial ones of a buffer; padding behind them may be included.

    Requires: the indices of the tensor have been checked; the reader has checked the offsets.
    """
    extra = tensor.extra_tensor_info
    if extra is not None and is_external(tensor):
        return file.named_data(extra.fully_qualified_name or "")
    if tensor.allocation_info is None:
        return file.constant(tensor.data_buffer_idx)
    segment = extra.mutable_data_segments_idx if extra is not None else 0
    return file.mutable_data(tensor.data_buffer_idx, segment=segment)


def _brief(items: Sequence[int]) -> str:
    """Return a list as text, shortened if a malformed file made it long."""
    return str(list(items)) if len(items) <= 16 else f"[{', '.join(map(str, items[:16]))}, ... {len(items)} in all]"
