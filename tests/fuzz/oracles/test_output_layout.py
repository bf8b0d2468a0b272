"""Results lie in memory as those of eager torch do."""

from __future__ import annotations

import pytest

from exirkit import Pass, ops
from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import Program, parse_program
from exirkit.fuzz.triage import find_culprit
from exirkit.ir import GraphEditor


def program_of(steps: str, sizes: str = "2, 3, 4, 5", layout: str = "dense") -> Program:
    return parse_program(
        f'program(1)\n\ndef forward(x: "f32[{sizes}]"):\n    {steps}\n    return y\n\n'
        f'run("forward", x=dyadic(1, layout="{layout}"))\n'
    )


CHANNELS_LAST = "y = aten._to_copy.default(x, memory_format=torch.channels_last)"


class LosesLayouts(Pass):
    """Takes a copy in another layout for one that does nothing."""

    name = "loses-layouts"

    def edit(self, editor: GraphEditor) -> None:
        for node in list(editor.graph.nodes):
            if node.target is ops.edge.dim_order_ops._to_dim_order_copy.default:
                editor.replace(node, node.args[0])


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(
    ("steps", "sizes", "layout"),
    [
        (CHANNELS_LAST, "2, 3, 4, 5", "dense"),
        (CHANNELS_LAST, "2, 1, 4, 5", "dense"),
        ("y = aten._to_copy.default(x, memory_format=torch.contiguous_format)", "2, 3, 4, 5", "channels_last"),
        ("y = aten.permute.default(x, [0, 2, 3, 1])", "2, 3, 4, 5", "dense"),
        ("y = aten.slice.Tensor(x, 2, 0, 2)", "2, 3, 4, 5", "channels_last"),
        ("y = aten.relu.default(x)", "2, 3, 4, 5", "channels_last"),
        ("y, _ = aten.chunk.default(x, 2, 3)", "2, 3, 4, 6", "channels_last"),
        ("y = aten.expand.default(x, [2, 3, 4, 5])", "2, 1, 4, 5", "dense"),
        ("y = aten.relu.default(x)", "0, 3, 4, 5", "channels_last"),
    ],
)
def test_programs_that_are_right(steps: str, sizes: str, layout: str, level: int) -> None:
    program = program_of(steps, sizes, layout)
    verdict = check(program, compiler=ExirkitCompiler(level=level), oracles=["output-layout"])
    assert verdict.is_good, verdict.failures
    assert not verdict.not_run


@pytest.mark.parametrize("layout", ["dense", "channels_last"])
def test_a_pass_that_loses_a_layout(layout: str) -> None:
    wanted = "channels_last" if layout == "dense" else "contiguous_format"
    program = program_of(f"y = aten._to_copy.default(x, memory_format=torch.{wanted})", layout=layout)
    compiler = ExirkitCompiler(level=0, passes=(LosesLayouts(),))
    verdict = check(program, compiler=compiler)
    assert [one.oracle for one in verdict.failures] == ["output-layout"]
    assert find_culprit(program, verdict.failures[0], compiler=compiler).part == "loses-layouts"


def test_layouts_that_runtimes_do_not_have_may_be_row_major() -> None:
    # Eager torch lays this quotient out in the order N, H, C, W.
    program = parse_program(
        'program(1)\n\ndef forward(w: "f32[1, 2]", x: "f32[2, 2, 2, 1]"):\n    y = aten.sub.Tensor(w, x)\n'
        "    return y\n\n"
        'run("forward", w=dyadic(1), x=dyadic(2, layout="channels_last"))\n'
    )
    verdict = check(program, compiler=ExirkitCompiler(), oracles=["output-layout"])
    assert verdict.is_good, verdict.failures


def test_what_is_written_through_a_view_may_be_row_major() -> None:
    program = program_of("y = aten.lt.Scalar(x, 0)", "1, 2, 2, 2", "channels_last")
    for variation in range(30):
        verdict = check(program, compiler=ExirkitCompiler(variation=variation), oracles=["output-layout"])
        assert verdict.is_good, (variation, verdict.failures)


def test_what_torch_export_has_noted_is_right() -> None:
    # Eager torch keeps the layout of what it rolls; metadata, and what it is decomposed into, do not.
    verdict = check(
        program_of("y = aten.roll.default(x, [1, 1], [1, 3])", layout="channels_last"),
        compiler=ExirkitCompiler(),
        oracles=["output-layout"],
    )
    assert verdict.is_good, verdict.failures


_FIRST_OF_SIZE_ONE = """program(1)
s0 = symbol(1, 10)

def forward(x: "f32[2, s0, s0, 2]"):
    return x

run("forward", s0=1, x=zeros(layout="channels_last"))
run("forward", s0=5, x=zeros(layout="channels_last"))
"""


def test_an_example_with_sizes_of_one_does_not_tell_the_layout() -> None:
    assert check(parse_program(_FIRST_OF_SIZE_ONE)).is_good


_ROWS_BY_PLACES = """program(1)

def forward(x: "f32[3, 2, 3]"):
    def turn(a):
        b = aten.clone.default(a, memory_format=torch.contiguous_format)
        c = aten.as_strided_copy.default(b, [3, 2], [1, 3], 0)
        return c
    y = map(turn, [x], [])
    return y

run("forward", x=dyadic(1))
"""


@pytest.mark.parametrize("level", [0, 1, 2])
def test_rows_are_read_by_places_from_their_own_start(level: int) -> None:
    verdict = check(parse_program(_ROWS_BY_PLACES), compiler=ExirkitCompiler(level=level))
    assert verdict.is_good, verdict.failures
