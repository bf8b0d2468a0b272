"""Official partitioners and backends in our chain: what they take, and what the files compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.official.backends.models import MODELS, exported
from tests.official.backends.process import ask_bridge
from tests.official.oracle import OfficialRuntime

from exirkit.emit import read_program
from exirkit.runtime_ref import Runtime

Calls = list[tuple[torch.Tensor, ...]]

pytestmark = [pytest.mark.executorch, pytest.mark.slow]


@pytest.mark.parametrize("name", MODELS)
def test_xnnpack_through_our_chain(name: str, official_runtime: OfficialRuntime) -> None:
    answer, (ours, theirs) = ask_bridge({"op": "lower", "model": name})
    ours_taken, theirs_taken = (Counter(answer[one]["taken"]) for one in ("ours", "theirs"))
    # Copies that change nothing are not there in our Edge programs, so nothing can take them.
    assert set(theirs_taken - ours_taken) <= {"dim_order_ops._clone_dim_order.default"}
    assert answer["ours"]["left"] <= answer["theirs"]["left"]
    assert 0 < answer["ours"]["delegates"] <= answer["theirs"]["delegates"]
    for pte in (ours, theirs):
        check_outputs(name, official_runtime.run(pte, _calls(name)).unwrap())


def check_outputs(name: str, results: Sequence[Sequence[Any]]) -> None:
    """Compare with eager PyTorch."""
    module = exported(name).module()
    wanted = [module(*inputs) for inputs in _calls(name)]
    for got, want in zip(results, wanted, strict=True):
        for mine, other in zip(got, [want] if isinstance(want, torch.Tensor) else want, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["any-batch", "counting", "branching"])
def test_official_edge_programs_come_in(name: str, official_runtime: OfficialRuntime) -> None:
    answer, (bare, after, before) = ask_bridge({"op": "take_in", "model": name})
    assert answer["same"], "what is taken in stays as it is"
    assert answer["views"] == [True, True], "delegates of a view are official ones"
    assert answer["delegates"][0] == 0
    assert answer["delegates"][1] == answer["delegates"][2] > 0
    for pte in (bare, after, before):
        check_outputs(name, official_runtime.run(pte, _calls(name)).unwrap())
    method = Runtime.get().load_program(bare, sanitize=True).load_method("forward")
    check_outputs(name, [list(method.execute(list(one))) for one in _calls(name)])


def test_methods_share_the_weights_of_their_delegates(official_runtime: OfficialRuntime) -> None:
    _, (both, single) = ask_bridge({"op": "share"})
    shared, alone = read_program(both), read_program(single)
    keys = [entry.key for entry in shared.program.named_data or []]
    assert keys == [entry.key for entry in alone.program.named_data or []]
    # Weights and biases of three layers, each once.
    assert len(keys) == 6
    segments = {entry.segment_index for entry in shared.program.named_data or []}
    assert len(segments) == len(keys)
    assert all(shared.program.segments[number].offset % 16 == 0 for number in segments), "XNNPACK wants 16"
    calls = _calls("any-batch")
    first, second = (official_runtime.run(both, calls, method=name).unwrap() for name in ("forward", "again"))
    for one, other in zip(first, second, strict=True):
        assert isinstance(one[0], torch.Tensor)
        torch.testing.assert_close(torch.tanh(one[0]), other[0], rtol=1e-4, atol=1e-5)
    wanted = exported("any-batch").module()
    torch.testing.assert_close(first[0][0], wanted(*calls[0]), rtol=1e-4, atol=1e-5)


POLICY = """
policy: 1
in_place: true
pools:
  - {name: sram, limit: 1 KiB, alignment: 64, priority: 1}
  - {name: dram}
rules:
  - {name: the caller reads these, kind: output, pool: dram}
