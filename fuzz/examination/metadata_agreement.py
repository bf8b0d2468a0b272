"""Whether values have the dtype, the shape and the layout that the metadata of a graph says."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import TensorShapeDynamism, TensorSpec, alloc, dim_order_from_stride

from .sizes import Sizes
from .verdict import Failure


class MetadataTruth:
    """Compares values with what nodes say about them; give `observe` to a run, and read `failures` afterwards.

    Args:
        program: The program whose nodes are observed.
        stage: Its name in failures.
        is_layout_promised: The dialect promises that results have the layout that is recorded. What is handed in may
            have another one: it is copied into place.
    """

    def __init__(self, program: ExportedProgram, stage: str, *, is_layout_promised: bool = False) -> None:
        self.failures: list[Failure] = []
        self._stage = stage
        self._is_layout_promised = is_layout_promised
        self._sizes = Sizes()
        self._facts = {node: _facts_of(node) for node in program.graph.nodes}

    def begin(self) -> None:
        """Forget the sizes of the last run."""
        self._sizes = Sizes()

    def observe(self, node: Node, value: Any) -> None:
        """Examine one value."""
        if node.target is not alloc:
            self._sizes.learn(node.meta.get("val"), value)
        fact = self._facts[node]
        if fact is None or value is None:
            return
        if isinstance(fact, list | tuple):
            for place, (one, part) in enumerate(zip(fact, value, strict=False)):
                self._look(node, one, part, f"result {place}: ")
        else:
            self._look(node, fact, value, "")

    def _look(self, node: Node, fact: Any, value: Any, where: str) -> None:
        if isinstance(fact, _TensorFact):
            self._examine_tensor(node, fact, value, where)
        elif isinstance(fact, torch.SymInt) and isinstance(value, int):
            said = self._size(fact, value)
            if said != value:
                self._add(node, "number", f"{where}{value} where {fact} = {said} is recorded")

    def _examine_tensor(self, node: Node, fact: _TensorFact, value: Any, where: str) -> None:
        if not isinstance(value, torch.Tensor):
            self._add(node, "kind", f"{where}{type(value).__name__} where a tensor is recorded")
            return
        if value.dtype != fact.dtype:
            self._add(node, "dtype", f"{where}{value.dtype} where {fact.dtype} is recorded")
        if len(value.shape) != len(fact.sizes):
            self._add(node, "rank", f"{where}{list(value.shape)} where {list(fact.sizes)} is recorded")
            return
        said = [self._size(size, got) for size, got in zip(fact.sizes, value.shape, strict=True)]
        if said != list(value.shape):
            self._add(node, "shape", f"{where}{list(value.shape)} where {list(fact.sizes)} = {said} is recorded")
        elif any(size > bound for size, bound in zip(value.shape, fact.bounds, strict=False)):
            self._add(node, "bound", f"{where}{list(value.shape)} where memory is made for {list(fact.bounds)}")
        elif self._is_layout_promised and node.op != "placeholder" and not _has_order(value, fact.order):
            self._add(node, "layout", f"{where}strides {value.stride()} where dim order {fact.order} is recorded")

    def _size(self, said: Any, got: int) -> int:
        """Return the number that a size stands for in this run; what no size has shown yet is taken from the value."""
        number = self._sizes.number(said)
        return got if number is None else number

    def _add(self, node: Node, kind: str, message: str) -> None:
        self.failures.append(
            Failure(
                oracle="metadata-agreement",
                symptom=f"metadata {kind}",
                message=f"{self._stage}: %{node.name} = {node.target}: {message}",
                stage=self._stage,
                node=node.name,
                details={"operator": str(node.target)},
            )
        )


class _TensorFact:
    """What is recorded of one tensor."""

    __slots__ = ("bounds", "dtype", "order", "sizes")

    def __init__(
        self, dtype: torch.dtype, sizes: tuple[Any, ...], order: tuple[int, ...] | None, bounds: tuple[int, ...]
    ) -> None:
        self.bounds = bounds
        self.dtype = dtype
        self.sizes = sizes
        self.order = order


def _facts_of(node: Node) -> Any:
    """Return what is recorded: specs where there are any, since these are emitted, and values otherwise."""
    if node.op not in ("placeholder", "call_function") or node.target is alloc:
        return None
    recorded = node.meta.get("val")
    return _facts(recorded, node.meta.get("spec"))


def _facts(recorded: Any, spec: Any) -> Any:
    if isinstance(recorded, list | tuple):
        specs = spec if isinstance(spec, list | tuple) and len(spec) == len(recorded) else [None] * len(recorded)
        return [_facts(one, other) for one, other in zip(recorded, specs, strict=True)]
    if isinstance(recorded, torch.Tensor):
        order = _order_of_spec(spec) if isinstance(spec, TensorSpec) else _order_of(recorded)
        return _TensorFact(recorded.dtype, tuple(recorded.shape), order, _bounds_of(spec))
    return recorded if isinstance(recorded, torch.SymInt) else None


def _bounds_of(spec: Any) -> tuple[int, ...]:
    """Return the largest sizes that memory is planned for; none where the runtime finds memory, or before that."""
    if not isinstance(spec, TensorSpec) or spec.is_dynamic_unbound_tensor:
        return ()
    return tuple(spec.shape) if all(type(size) is int for size in spec.shape) else ()  # type: ignore[arg-type]


def _order_of_spec(spec: TensorSpec) -> tuple[int, ...] | None:
    """Return the promised layout; where operators make room themselves, torch decides what it is."""
    return tuple(spec.dim_order) if spec.shape_dynamism is TensorShapeDynamism.STATIC else None


def _order_of(recorded: torch.Tensor) -> tuple[int, ...] | None:
    if any(isinstance(stride, torch.SymInt) for stride in recorded.stride()):
        return None
    return tuple(dim_order_from_stride(recorded.stride()))


def _has_order(value: torch.Tensor, order: tuple[int, ...] | None) -> bool:
    """Whether memory is filled in that order of dims; dims of size 1 may stand anywhere."""
    if order is None or not value.numel():
        return True
    expected = 1
    for dim in reversed(order):
        if value.shape[dim] != 1:
            if value.stride(dim) != expected:
                return False
            expected *= value.shape[dim]
    return True
