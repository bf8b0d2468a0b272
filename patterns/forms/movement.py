"""Forms of operators that move data: orders of dims, sizes, parts, dtypes."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from exirkit.patterns.operators.arguments import canonical_arguments

from .readers import FormReader, Found, Reader, rank_of, recorded

# Orders of dims


def swapped(node: Node) -> Found:
    """Read a transposition with its dims in the other order."""
    arguments = canonical_arguments(node)
    yield {"self": arguments["self"], "dim0": arguments["dim1"], "dim1": arguments["dim0"]}, ()


def _order_of(node: Node) -> list[int] | None:
    """Return the order in which a call puts the dims of its argument."""
    arguments = canonical_arguments(node)
    rank = rank_of(arguments.get("self"))
    name = str(getattr(node.target, "__name__", "")) or str(node.target)
    if "dims" in arguments:
        return list(arguments["dims"]) if rank >= 0 else None
    order = list(range(rank))
    if "dim0" in arguments:
        first, second = arguments["dim0"], arguments["dim1"]
    elif rank == 2 or (rank > 2 and "mT" in name):
        first, second = rank - 2, rank - 1
    else:
        return None
    if not (type(first) is int and type(second) is int and 0 <= first < rank and 0 <= second < rank):
        return None
    order[first], order[second] = order[second], order[first]
    return order


def _as_permutation(node: Node) -> Found:
    order = _order_of(node)
    if order is not None:
        yield {"self": node.args[0], "dims": order}, ()


def _as_transposition(node: Node) -> Found:
    order = _order_of(node) or []
    moved = [dim for dim, old in enumerate(order) if dim != old]
    if len(moved) == 2:
        for first, second in (moved, moved[::-1]):
            yield {"self": node.args[0], "dim0": first, "dim1": second}, ()


def _as_last_two(node: Node) -> Found:
    order = _order_of(node)
    if order is not None and len(order) >= 2 and order == [*range(len(order) - 2), len(order) - 1, len(order) - 2]:
        yield {"self": node.args[0]}, ()


def _as_matrix_transposition(node: Node) -> Found:
    if _order_of(node) == [1, 0]:
        yield {"self": node.args[0]}, ()


_PERMUTING = ("aten.permute.default", "aten.permute_copy.default", "aten.transpose.int", "aten.transpose_copy.int",
              "aten.t.default", "aten.t_copy.default", "aten.mT.default", "aten.numpy_T.default")  # fmt: skip


# Sizes


def _as_view(node: Node) -> Found:
    """Every view that keeps the order of elements is one to the sizes of its result."""
    value, source = recorded(node), node.args[0] if node.args else None
    if value is not None and isinstance(source, Node):
        yield {"self": source, "size": list(value.shape)}, ()


def _as_reshape(node: Node) -> Found:
    for values, inner in _as_view(node):
        yield {"self": values["self"], "shape": values["size"]}, inner


_RESHAPING = ("aten.view.default", "aten.view_copy.default", "aten._unsafe_view.default", "aten.reshape.default",
              "aten.flatten.using_ints", "aten.unflatten.int")  # fmt: skip


def _as_squeeze_of_one(node: Node) -> Found:
    arguments = canonical_arguments(node)
    dims = arguments["dim"]
    if isinstance(dims, list) and len(dims) == 1:
        yield {"self": arguments["self"], "dim": dims[0]}, ()


def _as_squeeze_of_some(node: Node) -> Found:
    arguments = canonical_arguments(node)
    yield {"self": arguments["self"], "dim": [arguments["dim"]]}, ()


def _as_slice(node: Node) -> Found:
    arguments = canonical_arguments(node)
    start, length = arguments["start"], arguments["length"]
    if type(start) is int and type(length) is int and start >= 0:
        yield {"self": arguments["self"], "dim": arguments["dim"], "start": start, "end": start + length, "step": 1}, ()


_CASTING = (
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten._to_copy.default",
    "dim_order_ops._to_dim_order_copy.default",
)


def _cast(**defaults: Any) -> Reader:
    """A cast read as another operator for it, which has its defaults but for the dtype."""

    def read(node: Node) -> Found:
        value = recorded(node)
        source = node.args[0] if node.args else None
        old = recorded(source)
        if value is not None and old is not None and value.dtype != old.dtype:
            yield {"self": source, "dtype": value.dtype, **defaults}, ()

    return read


def _parts_of(node: Node) -> list[Any] | None:
    """Return the sizes of the parts into which a call splits a dim."""
    parts, arguments = node.meta.get("val"), canonical_arguments(node)
    dim = arguments.get("dim")
    if not isinstance(parts, list | tuple) or type(dim) is not int:
        return None
    return [part.shape[dim] for part in parts if isinstance(part, torch.Tensor) and dim < part.dim()]


def _as_parts(node: Node) -> Found:
    parts, arguments = _parts_of(node), canonical_arguments(node)
    if parts:
        yield {"self": arguments["self"], "split_sizes": parts, "dim": arguments["dim"]}, ()


def _as_equal_parts(node: Node) -> Found:
    parts, arguments = _parts_of(node), canonical_arguments(node)
    if parts and all(type(one) is int for one in parts) and len({*parts[:-1], parts[0]}) == 1 and parts[-1] <= parts[0]:
        yield {"self": arguments["self"], "split_size": parts[0], "dim": arguments["dim"]}, ()


def _as_chunks(node: Node) -> Found:
    parts, arguments = _parts_of(node), canonical_arguments(node)
    if parts and all(type(one) is int for one in parts) and parts[0] > 0:
        wanted = torch.empty(sum(parts)).chunk(len(parts))
        if [len(one) for one in wanted] == parts:
            yield {"self": arguments["self"], "chunks": len(parts), "dim": arguments["dim"]}, ()


def _moving(read: Reader) -> FormReader:
    """Return a reader that takes over what is moved."""
    return FormReader(read, keeps=frozenset({"self"}))


def moving_forms() -> dict[str, dict[str, Reader]]:
    """Return the forms of orders of dims, sizes and dtypes, by the operator that is written."""
    table: dict[str, dict[str, Reader]] = {}
    for written in ("aten.permute.default", "aten.permute_copy.default"):
        table[written] = dict.fromkeys(_PERMUTING, _moving(_as_permutation))
    for written in ("aten.transpose.int", "aten.transpose_copy.int"):
        table[written] = dict.fromkeys(_PERMUTING, _moving(_as_transposition))
    for written in ("aten.t.default", "aten.t_copy.default"):
        table[written] = dict.fromkeys(_PERMUTING, _moving(_as_matrix_transposition))
    table["aten.mT.default"] = dict.fromkeys(_PERMUTING, _moving(_as_last_two))
    for written in ("aten.view.default", "aten.view_copy.default", "aten._unsafe_view.default"):
        table[written] = dict.fromkeys(_RESHAPING, _moving(_as_view))
    table["aten.reshape.default"] = dict.fromkeys(_RESHAPING, _moving(_as_reshape))
    for base in ("aten.squeeze", "aten.squeeze_copy"):
        for met in ("aten.squeeze", "aten.squeeze_copy"):
            table.setdefault(f"{base}.dim", {})[f"{met}.dims"] = _as_squeeze_of_one
            table.setdefault(f"{base}.dims", {})[f"{met}.dim"] = _as_squeeze_of_some
    for written in ("aten.slice.Tensor", "aten.slice_copy.Tensor"):
        table[written] = {"aten.narrow.default": _as_slice, "aten.narrow_copy.default": _as_slice}
    table["aten.to.dtype"] = dict.fromkeys(_CASTING, _cast(non_blocking=False, copy=False, memory_format=None))
    table["aten._to_copy.default"] = dict.fromkeys(
        _CASTING, _cast(layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None)
    )
    return table


def splitting_forms() -> dict[str, dict[str, Reader]]:
    """Return the forms of splitting into parts, by the operator that is written."""
    splitting: dict[str, Reader] = {
        "aten.split_with_sizes.default": _as_parts,
        "aten.split_with_sizes_copy.default": _as_parts,
        "aten.split.Tensor": _as_equal_parts,
        "aten.split_copy.Tensor": _as_equal_parts,
        "aten.chunk.default": _as_chunks,
    }
    return {written: dict.fromkeys(splitting, reader) for written, reader in splitting.items()}
