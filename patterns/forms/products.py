"""Products as lowering writes them: matrices taken out of batches, multiplied, and put back.

`aten.matmul` of larger tensors becomes views, a product of matrices or of batches of them, and a view of the result;
`aten.linear` becomes the same with the weight transposed before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import EdgeOpOverload, underlying
from exirkit.patterns.operators.arguments import argument_of, behind, canonical_arguments, passing_operators
from exirkit.patterns.syntax.expressions import compare

from .readers import FormReader, Found, Operand

_ATEN = torch.ops.aten
_VIEWS = (_ATEN.view.default, _ATEN.view_copy.default, _ATEN._unsafe_view.default, _ATEN.reshape.default)
_EXPANSIONS = (_ATEN.expand.default, _ATEN.expand_copy.default)
_PRODUCTS = frozenset(map(id, (_ATEN.mm.default, _ATEN.bmm.default, _ATEN.addmm.default)))


def _is_of_product(node: Node) -> bool:
    """Whether a call is a product of matrices, or a view of one, perhaps through calls that change nothing."""
    found: Any = node
    passing = passing_operators()
    while type(found) is Node and found.op == "call_function":
        target = found.target
        # Edge programs are full of handles, and this is asked very often.
        key = id(target._op if type(target) is EdgeOpOverload else underlying(target))
        if key in _PRODUCTS:
            return True
        if key not in passing or not found._args:
            return False
        found = found._args[0]
    return False


def _as_matmul(node: Node) -> Found:
    """Yield the operands of `aten.matmul` of which a call is the last one of its parts."""
    op = underlying(node.target)
    if op in (_ATEN.mm.default, _ATEN.bmm.default):
        arguments = canonical_arguments(node)
        yield {"self": arguments["self"], "other": arguments["mat2"]}, ()
        return
    product, sizes = _called(node.args[0]), _sizes(node)
    if product is None or sizes is None or len(sizes) < 2:
        return
    own = _sizes(product) or ()
    if not _equal(own[-1:], sizes[-1:]) or (len(own) == 3 and not _equal(own[-2:], sizes[-2:])):
        return
    if underlying(product.target) is _ATEN.bmm.default:
        arguments = canonical_arguments(product)
        for left in _operands(arguments["self"], sizes[:-2]):
            for right in _operands(arguments["mat2"], sizes[:-2]):
                if _is_broadcast(left, right, sizes[:-2]):
                    yield {"self": left, "other": right}, (product,)
    elif underlying(product.target) is _ATEN.mm.default:
        arguments = canonical_arguments(product)
        whole = _rows(arguments["self"], sizes)
        if whole is not None:
            yield {"self": whole, "other": arguments["mat2"]}, (product,)


def _as_linear(node: Node) -> Found:
    """Yield the arguments of `aten.linear` of which a call is the last one of its parts."""
    own = _of_matrices(node)
    if own is not None:
        yield {"input": own[0], "weight": own[1], "bias": own[2]}, ()
        return
    product, sizes = _called(node.args[0]) if node.args else None, _sizes(node)
    inner = None if product is None else _of_matrices(product)
    if underlying(node.target) not in _VIEWS or product is None or inner is None or sizes is None:
        return
    whole = _rows(inner[0], sizes)
    if whole is not None and _equal((_sizes(product) or ())[-1:], sizes[-1:]):
        yield {"input": whole, "weight": inner[1], "bias": inner[2]}, (product,)


def _of_matrices(node: Node) -> tuple[Node, Node, Node | None] | None:
    """Return input, weight and bias of a product with a transposed matrix."""
    op, arguments = underlying(node.target), canonical_arguments(node)
    if op is _ATEN.mm.default:
        left, right, bias = arguments["self"], arguments["mat2"], None
    elif op is _ATEN.addmm.default and arguments["alpha"] == 1 and arguments["beta"] == 1:
        left, right, bias = arguments["mat1"], arguments["mat2"], arguments["self"]
        if _sizes(bias) is None or len(_sizes(bias) or ()) != 1:
            return None
    else:
        return None
    right = _called(right)
    if right is None or not _is_transposition(right) or not isinstance(left, Node):
        return None
    weight = right.args[0]
    return (left, weight, bias) if isinstance(weight, Node) else None


def _factors(node: Node, name: str) -> Sequence[Any]:
    """Return what may be an operand of the product of which a call is the last part."""
    op = underlying(node.target)
    if op in (_ATEN.mm.default, _ATEN.bmm.default):
        return (argument_of(node, name),)
    product = _called(node.args[0])
    if product is None or underlying(product.target) not in (_ATEN.mm.default, _ATEN.bmm.default):
        return ()
    own = argument_of(product, name)
    whole = _viewed(own)
    return (own,) if whole is None else (own, whole, _expanded(whole))


_FACTORS = {
    "self": Operand("left factor", lambda node: _factors(node, "self")),
    "other": Operand("right factor", lambda node: _factors(node, "mat2")),
}
product_forms = FormReader(_as_matmul, _is_of_product, operands=_FACTORS)
"""Reads a call as `aten.matmul` if it is the last one of its parts."""
linear_forms = FormReader(_as_linear, _is_of_product)
"""Reads a call as `aten.linear` if it is the last one of its parts."""


def _is_transposition(node: Node) -> bool:
    op, arguments = underlying(node.target), canonical_arguments(node)
    if op in (_ATEN.t.default, _ATEN.t_copy.default):
        return len(_sizes(node) or ()) == 2
    if op in (_ATEN.permute.default, _ATEN.permute_copy.default):
        return bool(arguments["dims"] == [1, 0])
    if op in (_ATEN.transpose.int, _ATEN.transpose_copy.int):
        return len(_sizes(node) or ()) == 2 and {arguments["dim0"], arguments["dim1"]} == {0, 1}
    return False


def _rows(node: Node, sizes: Sequence[Any]) -> Node | None:
    """Return the tensor whose rows a matrix has, if all its sizes but the last one are those of a result."""
    for one in (node, _viewed(node)):
        own = _sizes(one)
        if own is not None and len(own) == len(sizes) and len(own) > 1 and _equal(own[:-1], sizes[:-1]):
            is_rows = one is node or _equal(own[-1:], (_sizes(node) or ())[-1:])
            if is_rows:
                return one
    return None


def _operands(node: Any, batch: Sequence[Any]) -> Iterator[Node]:
    """Yield the tensors, with batches of any number of dims, that a batch of matrices may have been made of."""
    own, whole = _sizes(node), _viewed(node)
    sizes = _sizes(whole)
    if own is None:
        return
    if _equal(own[:-2], batch):
        yield node
    if whole is None or sizes is None or len(sizes) < 2 or not _equal(sizes[-2:], own[-2:]):
        return
    if not _equal(sizes[:-2], batch):
        return
    small = _expanded(whole)
    if small is not None and _equal((_sizes(small) or ())[-2:], sizes[-2:]):
        # What was expanded for the product alone; if a rule asks for the expansion itself, that is there as well.
        yield small
    yield whole


def _is_broadcast(left: Node, right: Node, batch: Sequence[Any]) -> bool:
    """Whether the batches of two operands, broadcast together, are those of the result."""
    one, other = (_sizes(left) or ())[:-2], (_sizes(right) or ())[:-2]
    rank = max(len(one), len(other))
    if rank != len(batch):
        return False
    for at in range(1, rank + 1):
        found = [sizes[-at] for sizes in (one, other) if len(sizes) >= at]
        larger = [size for size in found if compare("==", size, 1) is not True] or [1]
        if any(compare("==", size, batch[-at]) is not True for size in larger):
            return False
    return True


def _called(value: Any) -> Node | None:
    """Return the call behind a value, through calls that give back what they were given."""
    if not isinstance(value, Node) or value.op != "call_function":
        return None
    found = behind(value)
    return found if found.op == "call_function" else None


def _viewed(node: Any) -> Node | None:
    """Return what a view shows."""
    if not isinstance(node, Node) or node.op != "call_function" or underlying(node.target) not in _VIEWS:
        return None
    source = node.args[0]
    return behind(source) if isinstance(source, Node) else None


def _expanded(node: Node) -> Node | None:
    """Return what an expansion repeats."""
    if node.op != "call_function" or underlying(node.target) not in _EXPANSIONS:
        return None
    source = node.args[0]
    return source if isinstance(source, Node) else None


def _sizes(value: Any) -> Sequence[Any] | None:
    found = value.meta.get("val") if isinstance(value, Node) else None
    return tuple(found.shape) if isinstance(found, torch.Tensor) else None


def _equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and compare("==", list(one), list(other)) is True
