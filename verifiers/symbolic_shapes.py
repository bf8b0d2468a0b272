"""Symbols in sizes: where each comes from, and what is promised of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from exirkit.ir import Diagnostic

from .program_graphs import ProgramGraph, graphs_of

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def check_symbols(program: ExportedProgram) -> list[Diagnostic]:
    """Check that every symbol in a recorded value is bound by an input or by the node that finds its value out.

    Returns:
        All findings (EK320: a symbol that nothing binds, EK321: nothing is promised of a symbol, EK322: promises that
        no number keeps), in graph order.
    """
    graphs = graphs_of(program)
    findings = list(_impossible_ranges(program, graphs[0]))
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


def _is_empty(promised: Any) -> bool:
    lower, upper = promised.lower, promised.upper
    if not isinstance(lower, int | sympy.Number) or not isinstance(upper, int | sympy.Number):
        return False
    return bool(lower > upper) or bool(upper < 0)
