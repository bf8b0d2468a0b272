"""What the emitter writes: order and types of arguments, sharing of values, inputs, outputs, state, methods."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.emit.emission import calls, emitted, file_of, plan_of, planned_program, shown
from torch.export import Dim

from exirkit import to_edge
from exirkit.emit import Int, IntList, Null, Tensor, TensorList, emit_program
from exirkit.ir import ContractError, ModelError, TensorShapeDynamism, UsageError
from exirkit.runtime_ref import Runtime


class Golden(torch.nn.Module):
    """Write-back, reduction, several results, and numbers, in one small program."""

    w: torch.Tensor
    k: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.arange(4.0), requires_grad=False)
        self.register_buffer("k", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.k += x.sum(0)
        values, indices = torch.topk(x * self.w, 2)
        return values, indices, self.k + 1.0


def test_the_whole_of_a_small_program() -> None:
    plan = plan_of(emitted(Golden(), torch.rand(3, 4)))
    assert [shown(value) for value in plan.values] == [
        ("constant", [4]),  # 0: w
        ("planned", [4]),  # 1: k
        ("constant", []),  # 2: 1.0
        ("planned", [3, 4]),  # 3: x
        ("planned", [4]),  # 4: sum
        ("Int", 0),
        ("IntList", [5]),
        ("Bool", False),
        ("Null",),
        ("planned", [4]),  # 9: k + sum
        ("Int", 1),
        ("planned", [3, 4]),  # 11: x * w
        ("planned", [3, 2]),  # 12: values
        ("planned", [3, 2]),  # 13: indices
        ("Int", 2),
        ("Int", -1),
        ("Bool", True),
        ("TensorList", [12, 13]),
        ("planned", [4]),  # 18: k + 1
    ]
    assert calls(plan) == [
        ("aten::sum.IntList_out", [3, 6, 7, 8, 4, 4]),
        ("aten::add.out", [1, 4, 10, 9, 9]),
        ("aten::mul.out", [3, 0, 11, 11]),
        ("aten::topk.values", [11, 14, 15, 16, 16, 12, 13, 17]),
        ("aten::add.out", [9, 2, 10, 18, 18]),
        ("aten::copy_", [1, 9, 7, 1]),
    ]
    assert (plan.inputs, plan.outputs) == ([3], [12, 13, 18])
    assert plan.non_const_buffer_sizes[0] == 0
    assert [operator.overload for operator in plan.operators][-1] == ""


class TestArguments:
    def test_a_list_of_results_is_argument_and_result(self) -> None:
        plan = plan_of(emitted(lambda x: torch.split(x, [1, 3], 1), torch.rand(2, 4)))
        ((name, args),) = calls(plan)
        assert name == "aten::split_with_sizes_copy.out"
        assert args[-1] == args[-2]
        results = plan.values[args[-1]].val
        assert isinstance(results, TensorList)
        assert plan.outputs == results.items

    def test_optional_tensors_are_null_and_none_in_lists_is_minus_one(self) -> None:
        plan = plan_of(emitted(lambda x, i: (torch.conv1d(x, x), x[:, :, i]), torch.rand(2, 2, 3), torch.tensor([0])))
        convolution, index = calls(plan)
        assert isinstance(plan.values[convolution[1][2]].val, Null)
        assert shown(plan.values[index[1][1]]) == ("OptionalTensorList", [-1, -1, plan.inputs[1]])

    def test_whole_numbers_in_float_slots_are_floats(self) -> None:
        plan = plan_of(emitted(lambda x: torch.ops.aten.native_layer_norm(x, [4], None, None, 1)[0], torch.rand(2, 4)))
        ((_, args),) = calls(plan)
        assert shown(plan.values[args[4]]) == ("Double", 1.0)

    def test_integers_are_boxed_and_computed_ones_are_results(self) -> None:
        class Wide(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.ones(x.shape[0] * 2, 3)

        plan = plan_of(emitted(Wide(), torch.rand(4), dynamic_shapes=({0: Dim("size", min=2, max=8)},)))
        size, times, full = calls(plan)
        assert (size[0], times[0]) == ("aten::sym_size.int", "executorch_prim::mul.Scalar")
        boxes = plan.values[full[1][0]].val
        assert isinstance(boxes, IntList)
        assert boxes.items[0] == times[1][-1]
        assert shown(plan.values[boxes.items[1]]) == ("Int", 3)

    def test_texts_and_dtypes(self) -> None:
        plan = plan_of(
            emitted(lambda x: (torch.div(x, x, rounding_mode="floor"), x.sum(dtype=torch.float64)), torch.rand(2))
        )
        division, total = calls(plan)
        assert shown(plan.values[division[1][2]]) == ("String", "floor")
        assert shown(plan.values[total[1][3]]) == ("Int", 7)


class TestSharing:
    def test_equal_numbers_are_one_value_but_kinds_differ(self) -> None:
        def numbers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.sum(1), x.sum(1, keepdim=True), torch.clamp(x, 1, 1.0), x.amax(1)

        values = [shown(value) for value in plan_of(emitted(numbers, torch.rand(2, 3))).values]
        scalars = [value for value in values if value[0] in ("Int", "Double", "Bool", "Null", "IntList")]
        assert len(scalars) == len({repr(value) for value in scalars})
        assert ("Int", 1) in scalars

    def test_results_of_arithmetic_are_never_shared(self) -> None:
        class Same(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
                return torch.ones(x.shape[0] + 1), torch.zeros(x.shape[0] - 1), 0

        plan = plan_of(emitted(Same(), torch.rand(4), dynamic_shapes=({0: Dim("size", min=3, max=8)},)))
        written = [args[-1] for name, args in calls(plan) if "prim" in name or "sym" in name]
        assert len(set(written)) == len(written)
        assert plan.outputs[2] not in written

    def test_equal_constants_are_stored_once_across_methods(self) -> None:
        weight = torch.rand(64, 64)

        class Half(torch.nn.Module):
            own: torch.Tensor

            def __init__(self, own: torch.Tensor) -> None:
                super().__init__()
                self.register_buffer("own", own)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x @ self.own

        x = torch.rand(2, 64)
        methods = {
            "copied": planned_program(Half(weight.clone()), x),
            "same": planned_program(Half(weight), x),
            "other": planned_program(Half(weight + 1.0), x),
            "turned": planned_program(Half(weight.t()), x),
        }
        program = emit_program(methods).program
        assert [plan.name for plan in program.execution_plan] == ["copied", "other", "same", "turned"]
        assert len(program.constant_buffer) == 1 + 3

    def test_weights_are_views_of_their_tensors(self) -> None:
        linear = torch.nn.Linear(32, 32, bias=False)
        program = planned_program(linear, torch.rand(1, 32))
        (buffer,) = emit_program(program).program.constant_buffer[1:]
        (weight,) = program.state_dict.values()
        with torch.no_grad():
            weight.fill_(3.0)
        assert torch.frombuffer(buffer.storage, dtype=torch.float32).eq(3.0).all()

    def test_two_emissions_are_equal(self) -> None:
        program = planned_program(Golden(), torch.rand(3, 4))
        assert file_of(emit_program(program)) == file_of(emit_program(program))


class TestInputsAndOutputs:
    def test_numbers_are_inputs_with_entries_of_their_own(self) -> None:
        class Numbers(torch.nn.Module):
            def forward(self, x: torch.Tensor, n: int, flag: bool, nothing: None) -> tuple[torch.Tensor, int]:
                return x * n, n

        plan = plan_of(emitted(Numbers(), torch.rand(2), 3, True, None))
        assert [shown(plan.values[one]) for one in plan.inputs] == [
            ("planned", [2]),
            ("Int", 3),
            ("Bool", True),
            ("Null",),
        ]
        assert len(set(plan.inputs)) == 4

    def test_outputs_of_every_kind(self) -> None:
        class Kinds(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
                return x + 1.0, 3, 2.5, True, None, x.shape[0]

        plan = plan_of(emitted(Kinds(), torch.rand(2, 2)))
        values = [shown(plan.values[one]) for one in plan.outputs[1:]]
        assert values == [("Int", 3), ("Double", 2.5), ("Bool", True), ("Null",), ("Int", 2)]

    def test_mutations_are_not_outputs(self) -> None:
        class Both(torch.nn.Module):
            total: torch.Tensor

            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("total", torch.zeros(2))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.total += x
                x.mul_(2.0)
                return x + self.total

        plan = plan_of(emitted(Both(), torch.rand(2)))
        assert [name for name, _ in calls(plan)].count("aten::copy_") == 2
        assert len(plan.outputs) == 1

    def test_containers_are_described(self) -> None:
        class Nested(torch.nn.Module):
            def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> dict[str, Any]:
                return {"sum": x + y, "rest": [x * 2.0, (y * 2.0,)]}

        program = torch.export.export(Nested(), (torch.rand(2),), {"y": torch.rand(2)})
        from torch.utils._pytree import treespec_dumps

        from exirkit.emit.values import container_text

        for spec in (program.call_spec.in_spec, program.call_spec.out_spec):
            assert container_text(spec) == treespec_dumps(spec)


class TestState:
    class Start(torch.nn.Module):
        first: torch.Tensor
        second: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("first", torch.tensor([1.0, 2.0]))
            self.register_buffer("second", torch.zeros(2))
            self.register_buffer("third", -torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.first += x
            self.second += x
            self.third += x  # type: ignore[operator]
            return self.first * 1.0

    def test_initial_values_that_are_not_zero_are_stored(self) -> None:
        output = emitted(self.Start(), torch.rand(2))
        first, second, third = (one.val for one in plan_of(output).values[:3])
        assert isinstance(first, Tensor)
        assert isinstance(second, Tensor)
        assert isinstance(third, Tensor)
        assert [one.data_buffer_idx for one in (first, second, third)] == [1, 0, 2]
        assert first.allocation_info is not None
        assert first.extra_tensor_info is not None
        assert second.extra_tensor_info is None
        assert output.mutable_data is not None
        assert bytes(output.mutable_data[1].storage) == torch.tensor([1.0, 2.0]).numpy().tobytes()

    def test_zeros_are_stored_on_request(self) -> None:
        program = planned_program(self.Start(), torch.rand(2))
        for node in program.graph.find_nodes(op="placeholder"):
            node.meta["et_init_buffer"] = True
        output = emit_program(program)
        assert output.mutable_data is not None
        assert len(output.mutable_data) == 1 + 3

    def test_names_on_request(self) -> None:
        program = planned_program(self.Start(), torch.rand(2))
        plan = plan_of(emit_program(program, emit_mutable_buffer_names=True))
        names = [one.val.extra_tensor_info.fully_qualified_name for one in plan.values[:3]]  # type: ignore[union-attr]
        assert names == ["first", "second", "third"]

    @pytest.mark.parametrize("is_written", [False, True])
    def test_zeros_that_nothing_writes_to_have_a_name(self, is_written: bool) -> None:
        """Else what reads the file takes them for a result that nothing has computed."""

        class SetToItself(torch.nn.Module):
            state: torch.Tensor

            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("state", torch.zeros(3))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                kept = self.state.clone()
                self.state.copy_(kept + x if is_written else kept)
                return kept * x

        example = (torch.ones(3),)
        lowered = to_edge(torch.export.export(SetToItself(), example)).to_executorch()
        first = next(one.val for one in lowered.executorch_program.execution_plan[0].values)
        assert (first.extra_tensor_info is None) == is_written  # type: ignore[union-attr]
        method = Runtime.get().load_program(lowered.buffer, sanitize=True).load_method("forward")
        assert method.execute(example)[0].tolist() == [0.0] * 3

    def test_no_state_no_segment(self) -> None:
        assert emitted(lambda x: x + 1.0, torch.rand(2)).mutable_data is None


class TestLayouts:
    def test_constants_are_stored_in_their_dim_order(self) -> None:
        weight = torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)

        class Convolution(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = torch.nn.Parameter(weight, requires_grad=False)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.conv2d(x, self.weight)

        picture = torch.rand(1, 3, 5, 5).to(memory_format=torch.channels_last)
        output = emitted(Convolution(), picture)
        stored = plan_of(output).values[0].val
        assert isinstance(stored, Tensor)
        assert stored.dim_order == [0, 2, 3, 1]
        data = bytes(output.program.constant_buffer[stored.data_buffer_idx].storage)
        assert data == weight.permute(0, 2, 3, 1).numpy().tobytes()

    @pytest.mark.parametrize(
        "stored",
        [torch.rand(3, 1).expand(3, 4), torch.rand(4, 3).t(), torch.rand(3, 8)[:, ::2], torch.rand(6, 4)[2:5]],
        ids=["expanded", "transposed", "strided", "part"],
    )
    def test_constants_that_are_views_are_stored_densely(self, stored: torch.Tensor) -> None:
        class Add(torch.nn.Module):
            stored: torch.Tensor

            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("stored", stored)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x + self.stored

        output = emitted(Add(), torch.rand(3, 4))
        value = next(
            one.val for one in plan_of(output).values if isinstance(one.val, Tensor) and one.val.data_buffer_idx
        )
        assert (value.sizes, value.dim_order) == ([3, 4], [0, 1])
        data = bytes(output.program.constant_buffer[value.data_buffer_idx].storage)
        assert data == stored.contiguous().numpy().tobytes()

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.bool, torch.float64])
    def test_constants_of_every_width(self, dtype: torch.dtype) -> None:
        stored = torch.arange(-3, 3).to(dtype)

        class Equal(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("stored", stored)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.cat([x, self.stored])  # type: ignore[list-item]

        output = emitted(Equal(), stored.clone())
        assert bytes(output.program.constant_buffer[1].storage) == bytes(stored.view(torch.uint8).tolist())


class TestViews:
    def test_static_views_are_not_instruction(self) -> None:
        plan = plan_of(emitted(lambda x: (x * 2.0).view(6).unsqueeze(0) + 1.0, torch.rand(2, 3)))
        assert [name for name, _ in calls(plan)] == ["aten::mul.out", "aten::add.out"]
        product, view = calls(plan)[0][1][-1], calls(plan)[1][1][0]
        places = [plan.values[one].val.allocation_info for one in (product, view)]  # type: ignore[union-attr]
        assert product != view
        assert places[0] == places[1]

    def test_views_of_constants_share_the_data(self) -> None:
        class Scale(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("scale", torch.rand(3))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * self.scale.view(3, 1)  # type: ignore[operator]

        output = emitted(Scale(), torch.rand(3, 2))
        plan = plan_of(output)
        ((_, args),) = calls(plan)
        value = plan.values[args[1]].val
        assert isinstance(value, Tensor)
        assert (value.sizes, value.data_buffer_idx, value.allocation_info) == ([3, 1], 1, None)
        assert len(output.program.constant_buffer) == 2

    def test_views_of_unplanned_inputs_and_dynamic_views_are_set_at_run_time(self) -> None:
        plan = plan_of(emitted(lambda x: x.view(6) + 1.0, torch.rand(2, 3), alloc=(False, True)))
        assert [name for name, _ in calls(plan)] == ["executorch_prim::et_view.default", "aten::add.out"]
        assert calls(plan)[0][1][0] == plan.inputs[0]

        class Dynamic(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return (x * 2.0).unsqueeze(1) + 1.0

        plan = plan_of(emitted(Dynamic(), torch.rand(4, 3), dynamic_shapes=({0: Dim("rows", min=2, max=8)},)))
        view = calls(plan)[1]
        assert view[0] == "executorch_prim::et_view.default"
        out = plan.values[view[1][2]].val
        assert isinstance(out, Tensor)
        assert (out.sizes, out.shape_dynamism) == ([8, 1, 3], TensorShapeDynamism.DYNAMIC_BOUND)


class TestConstantMethods:
    def test_values_of_every_kind(self) -> None:
        tensor = torch.tensor([[1.0, 2.0]])
        value = {"n": 3, "rest": [2.5, True, "text", torch.int64, None, tensor]}
        output = emit_program(planned_program(lambda x: x + 1.0, torch.rand(2)), config_methods={"facts": value})
        plan = output.program.execution_plan[1]
        assert (plan.name, plan.inputs, plan.outputs) == ("facts", [], list(range(7)))
        assert [shown(one) for one in plan.values] == [
            ("Int", 3),
            ("Double", 2.5),
            ("Bool", True),
            ("String", "text"),
            ("Int", 4),
            ("Null",),
            ("constant", [1, 2]),
        ]
        assert plan.non_const_buffer_sizes == [0]
        assert plan.container_meta_type.encoded_inp_str == ""
        assert "builtins.dict" in plan.container_meta_type.encoded_out_str

    def test_names_are_unique(self) -> None:
        program = planned_program(lambda x: x + 1.0, torch.rand(2))
        with pytest.raises(UsageError, match="EK559"):
            emit_program(program, config_methods={"forward": 1})

    def test_other_values_are_rejected(self) -> None:
        with pytest.raises(UsageError, match="EK555"):
            emit_program({}, config_methods={"bad": object()})


class TestDebugging:
    def test_instructions_lead_to_handles_and_counts(self) -> None:
        output = emitted(Golden(), torch.rand(3, 4))
        count = len(plan_of(output).chains[0].instructions)
        assert list(output.debug_handle_map["forward"]) == list(range(count))
        # Readers take each entry for a call of a delegate.
        assert output.instruction_id_to_num_outs_map == {"forward": {}}
        assert output.method_to_delegate_debug_id_map == {"forward": {}}

    def test_source_lines_on_request(self) -> None:
        program = planned_program(Golden(), torch.rand(3, 4))
        assert plan_of(emit_program(program)).chains[0].stacktrace is None
        chain = plan_of(emit_program(program, emit_stacktrace=True)).chains[0]
        assert chain.stacktrace is not None
        assert len(chain.stacktrace) == len(chain.instructions)
        frame = chain.stacktrace[0].items[-1]
        assert frame.filename.endswith("test_emitter.py")
        assert (frame.name, frame.context) == ("forward", "self.k += x.sum(0)")
        assert frame.lineno > 0


class TestRejections:
    def test_a_program_that_is_not_planned(self) -> None:
        program = planned_program(lambda x: x + 1.0, torch.rand(2))
        del program.graph_module.meta["non_const_buffer_sizes"]
        with pytest.raises(ContractError, match="EK556"):
            emit_program(program)

    def test_a_program_that_is_not_lowered(self) -> None:
        from tests.passes.lowering import edge_program

        program = edge_program(lambda x: x + 1.0, torch.rand(2))
        program.graph_module.meta["non_const_buffer_sizes"] = [0, 0]
        from exirkit.ir import GraphEditor
        from exirkit.passes import PropagateSpecs

        PropagateSpecs().run(GraphEditor(program))
        with pytest.raises(ModelError, match="EK551"):
            emit_program(program)

    def test_a_text_as_output(self) -> None:
        with pytest.raises(ModelError, match="EK553"):
            emitted(lambda x: (x + 1.0, "text"), torch.rand(2))

    def test_an_intermediate_without_place(self) -> None:
        program = planned_program(lambda x: (x + 1.0) * 2.0, torch.rand(2))
        add = next(node for node in program.graph.nodes if "add" in node.name)
        add.meta["spec"].mem_offset = None
        with pytest.raises(ContractError, match="EK550"):
            emit_program(program)

    def test_a_method_that_is_not_a_program(self) -> None:
        with pytest.raises(UsageError, match="EK559"):
            emit_program({"forward": 3})  # type: ignore[dict-item]


def test_bytes_of_integers_stay_unboxed_values() -> None:
    plan = plan_of(emitted(lambda x: x.view(2, 3).permute(1, 0) * 1.0, torch.rand(6)))
    lists = [value.val for value in plan.values if isinstance(value.val, IntList)]
    assert all(isinstance(plan.values[item].val, Int) for one in lists for item in one.items)
