"""Symbols in sizes: where each comes from, and what is promised of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from exirkit.ir import Diagnostic, fake_mode_of

from .program_graphs import ProgramGraph, graphs_of

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def check_symbols(program: ExportedProgram) -> list[Diagnostic]:
    """Check that every symbol in a recorded value is bound by an input or by the node that finds its value out.

    Returns:
        All findings (EK320: a symbol that nothing binds, EK321: nothing is promised of a symbol, EK322: promises that
        no number keeps, EK329: a size that is promised to vary has become a number), in graph order.
    """
    graphs = graphs_of(program)
    findings = [*_impossible_ranges(program, graphs[0]), *_fixed_sizes(program, graphs[0])]
    bound: set[Any] = set()
    reported: set[Any] = set()
    for graph in graphs:
        # A body sees the symbols of its surroundings, which come first.
        for node in graph.module.graph.nodes:
            found = _symbols(node)
            if node.op == "placeholder":
                bound |= found
                findings += _unknown_ranges(graph, node, found, program, reported)
            bound |= set(node.meta.get("unbacked_bindings") or ())
            dangling = sorted(found - bound, key=str)
            if dangling:
                findings.append(_dangling(graph, node, dangling))
                # Once for each symbol: where it turns up first is where it was lost.
                bound |= found
    return findings


def _symbols(node: Node) -> set[Any]:
    found: set[Any] = set()
    value = node.meta.get("val")
    leaves = (value,) if isinstance(value, torch.Tensor) else pytree.tree_leaves(value)
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            for size in leaf.shape:
                if isinstance(size, torch.SymInt):
                    found |= size.node.expr.free_symbols
        elif isinstance(leaf, _SYMBOLIC):
            found |= leaf.node.expr.free_symbols
    return found


def _dangling(graph: ProgramGraph, node: Node, symbols: list[Any]) -> Diagnostic:
    names = ", ".join(map(str, symbols))
    return graph.finding(
        "EK320",
        node,
        f"%{node.name} speaks of {names}, which no input has and no node before it finds out",
        expected="sizes in terms of the sizes of inputs",
        hint="a value of another program, or of a node that is gone, was taken over: infer it anew",
    )


def _unknown_ranges(
    graph: ProgramGraph, node: Node, symbols: set[Any], program: ExportedProgram, reported: set[Any]
) -> Iterator[Diagnostic]:
    if graph.path:
        return
    known = {symbol for each in program.range_constraints for symbol in getattr(each, "free_symbols", ())}
    for symbol in sorted(symbols - known - reported, key=str):
        reported.add(symbol)
        yield graph.finding(
            "EK321",
            node,
            f"the program promises nothing of {symbol}, a size of input %{node.name}",
            expected=f"an entry for {symbol} in range_constraints",
            hint="keep range_constraints when you make a program from parts of another",
        )


def _impossible_ranges(program: ExportedProgram, graph: ProgramGraph) -> Iterator[Diagnostic]:
    for symbol, promised in program.range_constraints.items():
        if _is_empty(promised):
            for node in graph.module.graph.nodes:
                if getattr(symbol, "free_symbols", {symbol}) & _symbols(node):
                    yield graph.finding(
                        "EK322",
                        node,
                        f"no number is {symbol}, which is promised to be from {promised.lower} to {promised.upper}",
                        expected="a lower bound that does not exceed the upper one",
                    )
                    break


def _fixed_sizes(program: ExportedProgram, graph: ProgramGraph) -> Iterator[Diagnostic]:
    """Find symbols that torch has replaced by numbers, because somebody asked for the number of a size."""
    env = fake_mode_of(graph.module).shape_env
    if env is None:
        return
    for symbol, promised in program.range_constraints.items():
        number = env.replacements.get(symbol)
        if not isinstance(number, sympy.Integer) or not promised.lower < promised.upper:
            continue
        for node in graph.module.graph.find_nodes(op="placeholder"):
            if symbol in _symbols_as_recorded(node.meta.get("val")):
                yield graph.finding(
                    "EK329",
                    node,
                    f"{symbol}, a size of input %{node.name}, has become {number} everywhere in the program",
                    expected=f"a size from {promised.lower} to {promised.upper}, as promised",
                    hint="a pass compared the size or made a number of it: int(size), size == 3, range(size)",
                )
                break


def _symbols_as_recorded(value: Any) -> set[Any]:
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    # The public attribute has the number in the place of the symbol.
    return {symbol for size in sizes if isinstance(size, torch.SymInt) for symbol in size.node._expr.free_symbols}


def _is_empty(promised: Any) -> bool:
    lower, upper = promised.lower, promised.upper
    if not isinstance(lower, int | sympy.Number) or not isinstance(upper, int | sympy.Number):
        return False
    return bool(lower > upper) or bool(upper < 0)
