"""Fuzz a compiler of your own: a toy with three wrong passes, each found, blamed by name, and reduced."""

from typing import Any

import torch

from exirkit.fuzz import check, generate, program_text, reduce
from exirkit.fuzz.compilers import FunctionCompiler
from exirkit.fuzz.generation import Policy
from exirkit.fuzz.triage import find_culprit, same_failure
from exirkit.ir import copy_program

aten = torch.ops.aten


def subtract_by_adding(graph: Any) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.sub.Tensor):
        node.target, node.kwargs = aten.add.Tensor, {"alpha": -1}  # an alpha of its own is forgotten


def clamp_from_above(graph: Any) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.clamp.default):
        node.args = (node.args[0], None, *node.args[2:])  # the lower limit is forgotten


def permute_back(graph: Any) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.permute.default):
        dims = [dim % len(node.args[1]) for dim in node.args[1]]
        node.args = (node.args[0], [dims.index(dim) for dim in range(len(dims))])  # right for two dims, not for three


def lower(programs: dict[str, Any], watch: Any = lambda name, programs: None) -> dict[str, Any]:
    programs = {name: copy_program(one) for name, one in programs.items()}
    for one in (subtract_by_adding, clamp_from_above, permute_back):
        for program in programs.values():
            one(program.graph)
        watch(one.__name__, programs)
    return programs


compiler, blamed = FunctionCompiler(lower), dict[str, str]()
for name in ("aten.sub.Tensor", "aten.clamp.default", "aten.permute.default"):
    programs = (generate(seed, Policy(operators=frozenset({name}), dtypes=(torch.float32,))) for seed in range(60))
    failed = ((one, check(one, compiler=compiler).failures) for one in programs)
    program, (failure, *_) = next((one, failures) for one, failures in failed if failures)
    small = reduce(program, same_failure(failure, compiler=compiler), trials=60)
    blamed[find_culprit(small, failure, compiler=compiler).part] = program_text(small)
print(*(f"{name}\n{text}" for name, text in blamed.items()), sep="\n")
assert list(blamed) == ["subtract_by_adding", "clamp_from_above", "permute_back"]
