"""Write-backs are right in every constellation of mutated placeholders, and make no needless copies."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.lowering import after, call_nodes, edge_program, run
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

from exirkit.ir import copy_program, ops
from exirkit.passes import WriteBackMutations

CLONE = ops.edge.dim_order_ops._clone_dim_order.default


COPY = torch.ops.aten.copy_.default


BUFFERS = ("first", "second", "third", "fourth")


class State(torch.nn.Module):
    """Four buffers, two inputs, and one result computed from each of them."""

    first: torch.Tensor
    second: torch.Tensor
    third: torch.Tensor
    fourth: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        for place, name in enumerate(BUFFERS):
            self.register_buffer(name, torch.full((2,), float(place + 1)))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(one * 10.0 for one in (self.first, self.second, self.third, self.fourth, x, y))


BASE = edge_program(State(), torch.ones(2), torch.ones(2))


def program(mutations: dict[str, str], results: list[str]) -> ExportedProgram:
    """Return a program that gives placeholders the values of other nodes and returns some.

    Args:
        mutations: Name of the value (a buffer, `x`, `y`, or one of them followed by `*`) that each owner gets.
        results: Names of the values to return.
    """
    made = copy_program(BASE)
    placeholders = made.graph.find_nodes(op="placeholder")
    targets = [spec.target or spec.arg.name for spec in made.graph_signature.input_specs]
    nodes = dict(zip(targets, placeholders, strict=True))
    output = made.graph.output_node()
    for owner, computed in zip((*BUFFERS, "x", "y"), output.args[0], strict=True):
        nodes[f"{owner}*"] = computed
    chosen: list[tuple[Any, OutputSpec]] = []
    for owner, value in mutations.items():
        kind = OutputKind.BUFFER_MUTATION if owner in BUFFERS else OutputKind.USER_INPUT_MUTATION
        chosen.append((nodes[value], OutputSpec(kind, TensorArgument(nodes[value].name), owner)))
    chosen += [(nodes[r], OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(nodes[r].name), None)) for r in results]
    output.args = (tuple(node for node, _ in chosen),)
    made.graph_signature.output_specs[:] = [spec for _, spec in chosen]
    return made


def check(mutations: dict[str, str], results: list[str]) -> ExportedProgram:
    """Compare two steps of the program with what the mutations mean; return the changed program."""
    lowered = after(program(mutations, results), WriteBackMutations())
    state = {name: torch.full((2,), float(place + 1)) for place, name in enumerate(BUFFERS)}
    for step in (100.0, 200.0):
        x, y = torch.full((2,), step), torch.full((2,), step + 1)
        old = {name: tensor.clone() for name, tensor in {**state, "x": x, "y": y}.items()}
        old |= {f"{name}*": tensor * 10.0 for name, tensor in old.items()}
        answers = run(lowered, [x, y], state)
        for owner, value in mutations.items():
            torch.testing.assert_close({**state, "x": x, "y": y}[owner], old[value])
        for answer, name in zip(answers[len(mutations) :], results, strict=True):
            torch.testing.assert_close(answer, old[name])
    return lowered


NAMES = (*BUFFERS, "x", "y")


@settings(max_examples=150)
@given(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*NAMES, *(f"{name}*" for name in NAMES)])),
    st.lists(st.sampled_from([*NAMES, *(f"{name}*" for name in NAMES)]), max_size=4),
)
def test_every_constellation(mutations: dict[str, str], results: list[str]) -> None:
    lowered = check(mutations, results)
    writes = {owner: value for owner, value in mutations.items() if owner != value}
    assert len(call_nodes(lowered, COPY)) == len(writes)
    # A copy is needed for each old value that is returned, and for each cycle of which no value is saved by that.
    saved = {name for name in results if name in writes}
    assert len(call_nodes(lowered, CLONE)) == len(saved) + sum(not (cycle & saved) for cycle in cycles(writes))


def cycles(writes: dict[str, str]) -> list[set[str]]:
    found: list[set[str]] = []
    for start in writes:
        walked, owner = [start], writes[start]
        while owner in writes and owner not in walked:
            walked.append(owner)
            owner = writes[owner]
        if owner == start and all(start not in cycle for cycle in found):
            found.append(set(walked))
    return found
