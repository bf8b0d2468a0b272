"""What a pass promises is enforced, alike in `apply` and in `transform`; messages name pass, file and line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult

import exirkit.passes.contract
from exirkit import EdgeProgramManager, ExportPass, GraphEditor, Pass, ops, to_edge
from exirkit.ir import ContractError, DiagnosticError, UsageError, copy_program
from exirkit.passes import apply_user_passes

EDGE = ops.edge.aten
HERE = __file__


class Model(torch.nn.Module):
    """A buffer that is written, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))
        self.seen: torch.Tensor

    def forward(self, x: torch.Tensor) -> Any:
        self.seen.add_(x.sum(0))
        hidden = torch.relu(torch.relu(self.linear(x)))
        return hidden, hidden + 1


@pytest.fixture(scope="module")
def program() -> ExportedProgram:
    return to_edge(torch.export.export(Model(), (torch.rand(2, 4),))).exported_program()


def relus(editor: GraphEditor) -> list[torch.fx.Node]:
    return list(editor.graph.find_nodes(op="call_function", target=EDGE.relu.default))


class Edits(Pass):
    """A pass that does what a function says."""

    name = "edits"

    def __init__(self, edit: Callable[[GraphEditor], object]) -> None:
        self._edit = edit

    def edit(self, editor: GraphEditor) -> None:
        self._edit(editor)


def apply(one: Pass, program: ExportedProgram) -> object:
    return one.apply(program)


def transform(one: Pass, program: ExportedProgram) -> object:
    return EdgeProgramManager(program).transform([one])


def call(one: Pass, program: ExportedProgram) -> object:
    return one(program)


WAYS = pytest.mark.parametrize("way", [apply, transform, call])
Way = Callable[[Pass, ExportedProgram], object]


def erase_raw(editor: GraphEditor) -> None:
    first, second = relus(editor)
    second.replace_all_uses_with(first)
    editor.graph.erase_node(second)


def mix(editor: GraphEditor) -> None:
    """Edit through the editor and without it, so that the editor cannot undo what it did."""
    _first, second = relus(editor)
    made = editor.call(EDGE.neg.default, (second,), before=second.next)
    editor.replace(second, made)
    made.replace_all_uses_with(second)
    editor.graph.erase_node(made)


def set_meta_raw(editor: GraphEditor) -> None:
    relus(editor)[0].meta["mine"] = 1


def set_value_raw(editor: GraphEditor) -> None:
    first = relus(editor)[0]
    made = editor.call(EDGE.relu.default, (first,), before=first.next)
    made.meta["val"] = torch.ones(3)


@WAYS
@pytest.mark.parametrize("edit", [erase_raw, mix, set_meta_raw, set_value_raw])
def test_edits_without_the_editor_are_rejected(
    way: Way, edit: Callable[[GraphEditor], None], program: ExportedProgram
) -> None:
    before = str(program.graph)
    with pytest.raises(ContractError) as error:
        way(Edits(edit), program)
    (found,) = error.value.diagnostics
    assert found.code == "EK445"
    assert "pass edits edited the program without its editor: " in found.message
    assert found.location.file == HERE
    assert str(program.graph) == before


@WAYS
def test_a_weight_changed_in_place_is_found(way: Way) -> None:
    program = to_edge(torch.export.export(Model(), (torch.rand(2, 4),))).exported_program()

    def scale(editor: GraphEditor) -> None:
        with torch.no_grad():
            editor.program.state_dict["linear.weight"].mul_(2)

    with pytest.raises(ContractError, match=r"`linear\.weight` was changed in place"):
        way(Edits(scale), program)


def test_notes_on_new_nodes_are_free(program: ExportedProgram) -> None:
    def edit(editor: GraphEditor) -> None:
        first = relus(editor)[0]
        editor.call(EDGE.neg.default, (first,), before=first.next).meta["mine"] = 1

    assert Edits(edit).apply(program)[1].created == 1


def narrow(editor: GraphEditor) -> None:
    output = editor.graph.output_node()
    second = output.args[0][-1]  # type: ignore[index]
    made = editor.call(EDGE.sum.dim_IntList, (second, [1]), before=output)
    editor.replace_in(output, second, made)  # type: ignore[arg-type]


def cast_state(editor: GraphEditor) -> None:
    output = editor.graph.output_node()
    state = output.args[0][0]  # type: ignore[index]
    made = editor.call(EDGE._to_copy.default, (state,), {"dtype": torch.float64}, before=output)
    editor.replace_in(output, state, made)  # type: ignore[arg-type]


@WAYS
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (narrow, "pass edits changed output 1 from float32[2, 4] to float32[2]"),
        (cast_state, "pass edits changed the new value of `seen` from float32[4] to float64[4]"),
    ],
)
def test_outputs_change_only_where_that_is_declared(
    way: Way, edit: Callable[[GraphEditor], None], message: str, program: ExportedProgram
) -> None:
    with pytest.raises(ContractError) as error:
        way(Edits(edit), program)
    assert [(found.code, found.message) for found in error.value.diagnostics] == [("EK446", message)]

    class Declared(Edits):
        changes_outputs = True

    way(Declared(edit), program)


class Widen(ExportPass):
    """Makes every sum with a number twice, which changes nothing, or in double precision."""

    def __init__(self, is_double: bool) -> None:
        super().__init__()
        self.is_double = is_double

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        result = super().call_operator(op, args, kwargs, meta)
        if op is EDGE.add.Tensor and self.is_double:
            return super().call_operator(EDGE._to_copy.default, (result,), {"dtype": torch.float64}, meta)
        return result


