"""The memory sanitizer: every wrong use of a byte is found, by name, and a right one never."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.runtime_ref.assembly import BOUND, Assembly, add, assembled, copy, neg, registered
from tests.runtime_ref.byte_marking import Marker, is_right

from exirkit.emit import AllocationDetails, Buffer, ExtraTensorInfo, Program, PteFile, lay_out
from exirkit.ir import Diagnostic, ModelError
from exirkit.runtime_ref import Method, Runtime
from exirkit.runtime_ref.sanitizer.allocations import Allocation
from exirkit.runtime_ref.sanitizer.memory import Owner, ShadowMemory


def sanitized(
    asm: Assembly, inputs: Sequence[int] = (), outputs: Sequence[int] = (), *, in_place: bool = False
) -> Method:
    program = Runtime.get().load_program(asm.file(inputs, outputs), sanitize=True, in_place=in_place)
    return program.load_method("forward")


def finding(method: Method, inputs: Sequence[Any]) -> Diagnostic:
    with pytest.raises(ModelError) as caught:
        method.execute(inputs)
    [diagnostic] = caught.value.diagnostics
    return diagnostic


def names(found: Diagnostic, *values: int) -> bool:
    return all(f"value {index} (" in "\n".join((found.message, *found.notes)) for index in values)


CASES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("sanitized_programs.yaml").read_text())


@pytest.mark.parametrize("name", CASES)
def test_program(name: str) -> None:
    case = CASES[name]
    asm, values = assembled(case)
    inputs = [torch.ones(asm.declared(index).sizes) for index in asm.plan.inputs]
    method = sanitized(asm, in_place=case.get("in_place", False))
    if "results" in case:
        assert [[one.flatten()[0] for one in method.execute(inputs)] for _ in range(3)] == case["results"]
        return
    wanted, found = case["finds"], finding(method, inputs)
    if "plain" in wanted:
        assert asm.load().execute(inputs)[0].tolist() == wanted["plain"]
    assert re.fullmatch(wanted["code"], found.code)
    assert names(found, *(values[one] for one in wanted.get("names", "").split()))
    assert wanted.get("message", "") in found.message
    assert any(wanted.get("note", "") in note for note in found.notes)
    assert wanted.get("at") in (None, found.location.node)


# One finding of each kind


def test_result_over_another_result() -> None:
    asm = Assembly()
    x = asm.tensor([2, 4])
    values, places = asm.tensor([2]), asm.tensor([2], torch.int64, at=32)
    results = asm.tensor_list([values, places])
    asm.call("aten::max.dim_max", x, asm.argument(1), asm.argument(False), values, places, results)
    found = finding(sanitized(asm, [x], [values, places]), [torch.ones(2, 4)])
    assert found.code == "EK664"
    assert names(found, values, places)


def test_garbage_of_the_run_before() -> None:
    """The second run writes after it reads, as the first, which left the right numbers."""
    asm = Assembly()
    x, n, a, b = asm.tensor([4]), asm.tensor([1], torch.bool), asm.tensor([4]), asm.tensor([4])
    asm.jump_if_false(n, 2)
    neg(asm, x, a)
    neg(asm, a, b)
    method = sanitized(asm, [x, n], [b])
    method.execute([torch.ones(4), torch.tensor([True])])
    found = finding(method, [torch.ones(4), torch.tensor([False])])
    assert found.code == "EK661"
    assert names(found, a)


def test_stale_after_jumps_that_liveness_cannot_follow() -> None:
    """What a loop has written so far is found damaged when it is read."""
    asm = Assembly()
    xs, ys = asm.tensor([3, 4]), asm.tensor([3, 4], dynamism=BOUND)
    row, at, count, done = asm.tensor([4], at=48), asm.argument(0), asm.argument(3), asm.argument(False)
    out = asm.tensor([3, 4])
    asm.call("aten::select_copy.int_out", xs, asm.argument(0), at, row, row)
    asm.call("executorch_prim::et_copy_index.tensor", ys, row, at)
    asm.call("executorch_prim::add.Scalar", at, asm.argument(1), at)
    asm.call("executorch_prim::eq.Scalar", at, count, done)
    asm.jump_if_false(done, 0)
    asm.call("executorch_prim::sub.Scalar", at, count, at)
    neg(asm, ys, out)
    found = finding(sanitized(asm, [xs], [out]), [torch.ones(3, 4)])
    assert found.code in {"EK660", "EK664"}
    assert names(found, row, ys)


@pytest.mark.parametrize(("name", "where"), [("guard", "outside of arena 1"), ("neighbour", "value 2 (")])
def test_kernel_that_writes_beyond_its_tensor(name: str, where: str) -> None:
    def beyond(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        if out.is_meta:
            return out.resize_(x.shape)
        out.copy_(x)
        # As a kernel in C++ could: torch itself would not let us.
        ctypes.memset(out.data_ptr() + out.nbytes, 7, 4)
        return out

    asm = Assembly()
    x, a = asm.tensor([4]), asm.tensor([4])
    if name == "neighbour":
        neg(asm, x, asm.tensor([4]))
    with registered(f"sanitized_{name}::beyond.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", beyond):
        asm.call(f"sanitized_{name}::beyond.out", x, a, a)
        found = finding(sanitized(asm, [x], [a]), [torch.ones(4)])
    assert found.code == "EK665"
    assert where in found.message
    assert names(found, a)


def test_view_without_instruction_planned_elsewhere() -> None:
    asm = Assembly()
    x, a = asm.tensor([4]), asm.tensor([4])
    view, b = asm.tensor([2, 2], at=16), asm.tensor([2, 2])
    neg(asm, x, a)
    neg(asm, view, b)
    assert sanitized(asm, [x], [b]).execute([torch.ones(4)])[0].tolist() == [[1.0, 1.0]] * 2
    asm.declared(view).allocation_info = AllocationDetails.at(1, 12)
    found = finding(sanitized(asm), [torch.ones(4)])
    assert found.code == "EK662"
    assert names(found, view)


def test_state_that_is_loaded_over_what_another_method_has_left() -> None:
    """Fresh memory is zero, but this is not fresh any more."""
    file = PteFile(two_methods(state_at=64, temporary_at=68), None, [])
    program = Runtime.get().load_program(file, share_arenas=True, sanitize=True)
    program.load_method("negate").execute([torch.ones(4)])
    found = finding(program.load_method("count"), [torch.ones(4)])
    assert found.code in {"EK661", "EK662"}
    assert "nothing has written to it" in found.message


@pytest.mark.parametrize("operator", ["another form", "an operator that is not listed"])
def test_nothing_else_may_be_overwritten(operator: str) -> None:
    asm = Assembly()
    x = asm.tensor([2, 2])
    if operator == "another form":
        add(asm, x, x, total := asm.tensor([2, 2], dim_order=[1, 0], at=0))
    else:
        total = asm.tensor([2, 2], at=0)
        asm.call("aten::flip.out", x, asm.argument([0], "int[]"), total, total)
    assert finding(sanitized(asm, [x], [total], in_place=True), [torch.ones(2, 2)]).code == "EK664"


# What is right stays right


def test_view_of_a_part() -> None:
    asm = Assembly()
    x, a, part, b = asm.tensor([4]), asm.tensor([4]), asm.tensor([2], at=16), asm.tensor([2], at=32)
    asm.declared(part).storage_offset = 2
    neg(asm, x, a)
    neg(asm, part, b)
    assert sanitized(asm, [x], [b, a]).execute([torch.arange(4.0)])[0].tolist() == [2.0, 3.0]


def test_in_place_operators_read_and_write() -> None:
    asm = Assembly()
    x, a = asm.tensor([4]), asm.tensor([4])
    neg(asm, x, a)
    asm.call("aten::add_.Tensor", a, x, asm.argument(1), a)
    assert sanitized(asm, [x], [a]).execute([torch.ones(4)])[0].tolist() == [0.0] * 4


def test_branches_may_use_the_same_memory() -> None:
    asm = Assembly()
    p, x, y = asm.tensor([], torch.bool), asm.tensor([4]), asm.tensor([4])
    yes = asm.tensor([4])
    no = asm.tensor([4], at=48)
    assert asm.declared(yes).allocation_info == asm.declared(no).allocation_info
    asm.jump_if_false(p, 4)
    neg(asm, x, yes)
    asm.move(yes, y)
    asm.jump_if_false(asm.argument(False), 6)
    add(asm, x, x, no)
    asm.move(no, y)
    method = sanitized(asm, [p, x], [y])
    for truth in (True, False, False, True):
        assert method.execute([torch.tensor(truth), torch.ones(4)])[0].tolist() == [-1.0 if truth else 2.0] * 4


def test_dynamic_shapes_use_their_first_bytes_only() -> None:
    asm = Assembly()
    x, a, b = (asm.tensor([8], dynamism=BOUND) for _ in range(3))
    neg(asm, x, a)
    neg(asm, a, b)
    method = sanitized(asm, [x], [b])
    for size in (8, 1, 5, 2, 8):
        assert torch.equal(method.execute([torch.arange(float(size))])[0], torch.arange(float(size)))


def test_dynamic_tensor_that_grows_into_another() -> None:
    asm = Assembly()
    x = asm.tensor([8], dynamism=BOUND)
    a = asm.tensor([8], dynamism=BOUND)
    b = asm.tensor([8], dynamism=BOUND, at=48)
    c = asm.tensor([8], dynamism=BOUND, at=96)
    neg(asm, x, a)
    neg(asm, x, b)
    add(asm, a, b, c)
    method = sanitized(asm, [x], [c])
    assert method.execute([torch.ones(4)])[0].tolist() == [-2.0] * 4
    found = finding(method, [torch.ones(5)])
    assert found.code == "EK663"
    assert "bytes 48 to 52" in found.message


# State


def counter(asm: Assembly, *, at: int | None = None) -> tuple[int, int, int]:
    """Return an input, a buffer to which it is added at every run, and the sum."""
    x, state, total = asm.tensor([4]), asm.tensor([4], at=at), asm.tensor([4])
    add(asm, x, state, total)
    copy(asm, state, total)
    return x, state, total


def test_state_with_contents() -> None:
    asm = Assembly()
    x, state, total = counter(asm)
    asm.declared(state).data_buffer_idx = 1
    start = Buffer(storage=torch.full([4], 5.0).numpy().tobytes())
    image = lay_out(asm.program([x], [total]), mutable_data=[Buffer(), start])
    method = Runtime.get().load_program(image.to_bytes(), sanitize=True).load_method("forward")
    assert [method.execute([torch.ones(4)])[0].tolist()[0] for _ in range(2)] == [6.0, 7.0]


def two_methods(*, state_at: int, temporary_at: int) -> Program:
    """Return a program whose method `count` has state, and whose method `negate` has a temporary."""
    first, second = Assembly(), Assembly()
    x, _, total = counter(first, at=state_at)
    count = first.program([x], [total]).execution_plan[0]
    count.name = "count"
    y, between, out = second.tensor([4]), second.tensor([4], at=temporary_at), second.tensor([4], at=200)
    neg(second, y, between)
    neg(second, between, out)
    negate = second.program([y], [out]).execution_plan[0]
    negate.name = "negate"
    return Program(execution_plan=[count, negate], constant_buffer=first.constants)


@pytest.mark.parametrize("count_first", [True, False])
def test_state_overwritten_by_another_method(count_first: bool) -> None:
    def run(temporary_at: int) -> None:
        file = PteFile(two_methods(state_at=64, temporary_at=temporary_at), None, [])
        program = Runtime.get().load_program(file, share_arenas=True, sanitize=True)
        order = ["count", "negate"] if count_first else ["negate", "count"]
        methods = [program.load_method(name) for name in order]
        for method in [*methods, *methods]:
            method.execute([torch.ones(4)])

    run(96)
    with pytest.raises(ModelError) as caught:
        run(76)
    [found] = caught.value.diagnostics
    assert found.code == "EK663"
    assert "of method 'count'" in found.message
    assert any("in method 'negate'" in note for note in found.notes)


def test_methods_that_share_a_buffer() -> None:
    """Two methods name one buffer by its place; a third one loads late and finds the state as it is."""
    plans = []
    for name in ("one", "two"):
        asm = Assembly()
        x, state, total = asm.tensor([4]), asm.tensor([4], at=64, name="sum"), asm.tensor([4], at=80)
        add(asm, x, state, total)
        copy(asm, state, total)
        plan = asm.program([x], [total]).execution_plan[0]
        plan.name = name
        plans.append(plan)
    file = PteFile(Program(execution_plan=plans, constant_buffer=asm.constants), None, [])
    program = Runtime.get().load_program(file, share_arenas=True, sanitize=True)
    got = [program.load_method(name).execute([torch.ones(4)])[0].tolist()[0] for name in ("one", "two", "one", "two")]
    assert got == [1.0, 2.0, 3.0, 4.0]


# Against marking by hand


@st.composite
def programs(draw: st.DrawFn) -> tuple[Assembly, set[int], dict[int, int]]:
    """Return a straight program with random places, its state, and its views."""
    asm = Assembly()
    used = asm.plan.non_const_buffer_sizes[1] = 24 * draw(st.integers(3, 8))

    def tensor(length: int) -> int:
        return asm.tensor([length], at=4 * draw(st.integers(0, used // 4 - length)))

    inputs = [tensor(draw(st.integers(1, 3))) for _ in range(draw(st.integers(1, 2)))]
    state = [tensor(draw(st.integers(1, 3))) for _ in range(draw(st.integers(0, 1)))]
    views: dict[int, int] = {}
    known = [*inputs, *state]
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["cat", "cat", "cat", "view", "write back"]))
        if kind == "view":
            base = draw(st.sampled_from(known))
            base = views.get(base, base)
            view = asm.value(asm.declared(base).model_copy(deep=True))
            if draw(st.integers(0, 3)) == 0:
                length = asm.declared(base).sizes[0]
                at = 4 * draw(st.integers(0, used // 4 - length))
                asm.declared(view).allocation_info = AllocationDetails.at(1, at)
            views[view] = base
            known.append(view)
            continue
        if kind == "write back":
            pairs = [
                (to, one)
                for to in state
                for one in known
                if asm.declared(one).sizes == asm.declared(to).sizes and views.get(one, one) != to
            ]
            if pairs:
                copy(asm, *draw(st.sampled_from(pairs)))
            continue
        parts = draw(st.lists(st.sampled_from(known), min_size=1, max_size=2))
        length = sum(asm.declared(one).sizes[0] for one in parts)
        assume(4 * length <= used)
        out = tensor(length)
        asm.call("aten::cat.out", asm.tensor_list(parts), asm.argument(0), out, out)
        known.append(out)
    # What is never written back has no state, and would be read uninitialised.
    for index in state:
        source = draw(st.sampled_from([one for one in [*inputs, *known] if views.get(one, one) != index]))
        if asm.declared(source).sizes == asm.declared(index).sizes:
            copy(asm, index, source)
        else:
            fresh = asm.constant(torch.zeros(asm.declared(index).sizes))
            copy(asm, index, fresh)
    asm.program(inputs, draw(st.lists(st.sampled_from(known), min_size=1, max_size=2)))
    return asm, set(state), views


def alarm(program: Program, inputs: Sequence[torch.Tensor], views: dict[int, int], runs: int = 3) -> str | None:
    """Return the code with which a sanitized run fails, or None."""
    loaded = Runtime.get().load_program(PteFile(program, None, []), sanitize=True, views={"forward": views})
    method = loaded.load_method("forward")
    try:
        for _ in range(runs):
            method.execute(inputs)
    except ModelError as error:
        return error.code
    return None


@settings(max_examples=150)
@given(programs())
def test_alarm_if_and_only_if_marking_finds_a_conflict(made: tuple[Assembly, set[int], dict[int, int]]) -> None:
    asm, state, views = made
    inputs = [torch.ones(asm.declared(index).sizes) for index in asm.plan.inputs]
    found = alarm(asm.program(), inputs, views)
    event(f"alarm: {found}")
    assert found is None or found.startswith("EK66")
    assert (found is None) == is_right(asm.plan, state=state, views=views)


@settings(max_examples=100)
@given(programs(), programs(), st.lists(st.sampled_from("ab"), min_size=2, max_size=4))
def test_alarm_over_methods_that_share_arenas(
    first: tuple[Assembly, set[int], dict[int, int]],
    second: tuple[Assembly, set[int], dict[int, int]],
    schedule: list[str],
) -> None:
    made = {"a": first, "b": second}
    for name, (asm, state, _) in made.items():
        asm.plan.name = name
        for index in state:
            # Without names two buffers in one place would be one buffer that both methods know.
            asm.declared(index).extra_tensor_info = ExtraTensorInfo(fully_qualified_name=name)
    names = list(made)
    plans = {name: asm.plan for name, (asm, _, _) in made.items()}
    states = {name: state for name, (_, state, _) in made.items()}
    views = {name: shown for name, (_, _, shown) in made.items()}
    file = PteFile(Program(execution_plan=list(plans.values()), constant_buffer=longest_constants(made)), None, [])
    program = Runtime.get().load_program(file, share_arenas=True, sanitize=True, views=views)
    methods = {name: program.load_method(name) for name in names}
    painter = Marker(plans, states, views)
    # A buffer that is loaded over another one is found when its own method runs, so both do.
    order = [*schedule, *names]
    found = None
    try:
        for name in order:
            asm = made[name][0]
            methods[name].execute([torch.ones(asm.declared(index).sizes) for index in asm.plan.inputs])
    except ModelError as error:
        found = error.code
    event(f"alarm: {found}")
    assert found is None or found.startswith("EK66")
    assert (found is None) == all(painter.run(name) for name in order)


def longest_constants(made: dict[str, tuple[Assembly, set[int], dict[int, int]]]) -> list[Buffer]:
    """Return constants for both programs; all are zeros, so that either may use those of the other."""
    both = [asm.constants for asm, _, _ in made.values()]
    return [
        max((list_[at] for list_ in both if at < len(list_)), key=lambda one: len(one.storage))
        for at in range(max(map(len, both)))
    ]


@st.composite
def dynamic_programs(draw: st.DrawFn) -> tuple[Assembly, list[list[int]], list[dict[int, int]]]:
    """Return a program of dynamic shapes with random places, the lengths of its inputs, and of all values, by run."""
    asm = Assembly()
    used = asm.plan.non_const_buffer_sizes[1] = 4 * draw(st.integers(16, 48))

    def tensor(length: int) -> int:
        return asm.tensor([length], dynamism=BOUND, at=4 * draw(st.integers(0, used // 4 - length)))

    inputs = [tensor(4) for _ in range(draw(st.integers(1, 2)))]
    parts_of: dict[int, list[int]] = {}
    known = [*inputs]
    for _ in range(draw(st.integers(1, 5))):
        parts = draw(st.lists(st.sampled_from(known), min_size=1, max_size=2))
        length = sum(asm.declared(one).sizes[0] for one in parts)
        assume(4 * length <= used)
        out = tensor(length)
        asm.call("aten::cat.out", asm.tensor_list(parts), asm.argument(0), out, out)
        parts_of[out] = parts
        known.append(out)
    asm.program(inputs, draw(st.lists(st.sampled_from(known), min_size=1, max_size=2)))
    given = [[draw(st.integers(1, 4)) for _ in inputs] for _ in range(3)]
    lengths = []
    for row in given:
        of_run = dict(zip(inputs, row, strict=True))
        for out, parts in parts_of.items():
            of_run[out] = sum(of_run[one] for one in parts)
        lengths.append(of_run)
    return asm, given, lengths


@settings(max_examples=150)
@given(dynamic_programs())
def test_alarm_depends_on_the_shapes_of_the_run(
    made: tuple[Assembly, list[list[int]], list[dict[int, int]]],
) -> None:
    asm, given_lengths, lengths = made
    method = sanitized(asm)
    found = None
    for row in given_lengths:
        try:
            method.execute([torch.ones(length) for length in row])
        except ModelError as error:
            found = error.code
            break
    event(f"alarm: {found}")
    assert found is None or found.startswith("EK66")
    assert (found is None) == is_right(asm.plan, elements=lengths)


# Inside


def test_old_records_are_let_go_and_state_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exirkit.runtime_ref.sanitizer.memory._MAX_RECORDS", 5)
    asm = Assembly()
    x, state, total = counter(asm)
    late, out = asm.tensor([4], dynamism=BOUND), asm.tensor([4])
    neg(asm, total, late)
    neg(asm, late, out)
    method = sanitized(asm, [x], [total])
    for step in range(20):
        assert method.execute([torch.ones(4)])[0].tolist()[0] == step + 1
    asm.declared(late).allocation_info = asm.declared(state).allocation_info
    assert finding(sanitized(asm, [x], [total, out]), [torch.ones(4)]).code == "EK663"


@pytest.mark.parametrize("start", range(4))
@pytest.mark.parametrize("end", range(8, 12))
def test_poison_is_wrong_in_every_dtype_and_spares_state(start: int, end: int) -> None:
    memory = ShadowMemory([0, 16], method="forward")
    memory.arenas.bytes_of[1].fill_(0)
    memory.states.append(Owner("forward", 0, Allocation(1, start, end), "value 0", key=(None,)))
    memory.start_run([])
    content = memory.arenas.bytes_of[1]
    assert not content[start:end].any()
    assert bool((content[:start] != 0).all())
    assert bool((content[end:] != 0).all())
    memory.states.clear()
    memory.start_run([])
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert bool(content.view(dtype).isnan().all())
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        assert bool((content.view(dtype) < 0).all())


def test_bytes_written_outside_of_an_arena_are_told_once() -> None:
    memory = ShadowMemory([0, 16], method="forward")
    shadow = memory.shadows[1]
    assert shadow.guards_changed() is None
    for at, told in ((0, (-1024, -1023)), (1024 + 16 + 3, (19, 20))):
        shadow.raw[at] = 0
        assert shadow.guards_changed() == told
        assert shadow.guards_changed() is None
