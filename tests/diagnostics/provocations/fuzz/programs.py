"""Wrong programs of the validation bench."""

from __future__ import annotations

from pathlib import Path

from tests.diagnostics.provocation import provokes

from exirkit.fuzz.programs import build, export, parse_program, run_eagerly

PROGRAM = """program(1)
s0 = symbol(2, 7)
w = parameter("f32[3, 5]", dyadic(3))
b = buffer("f32[5]", zeros())

def forward(x: "f32[s0, 5]"):
    y = aten.mul.Tensor(x, b)
    z = aten.sum.dim_IntList(y, [0])
    update(b, z)
    return y, s0 + 1

run("forward", s0=3, x=dyadic(1))
"""


def changed(old: str, new: str) -> object:
    """Read and build the program with one change."""
    assert old in PROGRAM
    return build(parse_program(PROGRAM.replace(old, new), file="program.txt"))


@provokes("EK801")
def something_else_of_python(_: Path) -> object:
    return changed("aten.mul.Tensor(x, b)", "[one for one in x]")


@provokes("EK802")
def two_of_one_name(_: Path) -> object:
    return changed("    z = ", "    y = ")


@provokes("EK803")
def use_before_definition(_: Path) -> object:
    return changed("Tensor(x, b)", "Tensor(x, z)")


@provokes("EK804")
def unknown_dtype(_: Path) -> object:
    return changed('"f32[5]"', '"float[5]"')


@provokes("EK805")
def too_few_numbers(_: Path) -> object:
    return changed("zeros()", "numbers([1, 2, 3])")


@provokes("EK806")
def size_out_of_range(_: Path) -> object:
    return changed("s0=3", "s0=8")


@provokes("EK807")
def enormous_tensor(_: Path) -> object:
    return changed('"f32[5]"', '"f32[5000000, 5000000]"')


@provokes("EK808")
def unknown_operator(_: Path) -> object:
    return changed("mul.Tensor", "multiply_add.Tensor")


@provokes("EK809")
def sizes_that_do_not_match(_: Path) -> object:
    return changed('"f32[5]"', '"f32[4]"')


@provokes("EK810")
def update_of_another_type(_: Path) -> object:
    return changed("update(b, z)", "update(b, y)")


@provokes("EK811")
def size_that_no_input_has(_: Path) -> object:
    text = PROGRAM.replace("s0 = ", "s1 = symbol(2, 7)\ns0 = ").replace("s0 + 1", "s1 + 1")
    return build(parse_program(text))


@provokes("EK812")
def loop_without_end(_: Path) -> object:
    text = """program(1)
def forward(x: "f32[3]"):
    def on(a):
        some = aten.sum.default(a)
        finite = aten.isfinite.default(some)
        return finite
    def turn(b):
        c = aten.mul.Tensor(b, 0.5)
        return c
    y = while_loop(on, turn, [x], [])
    return y
run("forward", x=dyadic(1))
"""
    return run_eagerly(parse_program(text))


@provokes("EK813")
def program_that_torch_rejects(_: Path) -> object:
    return export(parse_program(PROGRAM.replace('"f32[5]"', '"f32[4]"')))
