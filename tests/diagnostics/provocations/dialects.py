"""Programs that break the rules of their dialect, one for each code of the dialect verifiers."""

from __future__ import annotations

from pathlib import Path

from tests.diagnostics.provocation import Provocation, provokes
from tests.verifiers.corruption_programs import bodies, program
from tests.verifiers.corruptions import CORRUPTIONS, corrupted

from exirkit import Diagnostic
from exirkit.verifiers import check_program, check_separate_body_results, check_separate_outputs, check_written_back

# Which corruption of which program shows the diagnostic.
_SHOWN = {
    "EK306": ("use_before_definition", "edge"),
    "EK307": ("name_given_twice", "edge"),
    "EK308": ("input_behind_calls", "edge"),
    "EK309": ("body_taken_away", "edge"),
    "EK310": ("unknown_argument", "edge"),
    "EK311": ("text_for_a_tensor", "edge"),
    "EK312": ("python_function", "edge"),
    "EK313": ("functional_operator_in_executorch", "executorch"),
    "EK314": ("view_in_edge", "edge"),
    "EK315": ("wrong_dtype_recorded", "edge"),
    "EK316": ("wrong_size_recorded", "edge"),
    "EK317": ("layout_of_another_kind", "planned"),
    "EK318": ("list_recorded_for_a_tensor", "edge"),
    "EK319": ("dim_that_is_not_there", "edge"),
    "EK320": ("symbol_of_another_program", "edge"),
    "EK321": ("range_that_is_gone", "edge"),
    "EK322": ("range_that_is_empty", "edge"),
    "EK323": ("mutation_without_spec", "edge"),
    "EK324": ("inputs_in_another_order", "edge"),
    "EK325": ("weight_that_is_not_stored", "edge"),
    "EK326": ("weight_of_another_dtype", "edge"),
    "EK327": ("constant_output_of_another_value", "edge"),
    "EK328": ("mutation_of_nothing", "edge"),
    "EK329": ("size_that_was_asked_for_its_number", "edge"),
    "EK330": ("operand_missing", "edge"),
    "EK331": ("branch_of_another_dtype", "edge"),
    "EK332": ("condition_that_is_not_a_truth", "edge"),
    "EK333": ("carry_of_another_dtype", "loops"),
    "EK334": ("result_of_branches_recorded_wrong", "edge"),
    "EK335": ("out_argument_left_out", "executorch"),
    "EK336": ("out_argument_of_two_calls", "executorch"),
    "EK337": ("alloc_of_another_dtype", "executorch"),
    "EK338": ("spec_of_another_dtype", "executorch"),
    "EK339": ("dim_order_that_is_none", "executorch"),
    "EK340": ("size_without_bound", "executorch"),
    "EK350": ("handle_lost", "edge"),
    "EK351": ("handle_that_is_none", "edge"),
    "EK352": ("handle_of_another_node", "plain edge"),
    "EK353": ("dtype_that_no_kernel_takes", "edge"),
    "EK354": ("dtype_that_no_kernel_returns", "edge"),
}


def _provocation(corruption: str, name: str) -> Provocation:
    def provoke(_: Path) -> list[Diagnostic]:
        one = next(each for each in CORRUPTIONS if each.name == corruption)
        made, _code, _node = corrupted(one, name, 0)
        dialect = {"plain edge": "edge", "planned": "executorch", "loops": "aten"}.get(name, name)
        return check_program(made, dialect, debug_handles="edge" in name)  # type: ignore[arg-type]

    provoke.__name__ = corruption
    return provoke


for _code, (_corruption, _program) in _SHOWN.items():
    provokes(_code)(_provocation(_corruption, _program))


@provokes("EK356")
def output_that_is_another_one(_: Path) -> list[Diagnostic]:
    made = program("executorch")
    output = made.graph.find_nodes(op="output")[0]
    results = list(output.args[0])
    output.args = ((*results[:-1], results[-2]),)
    return check_separate_outputs(made, alloc_graph_output=False)


@provokes("EK357")
def branch_that_returns_its_input(_: Path) -> list[Diagnostic]:
    made = program("executorch")
    body = bodies(made, depth=1)
    output = body.graph.find_nodes(op="output")[0]
    output.args = ((body.graph.find_nodes(op="placeholder")[0],),)
    return check_separate_body_results(made)


@provokes("EK358")
def new_value_that_is_returned_only(_: Path) -> list[Diagnostic]:
    return check_written_back(program("edge"))