def test_passes_of_other_kinds_declare_it_too(program: ExportedProgram) -> None:
    apply_user_passes(program, [Widen(False)])
    with pytest.raises(ContractError, match="EK446"):
        apply_user_passes(program, [Widen(True)])
    declared = Widen(True)
    declared.changes_outputs = True  # type: ignore[attr-defined]
    changed = apply_user_passes(program, [declared])
    assert changed.graph.output_node().args[0][-1].meta["val"].dtype == torch.float64


def test_sizes_that_are_equal_by_algebra_are_not_change() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.cat([x, x])

    def reorder(editor: GraphEditor) -> None:
        (cat,) = editor.graph.find_nodes(op="call_function", target=EDGE.cat.default)
        x = cat.all_input_nodes[0]
        pair = editor.call(EDGE.repeat.default, (x, [2, 1]), before=cat.next)
        editor.replace(cat, pair)

    dims = ({0: torch.export.Dim("n", min=2, max=64)},)
    program = to_edge(torch.export.export(Twice(), (torch.ones(3, 2),), dynamic_shapes=dims)).exported_program()
    assert Edits(reorder).apply(program)[1].modified


class Nameless(Pass):
    """Has no name."""

    def edit(self, editor: GraphEditor) -> None:
        pass


@WAYS
def test_a_pass_without_a_name_is_named_by_its_class(way: Way, program: ExportedProgram) -> None:
    with pytest.raises(UsageError) as error:
        way(Nameless(), program)
    (found,) = error.value.diagnostics
    assert (found.code, found.message) == ("EK444", "the pass Nameless has no name")
    assert found.location.file == HERE
    assert found.hint == 'write `name = "nameless"` in the class'


def line_of(text: str) -> int:
    lines = Path(HERE).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@WAYS
def test_a_pass_that_raises_is_shown_with_its_line(way: Way, program: ExportedProgram) -> None:
    def fail(editor: GraphEditor) -> None:
        editor.graph.nodes[0]  # type: ignore[index]  # the line that raises

    with pytest.raises(ContractError) as error:
        way(Edits(fail), program)
    (found,) = error.value.diagnostics
    assert found.code == "EK421"
    assert found.message.startswith("pass edits failed: TypeError: ")
    assert (found.location.file, found.location.line) == (HERE, line_of("# the line " + "that raises"))


@WAYS
def test_a_wrong_edit_is_shown_with_pass_and_line(way: Way, program: ExportedProgram) -> None:
    def late(editor: GraphEditor) -> None:
        first, second = relus(editor)
        editor.call(EDGE.neg.default, (second,), before=first)  # the line of the edit

    with pytest.raises(UsageError) as error:
        way(Edits(late), program)
    (found,) = error.value.diagnostics
    assert found.code == "EK122"
    assert found.notes == (f"raised in pass edits, {HERE}:{line_of('# the line ' + 'of the edit')}",)


def test_functions_that_raise_are_shown_with_their_line(program: ExportedProgram) -> None:
    def fail(module: GraphModule) -> PassResult:
        raise KeyError("scale")  # the line of the function

    with pytest.raises(ContractError) as error:
        apply_user_passes(program, [fail])
    (found,) = error.value.diagnostics
    assert (found.code, found.message) == ("EK425", "pass fail failed: KeyError: 'scale'")
    assert found.location.line == line_of("# the line " + "of the function")


class Fails(ExportPass):
    """Raises at the first call."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        raise KeyError("scale")  # the line of the hook


def test_hooks_that_raise_are_shown_with_their_line(program: ExportedProgram) -> None:
    with pytest.raises(DiagnosticError) as error:
        apply_user_passes(program, [Fails()])
    (found,) = error.value.diagnostics
    assert found.location.line == line_of("# the line " + "of the hook")
    assert found.location.node is not None


def test_functions_that_leave_nodes_in_front_of_their_arguments(program: ExportedProgram) -> None:
    def unorder(module: GraphModule) -> None:
        first, second = module.graph.find_nodes(op="call_function", target=EDGE.relu.default)
        second.append(first)

    with pytest.raises(ContractError, match="left %aten_relu_default_1 with the argument %aten_relu_default, which"):
        apply_user_passes(program, [unorder])


class Everything(torch.nn.Module):
    """Control flow, writes, views, numbers, sizes that only data decides."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(4))
        self.count: torch.Tensor

    def forward(self, x: torch.Tensor) -> Any:
        self.count.add_(1)
        hidden = self.linear(x).relu().transpose(0, 1).reshape(4, -1).detach() * 2
        chosen = torch.cond(x.sum() > 0, lambda y: y.cos() + 1, lambda y: y.sin() * self.count.sum(), (hidden,))
        return chosen.t().contiguous(), x.nonzero(), hidden.shape[1] + 1, torch.softmax(hidden, 0).to(torch.float64)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_exirkit_s_own_passes_keep_to_their_editors(is_dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exirkit.passes.contract, "is_shipped", lambda one: False)
    dims = ({0: torch.export.Dim("n", min=2, max=8)},) if is_dynamic else None
    with torch.no_grad():
        exported = torch.export.export(Everything(), (torch.rand(3, 4),), dynamic_shapes=dims)
    for level in (0, 1, 2):
        manager = to_edge(copy_program(exported)).to_executorch(
            exirkit.ExecutorchBackendConfig(optimization_level=level)
        )
        assert manager.buffer


def test_the_old_name_of_enters_subgraphs_still_works() -> None:
    with pytest.warns(DeprecationWarning, match="enters_subgraphs"):

        class Old(Pass):
            name = "old"
            enters_bodies = True

            def edit(self, editor: GraphEditor) -> None:
                """Edit nothing."""

    assert Old.enters_subgraphs
