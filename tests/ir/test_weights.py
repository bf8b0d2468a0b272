"""Reading and changing stored tensors under the documented names, on programs and under an editor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.ir.program_snapshot import agrees, exact
from tests.ir.sample_programs import Tied, node, sample
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

import exirkit
from exirkit import (
    DiagnosticError,
    GraphEditor,
    Pass,
    UsageError,
    create_constant_placeholder,
    delete_constant_placeholder,
    get_buffer,
    get_lifted_tensor_constant,
    get_param,
    get_param_tensor,
    is_buffer,
    is_lifted_tensor_constant,
    is_param,
    is_param_node,
    set_param_tensor,
    to_edge,
)
from exirkit.ir import subgraph_editors

INPUTS = (torch.randn(3, 4), torch.randn(3, 4))


@pytest.mark.parametrize("door", [lambda program: program, GraphEditor], ids=["program", "editor"])
class TestReading:
    @pytest.mark.parametrize(
        ("name", "kinds"),
        [
            ("p_linear_weight", (True, False, False)),
            ("b_count", (False, True, False)),
            ("b_scale", (False, True, False)),
            ("c_lifted_tensor_0", (False, False, True)),
            ("input", (False, False, False)),
            ("relu", (False, False, False)),
        ],
    )
    def test_kinds(self, door: Callable[[ExportedProgram], Any], name: str, kinds: tuple[bool, ...]) -> None:
        program = sample("branchy")
        held, one = door(program), node(program, name)
        assert (is_param(held, one), is_buffer(held, one), is_lifted_tensor_constant(held, one)) == kinds
        assert is_param_node(held, one) == any(kinds)
        found = [get_param(held, one), get_buffer(held, one), get_lifted_tensor_constant(held, one)]
        assert [each is not None for each in found] == list(kinds)
        if any(kinds):
            assert get_param_tensor(held, one) is next(each for each in found if each is not None)
        else:
            with pytest.raises(UsageError) as caught:
                get_param_tensor(held, one)
            assert [each.code for each in caught.value.diagnostics] == ["EK116"]

    def test_values(self, door: Callable[[ExportedProgram], Any]) -> None:
        program = sample("branchy")
        held = door(program)
        assert get_param(held, node(program, "p_linear_bias")) is program.state_dict["linear.bias"]
        assert get_buffer(held, node(program, "b_scale")) is program.constants["scale"], "not persistent"
        assert get_param_tensor(held, None) is None

    def test_nodes_of_another_program(self, door: Callable[[ExportedProgram], Any]) -> None:
        held, other = door(sample("branchy")), node(sample("branchy"), "p_linear_bias")
        for read in (is_param, is_buffer, get_param, get_buffer, get_param_tensor, is_lifted_tensor_constant):
            with pytest.raises(UsageError) as caught:
                read(held, other)
            assert [each.code for each in caught.value.diagnostics] == ["EK114"]


def test_attributes_and_nodes_of_subgraphs() -> None:
    program = sample("choice")
    editor = GraphEditor(program)
    with editor.transaction("look"):
        body = next(iter(subgraph_editors(editor)))
        inner = next(iter(body.graph.nodes))
    assert inner.op == "placeholder"
    assert not is_param(program, inner), "an operand"
    reads_body = next(one for one in program.graph.nodes if one.op == "get_attr")
    with pytest.raises(UsageError, match="no stored tensor"):
        get_param_tensor(program, reads_body)


def test_renamed_inputs_are_found() -> None:
    program = sample("branchy")
    editor = GraphEditor(program)
    with editor.transaction("pass"):
        bias = node(program, "p_linear_bias")
        editor.rename(bias, "renamed")
        assert is_param(program, bias), "by the program, too"
        assert get_param(editor, bias) is program.state_dict["linear.bias"]


class TestSetting:
    def test_on_a_program(self) -> None:
        program = sample("branchy")
        bias = torch.arange(4.0)
        set_param_tensor(program, node(program, "p_linear_bias"), bias)
        assert torch.equal(program.state_dict["linear.bias"], bias)
        assert isinstance(program.state_dict["linear.bias"], torch.nn.Parameter)
        agrees(program)
        program.module()(*INPUTS)

    def test_in_the_transaction_of_the_caller(self) -> None:
        program = sample("branchy")
        before = exact(program)
        editor = GraphEditor(program)
        with editor.transaction("pass") as transaction:
            set_param_tensor(program, node(program, "p_linear_bias"), torch.arange(4.0))
            assert torch.equal(program.state_dict["linear.bias"], torch.arange(4.0))
            delete_constant_placeholder(program, node(program, "p_unused"))
            create_constant_placeholder(program, program.graph, "more", InputKind.PARAMETER, torch.ones(2))
            transaction.roll_back()
        assert exact(program) == before

    def test_shapes_that_agree_only_when_all_is_done(self) -> None:
        program = sample("linear")
        editor = GraphEditor(program)
        with editor.transaction("widen"):
            set_param_tensor(editor, node(program, "p_weight"), torch.ones(8, 4))
            set_param_tensor(editor, node(program, "p_bias"), torch.ones(8))
        assert program.module()(torch.ones(2, 4)).shape == (2, 8)

    def test_what_users_do_not_take_is_undone(self) -> None:
        program = sample("branchy")
        before = exact(program)
        with pytest.raises(DiagnosticError) as caught:
            set_param_tensor(program, node(program, "p_linear_weight"), torch.ones(5, 5))
        assert [each.code for each in caught.value.diagnostics] == ["EK111"]
        assert exact(program) == before

    def test_tied_weights_follow(self) -> None:
        program = sample("tied")
        weight = torch.eye(4)
        used = next(one for one in program.graph.nodes if is_param(program, one) and len(one.users) > 1)
        set_param_tensor(program, used, weight)
        for name in ("first.weight", "second.weight"):
            assert torch.equal(program.state_dict[name], weight), name
        x, bias = torch.randn(2, 4), program.state_dict["second.bias"]
        torch.testing.assert_close(program.module()(x), x + bias)

    def test_equal_constants_of_others_do_not_follow(self) -> None:
        program = sample("branchy")
        shared = torch.ones(5)
        first, second = (
            create_constant_placeholder(program, program.graph, name, InputKind.CONSTANT_TENSOR, shared)
            for name in ("one", "other")
        )
        set_param_tensor(program, first, torch.zeros(5))
        assert get_param_tensor(program, second) is not None
        assert torch.equal(program.constants[str(second.name)], shared)

    def test_parameters_that_share_memory_and_were_made_by_a_pass_do_not_follow(self) -> None:
        program = sample("branchy")
        shared = torch.ones(5)
        first, second = (
            create_constant_placeholder(program, program.graph, name, InputKind.PARAMETER, shared)
            for name in ("one", "other")
        )
        set_param_tensor(program, first, torch.zeros(5))
        stored = get_param(program, second)
        assert stored is not None
        assert torch.equal(stored, shared)

    def test_mutated_buffer_starts_from_the_new_value(self) -> None:
        program = sample("branchy")
        set_param_tensor(program, node(program, "b_count"), torch.full((1,), 41.0))
        assert program.module()(*INPUTS)[-1].item() == 43

    def test_mutated_buffer_keeps_the_form_of_what_is_written(self) -> None:
        program = sample("tied")
        before = exact(program)
        with pytest.raises(UsageError, match=r"float32 \[4\].*float16 \[4\]") as caught:
            set_param_tensor(program, node(program, "b_last"), torch.zeros(4, dtype=torch.float16))
        assert [each.code for each in caught.value.diagnostics] == ["EK124"]
        assert exact(program) == before

    def test_fake_tensors_and_numbers(self) -> None:
        program = sample("branchy")
        wrongs: list[Any] = [node(program, "p_linear_bias").meta["val"], 3]
        for wrong in wrongs:
            with pytest.raises(UsageError) as caught:
                set_param_tensor(program, node(program, "p_linear_bias"), wrong)
            assert [each.code for each in caught.value.diagnostics] == ["EK125"]


class TestCreating:
    @pytest.mark.parametrize(
        ("kind", "persistent", "check", "table"),
        [
            (InputKind.PARAMETER, None, is_param, "state_dict"),
            (InputKind.BUFFER, True, is_buffer, "state_dict"),
            (InputKind.BUFFER, False, is_buffer, "constants"),
            (InputKind.CONSTANT_TENSOR, None, is_lifted_tensor_constant, "constants"),
        ],
    )
    @pytest.mark.parametrize("name", ["branchy", "sizes"])
    def test_each_kind(self, name: str, kind: InputKind, persistent: bool | None, check: Any, table: str) -> None:
        program = sample(name)
        data = torch.full((3,), 2.0)
        made = create_constant_placeholder(program, program.graph, "extra", kind, data, persistent)
        assert check(program, made)
        assert torch.equal(getattr(program, table)["extra"], data)
        kinds = [spec.kind.value for spec in program.graph_signature.input_specs]
        order = [InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.USER_INPUT]
        places = [order.index(InputKind(one)) for one in kinds]
        assert places == sorted(places)
        agrees(program)
        program.validate()
        editor = GraphEditor(program)
        with editor.transaction("again"):
            # The editor goes on to know where constants belong.
            for count, again in enumerate((InputKind.CONSTANT_TENSOR, kind, InputKind.CONSTANT_TENSOR)):
                create_constant_placeholder(editor, editor.graph, "next", again, torch.zeros(count), persistent)
        agrees(program)
        for one in program.graph.find_nodes(op="placeholder"):
            if is_param_node(program, one):
                stored = get_param_tensor(program, one)
                assert stored is not None
                assert stored.shape == one.meta["val"].shape, "the tensor belongs to the placeholder"
        delete_constant_placeholder(program, made)
        assert "extra" not in getattr(program, table)
        agrees(program)

    def test_one_name_and_one_tensor_are_one_input(self) -> None:
        program = sample("branchy")

        def make(data: torch.Tensor, kind: InputKind = InputKind.PARAMETER) -> Any:
            return create_constant_placeholder(program, program.graph, "w", kind, data)

        first = make(torch.ones(3))
        assert make(torch.ones(3)) is first
        second, third = make(torch.zeros(3)), make(torch.ones(3), InputKind.CONSTANT_TENSOR)
        assert len({first, second, third}) == 3
        stored = get_param(program, second)
        assert stored is not None
        assert torch.equal(stored, torch.zeros(3))

    def test_buffers_that_are_written_are_not_shared(self) -> None:
        program = sample("tied")
        last = node(program, "b_last")
        equal = program.state_dict["last"].clone()
        made = create_constant_placeholder(program, program.graph, "b_last", InputKind.BUFFER, equal, True)
        assert made is not last

    def test_in_a_body_of_control_flow(self) -> None:
        program = sample("choice")
        editor = GraphEditor(program)
        with editor.transaction("pass"):
            body = next(iter(subgraph_editors(editor)))
            made = create_constant_placeholder(body, body.graph, "quarter", InputKind.PARAMETER, torch.full((4,), 0.5))
            assert made.graph is body.graph
        assert torch.equal(program.state_dict["quarter"], torch.full((4,), 0.5))
        agrees(program)

    @pytest.mark.parametrize(
        ("kind", "persistent", "code"),
        [(InputKind.USER_INPUT, None, "EK123"), (InputKind.TOKEN, None, "EK123"), (InputKind.BUFFER, None, "EK123")],
    )
    def test_of_what_is_not_stored(self, kind: InputKind, persistent: bool | None, code: str) -> None:
        program = sample("branchy")
        before = exact(program)
        with pytest.raises(UsageError) as caught:
            create_constant_placeholder(program, program.graph, "w", kind, torch.ones(2), persistent)
        assert [each.code for each in caught.value.diagnostics] == [code]
        assert exact(program) == before

    def test_in_another_graph(self) -> None:
        program, other = sample("branchy"), sample("branchy")
        with pytest.raises(UsageError) as caught:
            create_constant_placeholder(program, other.graph, "w", InputKind.PARAMETER, torch.ones(2))
        assert [each.code for each in caught.value.diagnostics] == ["EK126"]


class TestDeleting:
    @pytest.mark.parametrize(
        ("name", "code"),
        [("p_linear_bias", "EK115"), ("b_count", "EK115"), ("input", "EK116"), ("relu", "EK116")],
    )
    def test_of_what_is_needed(self, name: str, code: str) -> None:
        program = sample("branchy")
        before = exact(program)
        with pytest.raises(UsageError) as caught:
            delete_constant_placeholder(program, node(program, name))
        assert [each.code for each in caught.value.diagnostics] == [code]
        assert exact(program) == before

    def test_of_nodes_of_another_program(self) -> None:
        with pytest.raises(UsageError) as caught:
            delete_constant_placeholder(sample("branchy"), node(sample("branchy"), "p_unused"))
        assert [each.code for each in caught.value.diagnostics] == ["EK114"]


class FoldScale(Pass):
    """Multiply the weights of all linear layers, by the program as code written for other packages would."""

    name = "fold-scale"

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails

    def edit(self, editor: GraphEditor) -> None:
        program = editor.program
        for one in list(editor.graph.nodes):
            if one.op == "placeholder" and is_param(program, one):
                tensor = get_param_tensor(program, one)
                assert tensor is not None
                set_param_tensor(program, one, tensor.detach() * 2)
        if self.fails:
            raise RuntimeError("half done")


def test_in_a_pass() -> None:
    model = Tied().eval()
    exported = torch.export.export(model, (torch.ones(2, 4),))
    weight = model.first.weight.detach().clone()
    edge = to_edge(exported)
    with pytest.raises(DiagnosticError, match="half done"):
        edge.transform([FoldScale(fails=True)])
    assert torch.equal(edge.exported_program().state_dict["second.weight"], weight)
    doubled = edge.transform([FoldScale()]).exported_program()
    x = torch.randn(2, 4)
    torch.testing.assert_close(doubled.module()(x), x @ (2 * weight).t() @ (2 * weight).t() + 2 * model.second.bias)
    assert torch.equal(model.first.weight, weight), "the model keeps its own"


def test_arguments_have_their_documented_names() -> None:
    program = sample("branchy")
    made = create_constant_placeholder(
        exp_program=program,
        graph=program.graph,
        name="w",
        kind=InputKind.BUFFER,
        data=torch.ones(2),
        persistent_buffer=True,
    )
    set_param_tensor(exp_prog=program, node=made, data=torch.zeros(2))
    assert get_param_tensor(exp_prog=program, node=made) is get_buffer(program=program, node=made)
    assert is_param_node(exp_prog=program, node=made)
    delete_constant_placeholder(exp_program=program, node=made)
    agrees(program)


def test_public_names() -> None:
    for name in ("is_param", "get_param_tensor", "set_param_tensor", "create_constant_placeholder", "is_get_attr_node"):
        assert name in dir(exirkit)
        assert callable(getattr(exirkit, name))


def test_a_manager_stands_for_its_method_forward() -> None:
    edge = to_edge(sample("branchy"))
    program = edge.exported_program()
    weight = next(one for one in program.graph.nodes if is_param(program, one))
    before = get_param_tensor(edge, weight)
    assert before is not None
    set_param_tensor(edge, weight, torch.zeros_like(before))
    assert not get_param_tensor(program, weight).any()  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="a list has no graph"):
        get_param_tensor([program], weight)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="EK703"):
        get_param_tensor(to_edge({"one": sample("branchy")}), weight)
