"""How programs run: control flow, memory, shapes, state, and diagnostics when something goes wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime_ref.assembly import BOUND, STATIC, UNBOUND, Assembly, registered

from exirkit.ir import ModelError, UsageError
from exirkit.runtime_ref import Limits, Method, Runtime


def add(asm: Assembly, a: int, b: int, out: int) -> None:
    asm.call("aten::add.out", a, b, asm.argument(1), out, out)


def fill(asm: Assembly, tensor: int, number: float) -> None:
    asm.call("aten::fill_.Scalar", tensor, asm.argument(number), tensor)


def branch() -> Method:
    """Return `y = x + 10 if p else x * 2`, as the exporter lowers a cond."""
    asm = Assembly()
    p, x, y = asm.tensor([], torch.bool), asm.tensor([3]), asm.tensor([3])
    ten, two = asm.constant(torch.tensor(10.0)), asm.constant(torch.tensor(2.0))
    yes, no = asm.tensor([3]), asm.tensor([3])
    asm.jump_if_false(p, 4)
    add(asm, x, ten, yes)
    asm.move(yes, y)
    asm.jump_if_false(asm.argument(False), 6)
    asm.call("aten::mul.out", x, two, no, no)
    asm.move(no, y)
    return asm.load([p, x], [y])


def test_branches() -> None:
    method = branch()
    x = torch.arange(3.0)
    for truth in (True, False, True, True, False):
        [y] = method.execute([torch.tensor(truth), x])
        assert torch.equal(y, x + 10 if truth else x * 2)


def loop() -> Method:
    """Return `ys[i] = xs[i] + y` for each row, as the exporter lowers a map."""
    asm = Assembly()
    xs, y = asm.tensor([5, 3]), asm.tensor([3])
    ys = asm.tensor([5, 3], dynamism=BOUND)
    at, count, done = asm.argument(0), asm.argument(0), asm.argument(False)
    row, result = asm.tensor([3]), asm.tensor([3])
    one = asm.argument(1)
    asm.call("aten::sym_size.int", xs, asm.argument(0), count)
    asm.call("aten::select_copy.int_out", xs, asm.argument(0), at, row, row)
    add(asm, row, y, result)
    asm.call("executorch_prim::et_copy_index.tensor", ys, result, at)
    asm.call("executorch_prim::add.Scalar", at, one, at)
    asm.call("executorch_prim::eq.Scalar", at, count, done)
    asm.jump_if_false(done, 1)
    asm.call("executorch_prim::sub.Scalar", at, count, at)
    return asm.load([xs, y], [ys])


def test_loop_starts_again_at_every_run() -> None:
    method = loop()
    for _ in range(3):
        xs, y = torch.randn(5, 3), torch.randn(3)
        assert torch.equal(method.execute([xs, y])[0], xs + y)


def test_counters_start_again_after_a_failure() -> None:
    asm = Assembly()
    x, count, y = asm.tensor([2], torch.int64), asm.argument(0), asm.tensor([2])
    asm.call("executorch_prim::add.Scalar", count, asm.argument(1), count)
    # Fails for indices out of range.
    table = asm.constant(torch.tensor([5.0, 7.0]))
    asm.call("aten::index.Tensor_out", table, asm.optional_tensor_list([x]), y, y)
    method = asm.load([x], [y, count])
    with pytest.raises(ModelError, match="out of bounds"):
        method.execute([torch.tensor([0, 9])])
    assert method.execute([torch.tensor([1, 0])])[0].tolist() == [7.0, 5.0]
    assert method.execute([torch.tensor([1, 0])])[1] == 2


def test_move_makes_two_values_one_tensor() -> None:
    asm = Assembly()
    x, y = asm.tensor([2]), asm.tensor([2])
    asm.move(x, y)
    fill(asm, x, 5)
    assert asm.load([x], [y]).execute([torch.zeros(2)])[0].tolist() == [5.0, 5.0]


def test_move_of_a_number() -> None:
    asm = Assembly()
    x, n, m = asm.tensor([2, 7]), asm.argument(0), asm.argument(0)
    asm.call("aten::sym_size.int", x, asm.argument(1), n)
    asm.move(n, m)
    assert asm.load([x], [m]).execute([torch.zeros(2, 7)]) == [7]


def test_reused_memory_is_overwritten() -> None:
    """A program that plans two live tensors into one place gets the wrong answer, here as on a device."""
    asm = Assembly()
    x, y = asm.tensor([4]), asm.tensor([4])
    z = asm.tensor([4], at=16)
    add(asm, x, x, y)
    fill(asm, z, 9)
    assert asm.load([x], [y]).execute([torch.ones(4)])[0].tolist() == [9.0] * 4


def test_result_in_place_of_an_argument() -> None:
    asm = Assembly()
    x = asm.tensor([4])
    same = asm.tensor([4], at=0)
    add(asm, x, x, same)
    add(asm, same, same, same)
    method = asm.load([x], [same])
    for _ in range(3):
        assert method.execute([torch.ones(4)])[0].tolist() == [4.0] * 4


def test_overlap_that_torch_rejects_names_the_instruction() -> None:
    asm = Assembly()
    x = asm.tensor([4])
    shifted = asm.tensor([4], at=4)
    add(asm, x, x, shifted)
    method = asm.load([x], [shifted])
    with pytest.raises(ModelError, match="memory location") as caught:
        method.execute([torch.ones(4)])
    assert caught.value.diagnostics[0].location.text == "aten::add.out(0, 0, 2, 1, 1)"


def test_arena_starts_as_zeros_and_keeps_state() -> None:
    asm = Assembly()
    x, counter = asm.tensor([2]), asm.tensor([2], name="counter")
    asm.call("aten::add_.Tensor", counter, x, asm.argument(1), counter)
    file = asm.file([x], [counter])
    first, second = asm.load(), asm.load()
    assert [first.execute([torch.ones(2)])[0][0].item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert second.execute([torch.ones(2)])[0][0].item() == 1.0
    assert first.get_attribute("counter").tolist() == [3.0, 3.0]
    assert file.program is not None


def test_outputs_are_copies() -> None:
    asm = Assembly()
    x, y = asm.tensor([2]), asm.tensor([2])
    add(asm, x, x, y)
    method = asm.load([x], [y])
    [first] = method.execute([torch.ones(2)])
    method.execute([torch.zeros(2)])
    assert first.tolist() == [2.0, 2.0]
    # An ordinary tensor, not one of inference mode.
    assert (first.requires_grad_() * 2).sum().backward() is None


@pytest.mark.parametrize("planned", [True, False])
def test_inputs_are_not_changed_unless_shown(planned: bool) -> None:
    asm = Assembly()
    x = asm.tensor([2], planned=planned)
    fill(asm, x, 3)
    given = torch.zeros(2)
    assert asm.load([x], [x]).execute([given])[0].tolist() == [3.0, 3.0]
    assert given.tolist() == ([0.0, 0.0] if planned else [3.0, 3.0])


def test_unplanned_input_of_another_layout_is_copied() -> None:
    asm = Assembly()
    x, y = asm.tensor([2, 3], planned=False), asm.tensor([2, 3])
    add(asm, x, x, y)
    method = asm.load([x], [y])
    given = torch.randn(3, 2).t()
    for _ in range(2):
        assert torch.equal(method.execute([given])[0], given + given)


def test_unplanned_output_finds_memory() -> None:
    asm = Assembly()
    x, y = asm.tensor([2], planned=False), asm.tensor([2], planned=False)
    add(asm, x, x, y)
    method = asm.load([x], [y])
    assert method.execute([torch.ones(2)])[0].tolist() == [2.0, 2.0]
    assert method.execute([torch.zeros(2)])[0].tolist() == [0.0, 0.0]


def test_inputs_are_let_go() -> None:
    import weakref

    asm = Assembly()
    x, y = asm.tensor([2], planned=False), asm.tensor([2])
    add(asm, x, x, y)
    method = asm.load([x], [y])
    given = torch.ones(2)
    gone = weakref.ref(given)
    method.execute([given])
    del given
    assert gone() is None


def test_input_that_requires_grad() -> None:
    asm = Assembly()
    x, y = asm.tensor([2], planned=False), asm.tensor([2])
    add(asm, x, x, y)
    assert not asm.load([x], [y]).execute([torch.ones(2, requires_grad=True)])[0].requires_grad


def test_layout_of_planned_tensors() -> None:
    asm = Assembly()
    last = [0, 2, 3, 1]
    x, y = (asm.tensor([1, 2, 3, 4], dim_order=last) for _ in range(2))
    add(asm, x, x, y)
    given = torch.randn(1, 2, 3, 4)
    [result] = asm.load([x], [y]).execute([given])
    assert torch.equal(result, given + given)
    assert result.is_contiguous(memory_format=torch.channels_last)


@given(st.lists(st.integers(0, 4), max_size=5), st.sampled_from([STATIC, BOUND]), st.data())
def test_any_layout_holds_the_same_elements(sizes: list[int], dynamism: Any, data: st.DataObject) -> None:
    order, outer, inner = (data.draw(st.permutations(range(len(sizes)))) for _ in range(3))
    asm = Assembly()
    x = asm.tensor(sizes, torch.int16, dim_order=outer, dynamism=dynamism)
    y = asm.tensor(sizes, torch.int16, dim_order=inner)
    asm.call("aten::neg.out", x, y, y)
    tensor = torch.arange(torch.Size(sizes).numel(), dtype=torch.int16).reshape(sizes)
    back = [order.index(dim) for dim in range(len(sizes))]
    [result] = asm.load([x], [y]).execute([tensor.permute(order).contiguous().permute(back)])
    assert torch.equal(result, -tensor)
    # Dimensions of size 1, and tensors without elements, have more than one layout.
    assert list(result.dim_order()) == inner or min(sizes) < 2


def test_storage_offset_is_respected() -> None:
    asm = Assembly()
    whole = asm.tensor([6])
    tail = asm.tensor([2], at=0)
    asm.declared(tail).storage_offset = 4
    weights = asm.constant(torch.arange(6.0))
    asm.declared(weights).sizes = [3]
    asm.declared(weights).storage_offset = 3
    shown = asm.tensor([3])
    asm.call("aten::clone.out", weights, asm.argument(None), shown, shown)
    tail_result, weights_result = asm.load([whole], [tail, shown]).execute([torch.arange(6.0)])
    assert tail_result.tolist() == [4.0, 5.0]
    assert weights_result.tolist() == [3.0, 4.0, 5.0]


def dynamic(dynamism: Any, *, planned: bool) -> Method:
    asm = Assembly()
    x = asm.tensor([8, 3], dynamism=BOUND)
    y = asm.tensor([8, 3], dynamism=dynamism, planned=planned)
    z = asm.tensor([3])
    add(asm, x, x, y)
    asm.call("aten::sum.IntList_out", y, asm.argument([0]), asm.argument(False), asm.argument(None), z, z)
    return asm.load([x], [y, z])


@pytest.mark.parametrize(("dynamism", "planned"), [(BOUND, True), (BOUND, False), (UNBOUND, False), (UNBOUND, True)])
def test_dynamic_shapes_grow_and_shrink(dynamism: Any, planned: bool) -> None:
    method = dynamic(dynamism, planned=planned)
    for rows in (1, 8, 0, 5, 2, 8, 1):
        x = torch.randn(rows, 3)
        y, z = method.execute([x])
        assert torch.equal(y, x + x)
        assert torch.equal(z, (x + x).sum(0))


def test_many_shapes_are_forgotten_again() -> None:
    asm = Assembly()
    x, y = (asm.tensor([300], dynamism=BOUND) for _ in range(2))
    add(asm, x, x, y)
    method = asm.load([x], [y])
    for size in [*range(200), 3, 1]:
        assert method.execute([torch.ones(size)])[0].shape == (size,)


def test_result_beyond_its_bound_names_value_and_bound() -> None:
    asm = Assembly()
    x = asm.tensor([8], dynamism=BOUND)
    y = asm.tensor([10], dynamism=BOUND)
    asm.call("aten::cat.out", asm.tensor_list([x, x]), asm.argument(0), y, y)
    method = asm.load([x], [y])
    assert method.execute([torch.ones(5)])[0].shape == (10,)
    with pytest.raises(ModelError, match=r"value 1 cannot become \[12\]: its bound is \[10\]") as caught:
        method.execute([torch.ones(6)])
    assert caught.value.code == "EK651"
    assert caught.value.diagnostics[0].location.node == "instruction 0"
    assert method.execute([torch.ones(3)])[0].shape == (6,)


def test_result_that_does_not_fit_a_static_shape() -> None:
    asm = Assembly()
    x, y = asm.tensor([4]), asm.tensor([5])
    guard = asm.tensor([4])
    fill(asm, guard, 1)
    add(asm, x, x, y)
    method = asm.load([x], [y, guard])
    with pytest.raises(ModelError, match=r"static shape \[5\] and cannot become \[4\]") as caught:
        method.execute([torch.ones(4)])
    assert caught.value.code == "EK651"


def test_shape_that_depends_on_elements() -> None:
    asm = Assembly()
    x = asm.tensor([3, 4])
    found = asm.tensor([12, 2], torch.int64, dynamism=BOUND)
    asm.call("aten::nonzero.out", x, found, found)
    rows = asm.argument(0)
    asm.call("aten::sym_size.int", found, asm.argument(0), rows)
    method = asm.load([x], [found, rows])
    for x_value in (torch.eye(3, 4), torch.zeros(3, 4), torch.ones(3, 4)):
        where, count = method.execute([x_value])
        assert torch.equal(where, x_value.nonzero())
        assert count == len(where)


def test_unbounded_memory_is_freed() -> None:
    asm = Assembly()
    x = asm.tensor([8], dynamism=BOUND)
    y = asm.tensor([0], dynamism=UNBOUND, planned=False)
    z = asm.tensor([])
    add(asm, x, x, y)
    asm.call("aten::sum.IntList_out", y, asm.argument([0]), asm.argument(False), asm.argument(None), z, z)
    asm.free(y)
    method = asm.load([x], [z])
    assert [method.execute([torch.ones(size)])[0].item() for size in (2, 8, 1)] == [4.0, 16.0, 2.0]


@pytest.mark.parametrize("freed", [True, False])
def test_tensor_without_memory_cannot_be_read(freed: bool) -> None:
    asm = Assembly()
    x, z = asm.tensor([2]), asm.tensor([2])
    y = asm.tensor([2], dynamism=UNBOUND, planned=False)
    if freed:
        add(asm, x, x, y)
        asm.free(y)
    add(asm, x, y, z)
    with pytest.raises(ModelError, match=f"value {y} is read before") as caught:
        asm.load([x], [z]).execute([torch.ones(2)])
    assert caught.value.code == "EK652"


def test_output_without_memory_is_an_error() -> None:
    asm = Assembly()
    y = asm.tensor([2], planned=False)
    with pytest.raises(ModelError) as caught:
        asm.load(outputs=[y]).execute([])
    assert caught.value.code == "EK652"
    assert caught.value.diagnostics[0].location.node == "output 0"


def test_condition_of_another_dtype() -> None:
    asm = Assembly()
    x = asm.tensor([])
    asm.jump_if_false(x, 1)
    with pytest.raises(ModelError, match=r"torch\.bool") as caught:
        asm.load([x], [x]).execute([torch.tensor(1.0)])
    assert caught.value.code == "EK654"


def test_value_operator_that_gives_no_number() -> None:
    with registered("exirkit_text::describe(Tensor x) -> str", lambda x: "a tensor"):
        asm = Assembly()
        x, n = asm.tensor([2]), asm.argument(0)
        asm.call("exirkit_text::describe", x, n)
        with pytest.raises(ModelError, match="gives str, not a number") as caught:
            asm.load([x], [n]).execute([torch.ones(2)])
        assert caught.value.code == "EK653"


def test_failing_kernel_says_what_it_was_given() -> None:
    asm = Assembly()
    x, y, z = asm.tensor([2, 3]), asm.tensor([4, 5]), asm.tensor([2, 5])
    asm.call("aten::mm.out", x, y, z, z)
    with pytest.raises(ModelError) as caught:
        asm.load([x, y], [z]).execute([torch.ones(2, 3), torch.ones(4, 5)])
    found = caught.value.diagnostics[0]
    assert found.code == "EK650"
    assert found.location.method == "forward"
    assert found.location.node == "instruction 0"
    assert found.location.text == "aten::mm.out(0, 1, 2, 2)"
    assert found.notes == (
        "value 0: torch.float32 [2, 3]",
        "value 1: torch.float32 [4, 5]",
        "value 2: torch.float32 [2, 5]",
    )


def test_memory_behind_a_tensor_is_never_touched() -> None:
    """Torch resizes out tensors that do not fit, over whatever lies behind them in the arena."""
    asm = Assembly()
    x = asm.tensor([8], dynamism=BOUND)
    y = asm.tensor([4], dynamism=BOUND)
    behind = asm.tensor([4], name="behind")
    add(asm, x, x, y)
    method = asm.load([x], [y])
    for _ in range(2):
        with pytest.raises(ModelError):
            method.execute([torch.ones(8)])
    assert behind
    assert method.get_attribute("behind").tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ([], "EK640"),
        ([torch.ones(8, 3)] * 2, "EK640"),
        (torch.ones(1, 8, 3), "EK641"),
        (None, "EK641"),
        ([5], "EK641"),
        ([torch.ones(8, 3, device="meta")], "EK641"),
        ([torch.ones(8, 3).to_sparse()], "EK641"),
        ([torch.ones(8, 3).double()], "EK642"),
        ([torch.ones(8)], "EK643"),
        ([torch.ones(9, 3)], "EK644"),
    ],
)
def test_wrong_inputs(inputs: Any, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        dynamic(BOUND, planned=True).execute(inputs)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("given", "code"), [(3, None), (4, "EK645"), (3.0, "EK641"), (True, "EK641"), (torch.tensor(3), "EK641")]
)
def test_numbers_are_the_same_as_when_the_program_was_made(given: Any, code: str | None) -> None:
    asm = Assembly()
    n, flag, text, nothing, real = (asm.argument(value) for value in (3, True, "a", None, 0.5))
    method = asm.load([n, flag, text, nothing, real], [n, flag, text, nothing, real])
    inputs = [given, True, "a", None, 0.5]
    if code is None:
        assert method.execute(inputs) == inputs
    else:
        with pytest.raises(UsageError) as caught:
            method.execute(inputs)
        assert caught.value.code == code


def test_all_wrong_inputs_are_reported_together() -> None:
    asm = Assembly()
    x, y, n = asm.tensor([2]), asm.tensor([3]), asm.argument(1)
    with pytest.raises(UsageError) as caught:
        asm.load([x, y, n], [x]).execute([torch.ones(3), torch.ones(3).int(), 2])
    assert [one.code for one in caught.value.diagnostics] == ["EK643", "EK642", "EK645"]


def test_lists_as_outputs() -> None:
    asm = Assembly()
    x, y = asm.tensor([1]), asm.tensor([1])
    tensors, numbers = asm.optional_tensor_list([x, -1]), asm.argument([4, 5])
    floats = asm.argument([0.5], "float[]")
    first, second, third = asm.load([x], [tensors, numbers, floats]).execute([torch.ones(1)])
    assert first[0].tolist() == [1.0]
    assert first[1] is None
    assert (second, third) == ([4, 5], [0.5])
    assert y


def test_loop_without_end_is_stopped() -> None:
    asm = Assembly()
    x = asm.tensor([1])
    fill(asm, x, 1)
    asm.jump_if_false(asm.argument(False), 0)
    program = Runtime.get().load_program(asm.file(outputs=[x]), limits=Limits(jumps_back=100))
    with pytest.raises(ModelError, match="after 101 rounds") as caught:
        program.load_method("forward").execute([])
    assert caught.value.code == "EK655"
    assert caught.value.diagnostics[0].location.text == "jump_false(2, 0)"


def test_several_chains_run_in_order() -> None:
    asm = Assembly()
    x, y = asm.tensor([1]), asm.tensor([1])
    add(asm, x, x, y)
    asm.plan.chains.append(asm.plan.chains[0].model_copy(update={"instructions": []}))
    asm.plan.chains.reverse()
    add(asm, y, y, y)
    asm.plan.chains.reverse()
    assert asm.load([x], [y]).execute([torch.ones(1)])[0].item() == 4.0


def test_empty_method() -> None:
    assert Assembly().load().execute([]) == []
