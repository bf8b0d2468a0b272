"""In which order results lie in memory, and in which they should."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import dim_order_from_stride, is_static, pytree, sample_ints

from .dialect_runs import dialect_runs
from .examination import Examination, NotRunError
from .graph_runs import GraphFailedError, GraphSession

Order: TypeAlias = tuple[int, ...]
"""Dims from the outermost to the innermost, without those of size one."""


def order_of(value: Any) -> Order | None:
    """Return how a tensor lies in memory; None for what has no elements, or where several elements share a place."""
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return None
    dims = [dim for dim in range(value.dim()) if value.size(dim) != 1]
    if any(value.stride(dim) == 0 for dim in dims):
        return None
    return tuple(sorted(dims, key=value.stride, reverse=True))


class ExpectedLayouts:
    """The layouts that the results of a method may have: those of eager torch, where nothing is a view any more.

    A view that is a result is copied row by row, as by `view_copy`; one that was not copied is right as well. What is
    stored may be row-major too: a file has weights in that order. Right is also what torch.export has noted, where the
    kernels of eager torch do otherwise (`roll`). Row-major may be what runtimes have no other layout for, and
    what is written through a view: it is put together again from copies of views; and a result whose size happens to be
    one in a run, which torch lays out as if the size were always one.

    Args:
        examination: The program.
        method: Name of the method.
    """

    def __init__(self, examination: Examination, method: str) -> None:
        self._program = examination.exported[method]
        self._calls = examination.inputs[method]
        _, run = next(dialect_runs(examination))
        self._as_views = [one.outputs for one in run.results.get(method, [])]
        self._as_copies: list[list[Any]] | None = None
        self._noted = [_noted_order(self._program, one) for one in self._program.graph_signature.user_outputs]
        self._writes_views = any(map(_writes_view, self._program.graph.nodes))

    def first_other(self, results: Sequence[Sequence[Any]]) -> tuple[int, int, Order, Order] | None:
        """Return run, place, layout and expected layout of the first result that lies otherwise.

        Raises:
            NotRunError: Torch does not run the program without views.
        """
        for run, (outputs, expected) in enumerate(zip(results, self._as_views, strict=False)):
            for place, (got, wanted) in enumerate(zip(outputs, expected, strict=False)):
                order = order_of(got)
                if order is None or order == order_of(wanted):
                    continue
                noted = self._noted[place]
                is_fixed = noted is not None and noted.is_static
                is_open = self._writes_views or not _is_known(wanted) or (not is_fixed and 1 in wanted.shape)
                if (noted and noted.allows(order)) or (order == tuple(sorted(order)) and is_open):
                    continue
                copied = order_of(self._copies()[run][place])
                if copied is not None and order != copied:
                    return run, place, order, copied
        return None

    def _copies(self) -> list[list[Any]]:
        if self._as_copies is None:
            given = set(self._program.graph_signature.user_inputs)
            session = GraphSession(
                self._program, change=lambda node, value: row_major(node, value) if node.name not in given else value
            )
            try:
                self._as_copies = [session.run(inputs).outputs for inputs in self._calls]
            except GraphFailedError as error:
                raise NotRunError("torch does not run the program with copies for views") from error
        return self._as_copies


@dataclass(frozen=True)
class _Noted:
    """Which order torch.export has noted, dims of size one included, and whether the sizes are known."""

    order: Order
    is_static: bool

    def allows(self, order: Order) -> bool:
        """Whether dims that are longer than one in a run lie in this order."""
        return tuple(dim for dim in self.order if dim in order) == order


def _noted_order(program: ExportedProgram, name: Any) -> _Noted | None:
    """Return the layout that torch.export has noted of a result; None where places are shared."""
    value = next((node.meta.get("val") for node in program.graph.nodes if node.name == name), None)
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    sizes, steps = sample_ints(value.shape), sample_ints(value.stride())
    if any(step == 0 and size != 1 for size, step in zip(sizes, steps, strict=True)):
        return None
    return _Noted(tuple(dim_order_from_stride(value.stride(), value.shape)), is_static(value))


def _writes_view(node: Node) -> bool:
    if not getattr(getattr(node.target, "_schema", None), "is_mutable", False):
        return False
    written: Any = node.args[0]
    shown = written.args[0] if written.target is operator.getitem else written
    schema = getattr(shown.target, "_schema", None)
    return schema is not None and any(one.alias_info is not None for one in schema.returns)


def _is_known(value: torch.Tensor) -> bool:
    """Whether runtimes have the layout of a tensor: row-major, or channels last in four dims."""
    order = order_of(value)
    channels_last = tuple(dim for dim in (0, 2, 3, 1) if value.dim() == 4 and order and dim in order)
    return order is None or order in (tuple(sorted(order)), channels_last)


def row_major(node: Node, value: Any) -> Any:
    """Return a row-major copy of what is stored, of what an operator shows of its argument, and of counted results."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        shown = [one.alias_info for one in schema.returns]
        is_view = any(one is not None and not one.is_write for one in shown)
        # Where the number of results depends on data, torch's kernels choose a layout that no metadata has.
        is_counted = torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ())
        if not (is_view or is_counted) or node.target in _KEEP_LAYOUT:
            return value
    elif node.op != "placeholder":
        return value
    return pytree.tree_map_only(torch.Tensor, lambda one: one.clone(memory_format=torch.contiguous_format), value)


_KEEP_LAYOUT: frozenset[Callable[..., Any]] = frozenset(
    [torch.ops.aten.alias.default, torch.ops.aten.detach.default, torch.ops.aten.lift_fresh.default]
)
