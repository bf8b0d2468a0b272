"""What can be known of a method without loading it: its inputs, outputs, named tensors and arenas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exirkit.emit import ExecutionPlan, ScalarType, Tensor
from exirkit.ir import Diagnostic, Location, UsageError


class MetadataIndexError(UsageError, IndexError):
    """There is no such input, output, attribute or arena, or it is not a tensor (EK647)."""


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of the interface of a method, or one that has a name.

    The accessors are methods, as in `executorch.runtime`.
    """

    _tensor: Tensor

    def sizes(self) -> tuple[int, ...]:
        """Return the shape; the upper bound where the shape is dynamic."""
        return tuple(self._tensor.sizes)

    def dtype(self) -> ScalarType:
        """Return the element type, an integer of the format; `.dtype` of it is the torch dtype."""
        return self._tensor.scalar_type

    def dim_order(self) -> tuple[int, ...]:
        """Return the order of the dimensions in memory, outermost first."""
        return tuple(self._tensor.dim_order)

    def is_memory_planned(self) -> bool:
        """Return whether the program keeps a place for it, so that the caller's data is copied."""
        return self._tensor.allocation_info is not None

    def nbytes(self) -> int:
        """Return the size of its data in bytes; an upper bound where the shape is dynamic."""
        return self._tensor.nbytes

    def name(self) -> str | None:
        """Return the fully qualified name in the model, if the program keeps it."""
        extra = self._tensor.extra_tensor_info
        return None if extra is None else extra.fully_qualified_name

    def __repr__(self) -> str:
        return (
            f"TensorInfo(sizes={list(self.sizes())}, dtype={self.dtype().name}, "
            f"is_memory_planned={self.is_memory_planned()}, nbytes={self.nbytes()})"
        )


class MethodMetadata:
    """Facts about one method; the accessors are methods, as in `executorch.runtime`."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self._plan = plan

    def name(self) -> str:
        """Return the name of the method."""
        return self._plan.name

    def num_inputs(self) -> int:
        """Return the number of inputs that a caller supplies."""
        return len(self._plan.inputs)

    def num_outputs(self) -> int:
        """Return the number of outputs that a caller receives."""
        return len(self._plan.outputs)

    def num_attributes(self) -> int:
        """Return the number of tensors that have a name."""
        return sum(1 for _ in _named(self._plan))

    def num_instructions(self) -> int:
        """Return the number of instructions in all chains."""
        return sum(len(chain.instructions) for chain in self._plan.chains)

    def num_memory_planned_buffers(self) -> int:
        """Return the number of arenas."""
        return max(len(self._plan.non_const_buffer_sizes) - 1, 0)

    def input_tensor_meta(self, index: int) -> TensorInfo:
        """Return facts about input `index`.

        Raises:
            MetadataIndexError: EK647 if there is no such input, or it is not a tensor.
        """
        return self._info("input", self._plan.inputs, index)

    def output_tensor_meta(self, index: int) -> TensorInfo:
        """Return facts about output `index`.

        Raises:
            MetadataIndexError: EK647 if there is no such output, or it is not a tensor.
        """
        return self._info("output", self._plan.outputs, index)

    def attribute_tensor_meta(self, index: int) -> TensorInfo:
        """Return facts about the named tensor `index`.

        Raises:
            MetadataIndexError: EK647 if there is no such tensor.
        """
        return self._info("attribute", list(_named(self._plan)), index)

    def memory_planned_buffer_size(self, index: int) -> int:
        """Return the size of arena `index` in bytes; unlike memory ids in the file, the index starts at 0.

        Raises:
            MetadataIndexError: EK647 if there is no such arena.
        """
        self._check("memory planned buffer", index, self.num_memory_planned_buffers())
        return self._plan.non_const_buffer_sizes[index + 1]

    def uses_backend(self, backend_name: str) -> bool:
        """Return whether a delegate of that backend is part of the method."""
        return any(delegate.id == backend_name for delegate in self._plan.delegates)

    def _info(self, what: str, indices: Sequence[int], index: int) -> TensorInfo:
        self._check(what, index, len(indices))
        value = self._plan.values[indices[index]].val
        if not isinstance(value, Tensor):
            raise self._wrong(f"{what} {index} is not a tensor but a {type(value).__name__}", "a tensor")
        return TensorInfo(value)

    def _check(self, what: str, index: int, count: int) -> None:
        if not 0 <= index < count:
            raise self._wrong(f"there is no {what} {index}", f"0 to {count - 1}" if count else f"no {what} at all")

    def _wrong(self, message: str, expected: str) -> MetadataIndexError:
        location = Location(method=self._plan.name)
        return MetadataIndexError(Diagnostic.of("EK647", message, location=location, expected=expected))

    def __repr__(self) -> str:
        return (
            f"MethodMetadata(name={self.name()!r}, num_inputs={self.num_inputs()}, "
            f"num_outputs={self.num_outputs()}, num_instructions={self.num_instructions()})"
        )


def _named(plan: ExecutionPlan) -> Iterator[int]:
    for index, entry in enumerate(plan.values):
        value = entry.val
        extra = value.extra_tensor_info if isinstance(value, Tensor) else None
        if extra is not None and extra.fully_qualified_name is not None:
            yield index
