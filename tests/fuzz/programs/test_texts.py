"""The printed form of programs: printing and reading go around, and nothing else is read."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.programs.program_texts import TEXTS

from exirkit.fuzz.programs import (
    Call,
    Contents,
    Input,
    Method,
    Program,
    Ref,
    Run,
    Size,
    Stored,
    Symbol,
    TensorType,
    check_program,
    model,
    parse_program,
    program_text,
)
from exirkit.ir import ModelError

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64]


@pytest.mark.parametrize("name", TEXTS)
def test_printing_what_was_read_gives_the_text(name: str) -> None:
    program = parse_program(TEXTS[name])
    assert program_text(program).replace("\n\n", "\n") == TEXTS[name].replace("\n\n", "\n")
    assert parse_program(program_text(program)) == program


def test_the_documented_program_is_one() -> None:
    lines = [line[4:] for line in (model.__doc__ or "").splitlines() if line.startswith("    ") or not line]
    program = parse_program("\n".join(lines).strip("\n") + "\n")
    assert parse_program(program_text(program)) == program
    assert program.inexact == {"y"}


def test_the_page_about_the_language_shows_one() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "program_text.md").read_text()
    program = parse_program(page.split("```python\n")[1].split("```")[0])
    assert [one.name for one in program.methods] == ["forward"]


def numbers() -> st.SearchStrategy[Any]:
    floats = st.floats(allow_nan=False) | st.just(math.nan)
    return st.integers(-(2**63), 2**63 - 1) | floats | st.booleans()


def contents(elements: int) -> st.SearchStrategy[Contents]:
    layouts = st.sampled_from(["dense", "channels_last", "transposed", "strided", "expanded"])
    listed = st.lists(numbers(), min_size=elements, max_size=elements).map(tuple)
    seeded = st.builds(
        Contents,
        kind=st.sampled_from(["dyadic", "zeros", "special"]),
        seed=st.integers(0, 2**63 - 1),
        low=st.integers(-9, 0) | st.floats(-9, 0),
        high=st.integers(0, 9) | st.floats(0, 9),
        bits=st.integers(0, 30),
        layout=layouts,
    )
    return seeded | st.builds(Contents, kind=st.just("numbers"), numbers=listed, layout=layouts)


def arguments(names: list[str]) -> st.SearchStrategy[Any]:
    sizes = ["s0", "s0 + 1", "2 * s0", "(s0 + 1) * 2 - s0 // 2"]
    objects = [*DTYPES, torch.channels_last, torch.contiguous_format, torch.strided]
    plain = (
        st.sampled_from([Ref(one) for one in names])
        | st.sampled_from([Size(one) for one in sizes])
        | st.sampled_from(objects)
        | numbers()
        | st.none()
        | st.text(max_size=9)
    )
    return st.recursive(plain, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


@st.composite
def program_shapes(draw: st.DrawFn) -> Program:
    """Draw programs that are well formed; what they call need not exist."""
    stored = []
    for place in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["parameter", "buffer", "constant"]))
        sizes = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
        dtype = torch.float32 if kind == "parameter" else draw(st.sampled_from(DTYPES))
        given = draw(contents(math.prod(sizes)))
        stored.append(Stored(f"t{place}", kind, TensorType(dtype, sizes), given))  # type: ignore[arg-type]
    names = [one.name for one in stored] + ["x"]
    steps = []
    for place in range(draw(st.integers(0, 4))):
        args = tuple(draw(st.lists(arguments(names), max_size=4)))
        kwargs = tuple((key, draw(arguments(names))) for key in draw(st.sets(st.sampled_from(["alpha", "dim", "out"]))))
        results = tuple(draw(st.lists(st.sampled_from([None, "r"]), max_size=3)))
        named = tuple(one and f"r{place}_{number}" for number, one in enumerate(results))
        steps.append(Call(draw(st.sampled_from(["aten.add.Tensor", "my_ops.f.default"])), args, kwargs, named))
        names += [one for one in named if one]
    outputs = tuple(draw(st.lists(arguments(names).filter(lambda one: not isinstance(one, tuple)), max_size=3)))
    type_ = TensorType(draw(st.sampled_from(DTYPES)), ("s0", 2, "s0 // 3"))
    size = draw(st.integers(2, 9))
    run = Run("forward", {"s0": size}, {"x": draw(contents(size * 2 * (size // 3)))})
    method = Method("forward", (Input("x", type_),), tuple(steps), outputs)
    made = frozenset(one for step in steps for one in step.results if one)
    return Program((Symbol("s0", 2, 9),), tuple(stored), (method,), (run,), made, frozenset(sorted(made)[:1]))


@settings(max_examples=150, deadline=None)
@given(program_shapes())
def test_every_program_survives(program: Program) -> None:
    check_program(program)
    text = program_text(program)
    again = parse_program(text)
    assert program_text(again) == text
    assert again == program


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_damaged_texts_are_read_or_rejected(name: str, data: st.DataObject) -> None:
    """Any damage gives a program or a diagnostic with a line; never another exception."""
    text = TEXTS[name]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 12, len(text))))
    put = data.draw(st.sampled_from(["", "(", "\n", "x", "1", "    ", "s0", "[x]", "\0", "é", "lambda: 0", "*", "**x"]))
    try:
        program = parse_program(text[:start] + put + text[end:], file="damaged.txt")
    except ModelError as error:
        for one in error.diagnostics:
            assert one.location.file == "damaged.txt"
            assert one.location.line is not None
            assert one.location.column is not None
            assert "EK801" <= one.code <= "EK810"
    else:
        check_program(program)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "program(2)",
        "program(1)\n" + "x" * 2_000_000,
        "program(1)\nx = " + "(" * 5000,
        "program(1)\nx = " + "-" * 50_000 + "1",
        "program(1)\nx = " + "[" * 90 + "]" * 90,
        "program(1)\nx = a" + ".b" * 100_000,
        "program(1)\nx = " + "1+" * 100_000 + "1",
        "program(1)\nx = symbol(" + "9" * 5000 + ", 1)",
        "program(1)\nx = symbol(1, " + "9" * 4000 + ")",
        'program(1)\nx = buffer("f32[' + "9," * 5000 + '9]", zeros())',
        'program(1)\nx = buffer("f32[' + "9" * 5000 + ']", zeros())',
        'program(1)\nx = buffer("f32[' + "s0+" * 5000 + '1]", zeros())',
        'program(1)\nx = buffer("f32[²]", zeros())',
        "program(1)\ndef f(x):\n    return",
        'program(1)\ndef f(x: "f32[2]"): pass',
        'program(1)\ndef f(x: "f32[2]"):\n    y = __import__("os").system("true")\n    return y',
        'program(1)\ndef f(x: "f32[2]"):\n    return aten.add.Tensor(x, x)',
        "program(1)\nrun(**x)",
        "program(1)\nrun()",
        "program(1)\nx = symbol(3, 1)",
        "program(1)\nx = buffer()",
    ],
)
def test_malformed_texts_are_rejected(text: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_program(text)
    assert all(one.location.line is not None for one in caught.value.diagnostics)


def test_bodies_and_lists_are_not_deep() -> None:
    deep = "".join(f"{'    ' * (n + 1)}def b{n}(x{n}):\n" for n in range(30)) + "    " * 31 + "return 1\n"
    with pytest.raises(ModelError) as caught:
        parse_program('program(1)\ndef f(x: "f32[2]"):\n' + deep + "    return x\n")
    assert caught.value.code in ("EK801", "EK807")


def test_all_findings_are_told_at_once() -> None:
    text = TEXTS["plain"].replace("(x, w)", "(x, w_)").replace("(y1)", "(y9)")
    with pytest.raises(ModelError) as caught:
        parse_program(text)
    assert [one.location.line for one in caught.value.diagnostics] == [6, 8]


def test_programs_that_were_not_read_are_checked_too() -> None:
    program = parse_program(TEXTS["plain"])
    with pytest.raises(ModelError) as caught:
        check_program(replace(program, runs=(Run("backward"),)))
    assert caught.value.code == "EK806"
