"""Which call of a quantized program computes what a call of the float program computes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch.fx import GraphModule, Node

from exirkit.ir import FakeTensor, module_path, operator_name, source_line


@dataclass(frozen=True)
class Pairing:
    """Calls of two programs that compute the same value.

    Attributes:
        quantized: The call of the quantized program for each call of the float program, in the order of the latter.
        merged: The first of the calls of the float program that became one, by the last of them, which is paired.
        missing: Calls of the float program that give floats and have no counterpart.
    """

    quantized: dict[Node, Node]
    merged: dict[Node, Node]
    missing: tuple[Node, ...]


def pair_calls(plain: GraphModule, quantized: GraphModule) -> Pairing:
    """Pair the calls that give floats.

    Calls agree by module, source line, operator and shape; then by less, where as many are left on both sides. Of
    modules that were rewritten (`quantize_` of torchao), the values that leave them agree. A call of the float program
    that was merged into the one before it, as batch norms are into convolutions, has the counterpart of both.

    Args:
        plain: The float program, as `ExportedProgram.module()` gives it.
        quantized: The quantized one.
    """
    ours, theirs = _float_calls(plain), _float_calls(quantized)
    found: dict[Node, Node] = {}
    for key in (_by_line, _by_module, operator_of):
        _pair_equal(ours, theirs, key, found)
    _pair_results_of_modules(ours, theirs, found)
    merged = _pair_merged(plain, quantized, ours, found)
    ordered = {node: found[node] for node in ours if node in found}
    explained = {*found, *merged.values()}
    return Pairing(ordered, merged, tuple(node for node in ours if node not in explained))


def conversion(node: Node) -> str:
    """Return `quantize`, `dequantize` or `choose_qparams` if a call only converts a value or finds its parameters."""
    library, _, name = operator_name(node.target).partition(".")
    if library not in ("quantized_decomposed", "torchao"):
        return ""
    known = ("quantize", "dequantize", "choose_qparams")
    return next((one for one in known if name.lstrip("_").startswith(f"{one}_") or name.startswith(f"{one}.")), "")


def before_conversion(value: Any) -> Any:
    """Return the node whose float value another one hands on quantized and dequantized; other values unchanged."""
    while isinstance(value, Node) and conversion(value) in ("quantize", "dequantize"):
        value = value.args[0]
    return value


def operator_of(node: Node) -> str:
    """Return the operator of a call; of an element of a result, with its place."""
    name = operator_name(node.target)
    if name or not node.args:
        return name
    return f"{getattr(node.target, '__name__', node.target)} {[one for one in node.args if not isinstance(one, Node)]}"


def same_shape(one: Node, other: Node) -> bool:
    """Whether two values are tensors of the same sizes, as far as these are fixed."""
    left, right = one.meta.get("val"), other.meta.get("val")
    if not isinstance(left, FakeTensor) or not isinstance(right, FakeTensor) or left.dim() != right.dim():
        return False
    sizes = zip(left.shape, right.shape, strict=True)
    return all(a == b for a, b in sizes if type(a) is int and type(b) is int)


def _by_line(node: Node) -> tuple[str | None, ...]:
    return module_path(node), source_line(node), operator_of(node)


def _by_module(node: Node) -> tuple[str | None, ...]:
    return module_path(node), operator_of(node)


def _float_calls(module: GraphModule) -> list[Node]:
    """Return the calls that compute floats from inputs, without those that convert values."""
    varying: set[Node] = set()
    found = []
    for node in module.graph.nodes:
        if node.op == "placeholder" or varying.intersection(node.all_input_nodes):
            varying.add(node)
            value = node.meta.get("val")
            is_float = isinstance(value, FakeTensor) and value.dtype.is_floating_point
            if node.op == "call_function" and is_float and not conversion(node) and not _is_parameter(node):
                found.append(node)
    return found


def _is_parameter(node: Node) -> bool:
    return any(conversion(one) == "choose_qparams" for one in node.all_input_nodes) and not operator_name(node.target)


def _grouped(nodes: Iterable[Node], key: Callable[[Node], Any]) -> dict[Any, list[Node]]:
    groups: dict[Any, list[Node]] = defaultdict(list)
    for node in nodes:
        groups[key(node)].append(node)
    return groups


def _pair_equal(
    ours: Sequence[Node], theirs: Sequence[Node], key: Callable[[Node], Any], found: dict[Node, Node]
) -> None:
    taken = set(found.values())
    others = _grouped((node for node in theirs if node not in taken), key)
    for name, group in _grouped((node for node in ours if node not in found), key).items():
        partners = others.get(name, [])
        if len(group) == len(partners) and all(map(same_shape, group, partners)):
            found.update(zip(group, partners, strict=True))


def _pair_results_of_modules(ours: Sequence[Node], theirs: Sequence[Node], found: dict[Node, Node]) -> None:
    """Pair the last calls of each call of a module, of which nothing has a counterpart.

    Calls of the model itself are not those of one layer that was rewritten.
    """
    taken = set(found.values())
    mine, others = _runs(ours, set(found)), _runs(theirs, taken)
    for path, runs in mine.items():
        partners = others.get(path, [])
        if len(runs) == len(partners):
            found.update((a, b) for a, b in zip(runs, partners, strict=True) if same_shape(a, b))


def _runs(nodes: Sequence[Node], paired: set[Node]) -> dict[str | None, list[Node]]:
    """Return the last calls of unbroken sequences of unpaired calls of the same module, by module."""
    runs: dict[str | None, list[Node]] = defaultdict(list)
    for (path, is_paired), group in groupby(nodes, lambda node: (module_path(node), node in paired)):
        if path is not None and not is_paired:
            runs[path].append(list(group)[-1])
    return runs


def _source(node: Node) -> Node | None:
    """Return the call whose float value a call reads first, through calls with several results."""
    source = node.args[0] if node.args else None
    if isinstance(source, Node) and not isinstance(source.meta.get("val"), FakeTensor) and source.args:
        source = source.args[0]
    return source if isinstance(source, Node) else None


def _pair_merged(
    plain: GraphModule, quantized: GraphModule, ours: Sequence[Node], found: dict[Node, Node]
) -> dict[Node, Node]:
    """Give the counterpart of a call to the one after it, where only its value is there in the quantized program.

    Returns:
        The first of the calls that became one, by the last.
    """
    merged: dict[Node, Node] = {}
    (our_end,), (their_end,) = (one.graph.find_nodes(op="output") for one in (plain, quantized))
    counterparts = {**found, our_end: their_end}
    for node in ours:
        source = _source(node)
        partner = None if source is None else found.get(source)
        if node in found or source is None or partner is None or not same_shape(node, partner):
            continue
        readers = [counterparts[user] for user in node.users if user in counterparts]
        read = {before_conversion(one) for reader in readers for one in reader.all_input_nodes}
        if partner in read and len(source.users) == 1:
            found[node] = found.pop(source)
            merged[node] = merged.pop(source, source)
    return merged