"""


def test_memory_policies_in_the_official_chain(official_runtime: OfficialRuntime) -> None:
    names = ["convolutions", "attention", "any-batch", "counting"]
    _, (pte,) = ask_bridge({"op": "plan", "methods": {name: name for name in names}, "policy": POLICY})
    program = read_program(pte).program
    # What methods keep from call to call has arenas of its own, and counts for the limit as well.
    kept = sum(sum(plan.non_const_buffer_sizes[3:]) for plan in program.execution_plan)
    for plan in program.execution_plan:
        _, sram, dram, *_ = plan.non_const_buffer_sizes
        assert 0 < sram <= 1024 - kept
        assert dram > 0
        places = [getattr(plan.values[number].val, "allocation_info", None) for number in plan.outputs]
        assert {one.memory_id for one in places if one is not None} == {2}
    for name in names:
        check_outputs(name, official_runtime.run(pte, _calls(name), method=name).unwrap())


def test_buffers_shared_in_the_official_chain() -> None:
    policy = "policy: 1\npools: [{name: sram}]\nbuffers: shared\n"
    _, (pte,) = ask_bridge({"op": "plan", "methods": {"forward": "counting", "again": "counting"}, "policy": policy})
    places = []
    for plan in read_program(pte).program.execution_plan:
        values: list[Any] = [value.val for value in plan.values]
        (buffer,) = (one for one in values if _name_of(one) == "total")
        places.append((buffer.allocation_info.memory_id, buffer.allocation_info.memory_offset_low))
        assert len(plan.non_const_buffer_sizes) == 3
    assert places == [(2, 0), (2, 0)]


@pytest.mark.parametrize("algorithm", ["naive", "greedy"])
@pytest.mark.parametrize("options", [{}, {"alloc_graph_input": False, "alloc_graph_output": False, "alignment": 64}])
def test_official_planners_in_our_chain(
    algorithm: str, options: dict[str, Any], official_runtime: OfficialRuntime
) -> None:
    names = ["convolutions", "attention", "any-batch", "counting"]
    request = {"op": "plan_officially", "methods": {name: name for name in names}}
    answer, made = ask_bridge({**request, "algorithm": algorithm, "options": options})
    assert made, answer["diagnostic"]
    (pte,) = made
    program = read_program(pte).program
    (first,) = (plan for plan in program.execution_plan if plan.name == names[0])
    assert 0 < answer["end"] <= first.non_const_buffer_sizes[1], "the view shows the plan"
    for plan in program.execution_plan:
        places = [getattr(plan.values[number].val, "allocation_info", None) for number in plan.outputs]
        assert all((one is None) == bool(options) for one in places) or plan.name == "counting"
        values: list[Any] = [value.val for value in plan.values]
        infos = [one.allocation_info for one in values if getattr(one, "allocation_info", None) is not None]
        assert infos
        alignment = options.get("alignment", 16)
        assert all(one.memory_offset_low % alignment == 0 for one in infos)
    for name in names:
        check_outputs(name, official_runtime.run(pte, _calls(name), method=name).unwrap())


def test_official_planners_do_not_plan_control_flow() -> None:
    request = {"op": "plan_officially", "methods": {"forward": "choosing"}, "algorithm": "greedy", "options": {}}
    answer, _ = ask_bridge(request)
    assert "EK754" in answer["diagnostic"]
    assert "of exirkit" in answer["diagnostic"]


def _name_of(value: Any) -> str | None:
    extra = getattr(value, "extra_tensor_info", None)
    return None if extra is None else extra.fully_qualified_name


@pytest.mark.parametrize("name", ["convolutions", "any-batch"])
def test_cheap_tracing_changes_nothing_that_a_backend_makes(name: str) -> None:
    answer, _ = ask_bridge({"op": "compare", "model": name})
    assert answer["count"]
    assert answer["same"]


def _calls(name: str) -> Calls:
    """Return inputs of two calls, so that state of the first reaches the second; of two sizes where these vary."""
    torch.manual_seed(3)
    _, inputs, sizes = MODELS[name]()
    return [inputs, tuple(torch.cat([one, one]) for one in inputs) if sizes else inputs]
