"""Calls that write in place: where they may, and the many ways in which that would be seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.ir import ops
from exirkit.passes import MemoryPlanningPass
from exirkit.program import ExecutorchProgramManager
from exirkit.runtime_ref import Runtime
from exirkit.verifiers import check_memory_plan

ROWS, WIDTH = 6, 4
Body = Callable[["State", Tensor, Tensor], Any]


class State(torch.nn.Module):
    """Two caches and a counter, written as a function says."""

    first: Tensor
    second: Tensor
    count: Tensor

    def __init__(self, body: Body, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        start = torch.arange(ROWS * WIDTH).reshape(ROWS, WIDTH).to(dtype)
        self.register_buffer("first", start.clone())
        self.register_buffer("second", start.clone() + 1)
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
        self.body = body

    def forward(self, x: Tensor, place: Tensor) -> Any:
        return self.body(self, x, place)


def rows(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.first[place] = x
    return state.first.sum(0)


def two_caches(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.first[place] = x
    state.second[place] = x + 1
    return state.first @ state.second.T


def columns_of_a_number(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.first.copy_(torch.ops.aten.index_put.default(state.first, [None, (place % 3).reshape([])], x[0, 0]))
    state.second.copy_(torch.ops.aten.index_put.default(state.second, [None, (place % 2).reshape(1, 1)], x[0, :1]))
    return state.first * state.second


def twice(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.first[place] = x
    state.first[(place + 2) % ROWS] = x * 2
    return state.first.sum(0)


def viewed_afterwards(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.first[place] = x
    return state.first.reshape(2, -1).sum(1)


def into_a_temporary(_: State, x: Tensor, place: Tensor) -> Tensor:
    return torch.cat([x, x * 2, x * 3, x, x, x]).index_put((place,), x)


def counted(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.count += 1
    state.first.copy_((state.first + x) * state.count)
    return place + 1


def by_matrix_product(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.second.copy_(state.first @ state.second.T @ state.first + x)
    return place * 2


def to_both(state: State, x: Tensor, place: Tensor) -> Tensor:
    new = state.first.index_put((place,), x)
    state.first.copy_(new)
    state.second.copy_(new)
    return new.sum(0)


def value_that_is_kept_as_well(state: State, x: Tensor, place: Tensor) -> Tensor:
    row = torch.tanh(x) + 1
    state.first[place] = row[0]
    state.count += place
    state.second.copy_(row.expand(ROWS, WIDTH) * 2)
    return state.first.sum()


def one_value_for_two_states(state: State, x: Tensor, place: Tensor) -> Tensor:
    old = state.first + state.second * 10 + place
    new = torch.cat([x] * ROWS) * 2
    state.first.copy_(new)
    state.second.copy_(new)
    return old


IN_PLACE: dict[str, tuple[Body, int]] = {
    "rows": (rows, 1),
    "two caches": (two_caches, 2),
    "columns of a number": (columns_of_a_number, 2),
    "twice": (twice, 2),
    "viewed afterwards": (viewed_afterwards, 1),
    "a temporary": (into_a_temporary, 1),
    "counted": (counted, 0),
    "a matrix product": (by_matrix_product, 0),
    "to both": (to_both, 1),
    "a value that is kept": (value_that_is_kept_as_well, 1),
    "one value for two states": (one_value_for_two_states, 0),
}
"""Functions, and how many calls of `index_put_` their programs have."""


COPIES = {"to both": 1, "one value for two states": 1}
"""Copies that are left though all may write in place."""


def reader_afterwards(state: State, x: Tensor, place: Tensor) -> Tensor:
    old = state.first * 1
    new = state.first.index_put((place,), x)
    between = new * old
    late = state.first.sum(0) + between.sum()
    state.first.copy_(new)
    return late


def view_read_afterwards(_: State, x: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    base = torch.cat([x, x, x]) + 1
    return base.view(-1).index_put((place,), x[0, :1]), base * 2


def old_value_returned(state: State, x: Tensor, place: Tensor) -> Tensor:
    old = state.first.clone()
    state.first[place] = x
    return old


def new_value_returned(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.first[place] = x
    return state.first


def two_from_one(state: State, x: Tensor, place: Tensor) -> Tensor:
    new, other = state.first.index_put((place,), x), state.first.index_put((place,), x * 2)
    state.first.copy_(new)
    return other.sum(0)


def change_of_places(state: State, x: Tensor, place: Tensor) -> Tensor:
    new = state.first.index_put((place,), x)
    old = state.second.clone()
    state.second.copy_(new)
    state.first.copy_(old)
    return new.sum(0)


def values_from_the_cache(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.first[place] = state.first[2:3] * 1
    state.second.copy_(state.second.index_put((place,), state.second.narrow(0, 1, 1)))
    return x + 1


def own_rows(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.first[torch.arange(ROWS - 1, -1, -1)] = state.first.clone()
    return state.first.sum(0) + x + place


def added(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.first.index_put_((place,), x, accumulate=True)
    return state.first.sum(0)


def at_two_indices(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.first[place, place % 3] = x[0, :1]
    return state.first.sum(0)


def under_a_mask(state: State, x: Tensor, place: Tensor) -> Tensor:
    state.first.index_put_((state.first > 3,), x[0, 0])
    return state.first.sum(0) + place


def read_by_a_branch(state: State, x: Tensor, place: Tensor) -> Tensor:
    old = state.first
    new = old.index_put((place,), x)
    chosen = torch.cond(x.sum() > 0, lambda a, b: a + b, lambda a, b: a - b, (old, new))
    state.first.copy_(new)
    return chosen


def input_that_is_only_read(_: State, x: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    return x.index_put((place * 0,), x * 2), x + 1


NOT_IN_PLACE: dict[str, Body] = {
    "a reader afterwards": reader_afterwards,
    "a reader of what it is a view of": view_read_afterwards,
    "the new value is returned": new_value_returned,
    "two from one": two_from_one,
    "buffers change places": change_of_places,
    "adds": added,
    "two indices": at_two_indices,
    "a mask": under_a_mask,
    "a branch reads the old value": read_by_a_branch,
    "an input": input_that_is_only_read,
}
SOMETIMES: dict[str, Body] = {
    "values from the cache": values_from_the_cache,
    "the old value": old_value_returned,
    "all rows of itself": own_rows,
}


def steps() -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [[torch.randn(1, WIDTH, generator=generator), torch.tensor([place])] for place in (0, 1, -1, 5, 1, -6)]


def lowered(body: Body, **config: Any) -> ExecutorchProgramManager:
    return to_edge(torch.export.export(State(body), tuple(steps()[0]))).to_executorch(ExecutorchBackendConfig(**config))


def calls(manager: ExecutorchProgramManager, name: str) -> int:
    nodes = manager.exported_program().graph.nodes
    return sum(str(node.target) == name for node in nodes if node.op == "call_function")


def listed(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


def expect(found: Sequence[Any], wanted: Sequence[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def runs_like_eager(
    manager: ExecutorchProgramManager,
    body: Body,
    official: OfficialRuntime | None = None,
    *,
    in_place: bool = False,
) -> None:
    program = manager.exported_program()
    findings = check_memory_plan(program.graph_module, graph_signature=program.graph_signature, in_place=in_place)
    assert findings == []
    eager = State(body)
    with torch.no_grad():
        wanted = [[one.clone() for one in listed(eager(*step))] for step in steps()]
    runs: list[Any] = [] if official is None else [official.run(manager.buffer, steps()).unwrap()]
    for sanitize in (False, True):
        method = Runtime.get().load_program(manager.buffer, sanitize=sanitize, in_place=in_place).load_method("forward")
        runs.append([[one.clone() for one in listed(method.execute(step))] for step in steps()])
    for run in runs:
        for found, results in zip(run, wanted, strict=True):
            expect(found, results)


CONFIGS: list[dict[str, Any]] = [
    {"optimization_level": 0, "run_reinplace_pass": True},
    {"optimization_level": 1, "run_reinplace_pass": True},
    {"optimization_level": 2, "optimize_for": "size", "run_reinplace_pass": True},
]
EVERY = {name: body for name, (body, _) in IN_PLACE.items()} | NOT_IN_PLACE | SOMETIMES


@pytest.mark.executorch
@pytest.mark.parametrize("name", EVERY)
def test_states_and_results_are_those_of_eager(name: str, official_runtime: OfficialRuntime) -> None:
    for config in CONFIGS:
        made = lowered(EVERY[name], **config)
        runs_like_eager(made, EVERY[name], official_runtime)
        if name in NOT_IN_PLACE:
            assert not calls(made, "aten.index_put_.default")


@pytest.mark.parametrize("name", IN_PLACE)
def test_nothing_is_copied_where_nothing_sees_it(name: str) -> None:
    body, count = IN_PLACE[name]
    made = lowered(body, optimization_level=0, run_reinplace_pass=True)
    assert calls(made, "aten.index_put_.default") == count
    assert not calls(made, "aten.index_put.out")
    made = lowered(body, optimization_level=1, run_reinplace_pass=True)
    assert calls(made, "aten.copy_.default") == COPIES.get(name, 0)


def test_without_the_flag_level_0_writes_back() -> None:
    made = lowered(two_caches, optimization_level=0)
    assert calls(made, "aten.index_put.out") == calls(made, "aten.copy_.default") == 2


def test_large_caches_are_written_in_place_from_level_1_on() -> None:
    class Large(torch.nn.Module):
        cache: Tensor

        def __init__(self, count: int) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(count, 16))

        def forward(self, x: Tensor, place: Tensor) -> Tensor:
            self.cache[place] = x
            return self.cache.sum(0)

    inputs = (torch.ones(1, 16), torch.tensor([3]))
    for count, is_in_place in ((63, False), (64, True)):
        made = to_edge(torch.export.export(Large(count), inputs)).to_executorch()
        assert bool(calls(made, "aten.index_put_.default")) is is_in_place


def test_targets_without_the_kernel_keep_the_copies() -> None:
    made = lowered(two_caches, run_reinplace_pass=True, target="any")
    assert calls(made, "aten.index_put_.default") == 2
    made = lowered(two_caches, target="any")
    assert not calls(made, "aten.index_put_.default")


def test_extra_operators_take_the_place_of_an_argument() -> None:
    def chain(_: State, x: Tensor, place: Tensor) -> Tensor:
        return torch.tanh(torch.sin(x * 2) + 1) * place

    extra = {ops.edge.aten.sin.default, ops.edge.aten.add.Tensor, ops.edge.aten.tanh.default}
    before = lowered(chain, optimization_level=0)
    after = lowered(chain, optimization_level=0, reinplace_extra_ops=extra)
    runs_like_eager(after, chain)
    graphs = [one.exported_program().graph for one in (before, after)]
    specs = [{node.meta["spec"] for node in graph.nodes if "spec" in node.meta} for graph in graphs]
    assert len(specs[0]) - len(specs[1]) == 3


def test_a_value_in_memory_of_another_does_not_move_to_a_state() -> None:
    def read_in_between(state: State, x: Tensor, place: Tensor) -> Tensor:
        new = torch.cat([x] * ROWS) * 2
        old = state.first + place
        state.first.copy_(torch.relu(new))
        return old

    extra = {ops.edge.aten.relu.default}
    runs_like_eager(lowered(read_in_between, optimization_level=1, reinplace_extra_ops=extra), read_in_between)


def test_a_value_in_memory_of_another_lies_over_no_third() -> None:
    """The planner lets results lie over arguments, too: one that has a place already is live from when that was."""

    def product(_: State, x: Tensor, place: Tensor) -> Tensor:
        one, other = torch.sin(x), torch.cos(x)
        return one * other + place

    planner = MemoryPlanningPass(in_place=True)
    extra = {ops.edge.aten.mul.Tensor}
    made = lowered(product, optimization_level=0, reinplace_extra_ops=extra, memory_planning_pass=planner)
    runs_like_eager(made, product, in_place=True)


@pytest.mark.parametrize("planned", [True, False])
def test_memory_of_the_caller(planned: bool) -> None:
    planner = MemoryPlanningPass(alloc_graph_input=planned, alloc_graph_output=planned)
    for body in (two_caches, counted, into_a_temporary):
        made = lowered(body, run_reinplace_pass=True, memory_planning_pass=planner)
        method = Runtime.get().load_program(made.buffer).load_method("forward")
        eager = State(body)
        for step in steps():
            expect(method.execute(step), listed(eager(*step)))


def test_mutated_inputs() -> None:
    class Writes(torch.nn.Module):
        def forward(self, cache: Tensor, x: Tensor, place: Tensor) -> Tensor:
            cache[place] = x
            return cache.sum(0)

    inputs = (torch.zeros(ROWS, WIDTH), torch.ones(1, WIDTH), torch.tensor([2]))
    made = to_edge(torch.export.export(Writes(), inputs)).to_executorch(
        ExecutorchBackendConfig(run_reinplace_pass=True)
    )
    assert calls(made, "aten.index_put_.default") == 1
    method = Runtime.get().load_program(made.buffer).load_method("forward")
    for place in (0, -1):
        given = [torch.randn(ROWS, WIDTH), torch.randn(1, WIDTH), torch.tensor([place])]
        expect(method.execute(given), [Writes()(given[0].clone(), *given[1:])])


@pytest.mark.parametrize("share", [False, True])
def test_methods_that_share_a_cache(share: bool) -> None:
    many = (torch.randn(3, WIDTH), torch.tensor([0, 1, -1]))
    programs = {
        "decode": torch.export.export(State(rows), tuple(steps()[0])),
        "prefill": torch.export.export(State(rows), many),
    }
    runs = []
    for in_place in (False, True):
        planner = MemoryPlanningPass(share_mutable_buffers=share)
        config = ExecutorchBackendConfig(
            optimization_level=0, run_reinplace_pass=in_place, memory_planning_pass=planner
        )
        program = Runtime.get().load_program(to_edge(programs).to_executorch(config).buffer, sanitize=True)
        prefill, decode = program.load_method("prefill"), program.load_method("decode")
        runs.append([prefill.execute(list(many))[0].clone()])
        runs[-1] += [decode.execute(step)[0].clone() for step in steps()]
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)
