"""Fuzz a compiler of your own: a toy with three wrong passes, each found, blamed by name, and reduced."""

from typing import Any

import torch
from torch.fx import Graph

from exirkit.fuzz import check, generate, program_text, reduce
from exirkit.fuzz.compilers import FunctionCompiler
from exirkit.fuzz.generation import Policy
from exirkit.fuzz.triage import find_culprit, same_failure
from exirkit.ir import copy_program

aten = torch.ops.aten


def subtract_by_adding(graph: Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.sub.Tensor):
        node.target, node.kwargs = aten.add.Tensor, {"alpha": -1}  # an alpha of its own is forgotten


def clamp_from_above(graph: Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.clamp.default):
        node.args = (node.args[0], None, *node.args[2:])  # the lower limit is forgotten


def swap_operands(graph: Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.div.Tensor):
        node.args = node.args[::-1]  # right for products, not for quotients


def lower(programs: dict[str, Any], watch: Any = lambda name, programs: None) -> dict[str, Any]:
    programs = {name: copy_program(one) for name, one in programs.items()}
    for one in (subtract_by_adding, clamp_from_above, swap_operands):
        for program in programs.values():
            one(program.graph)
        watch(one.__name__, programs)
    return programs


compiler, blamed = FunctionCompiler(lower), dict[str, Any]()
names = frozenset({"aten.sub.Tensor", "aten.clamp.default", "aten.div.Tensor"})
for seed in range(40):
    program = generate(seed, Policy(operators=names, dtypes=(torch.float32,)))
    for failure in check(program, compiler=compiler, seed=seed).failures[:1]:
        blamed.setdefault(find_culprit(program, failure, compiler=compiler, seed=seed).part, (program, failure, seed))
for culprit, (program, failure, seed) in blamed.items():
    print(culprit, program_text(reduce(program, same_failure(failure, compiler=compiler, seed=seed), trials=80)))
assert {"subtract_by_adding", "clamp_from_above", "swap_operands"} == blamed.keys()
