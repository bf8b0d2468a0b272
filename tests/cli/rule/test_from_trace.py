"""`exirkit rule from-trace`: from two functions to a book, over decisions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke

FUNCTIONS = '''import torch

def slow(x, slope):
    """A leaky ReLU is a maximum."""
    return torch.nn.functional.leaky_relu(x, slope)

def fast(x, slope):
    print("functions talk")
    return torch.maximum(x, x * slope)

def both():
    return torch.relu, lambda x: torch.clamp_min(x, 0), {"x": torch.ones(2, 3)}

def same(x):
    return x

def last(x):
    return x.permute(0, 2, 3, 1)

def first(new):
    return new.permute(0, 3, 1, 2)

def joined(xs):
    return torch.cat([x.permute(1, 0) for x in xs], 0)

def moved(xs):
    return torch.cat(xs, 1).permute(1, 0)

def halved(x):
    return x.exp()[: x.shape[0] // 2]

def first_half(x):
    return x[: x.shape[0] // 2].exp()

def wrong():
    return torch.relu
'''
TRACE = ("rule", "from-trace", "functions.py:slow", "--replace", "fast", "--example", "x=f32 [2, 3]")
SLOPE = ("--example", "slope=0.25")


@pytest.fixture(autouse=True)
def functions(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS)


def test_marks_and_decisions(invoke: Invoke, tmp_path: Path) -> None:
    marked = invoke(*TRACE, *SLOPE, "-o", "book.yaml")
    assert marked.exit_code == 0, marked.stderr
    assert marked.stdout.splitlines() == ["book.yaml: rule traced.slow", "to be decided: slope"]
    rejected = invoke("rule", "list", "book.yaml", "--json")
    checked = invoke("rule", "check", "book.yaml", "--json")
    assert (rejected.exit_code, checked.exit_code) == (0, 1)
    assert {one["code"] for one in json.loads(checked.stdout)["diagnostics"]} == {"EK264"}
    decided = invoke(*TRACE, *SLOPE, "-o", "book.yaml", "--decide", "slope=float in [0.1, 0.5]", "--id", "fuse.leaky")
    assert decided.stdout.splitlines() == ["book.yaml: rule fuse.leaky"]
    checked = invoke("rule", "check", "book.yaml", "--trials", "20")
    assert checked.exit_code == 0, checked.stdout
    assert "doc: A leaky ReLU is a maximum." in (tmp_path / "book.yaml").read_text()


def test_document_and_dialects(invoke: Invoke) -> None:
    result = invoke("rule", "from-trace", "functions.py:both", "--json")
    report = json.loads(result.stdout)
    (literal,) = report["literals"]
    assert report["undecided"] == [literal["name"]]
    assert (literal["value"], literal["decision"]) == ("0", None)
    assert report["book"].count("DECIDE(new_clamp_min, 0)") == 1
    aten = invoke("rule", "from-trace", "functions.py:both", "--dialect", "aten")
    assert "aten.clamp_min.default(x, DECIDE(new_clamp_min_min, 0))" in aten.stdout
    assert "to be decided: new_clamp_min_min" in aten.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (TRACE[:5], 2, "--example NAME=VALUE is missing"),
        ((*TRACE[:3], *TRACE[5:]), 2, "--replace FUNCTION is missing"),
        (TRACE, 2, "slow takes x, slope; the examples are x"),
        ((*TRACE, "--example", "slope"), 2, "is not NAME=VALUE"),
        ((*TRACE, "--example", "x=3"), 2, "is given twice"),
        ((*TRACE, "--example", "slope=f99 [2]"), 2, "is not a value"),
        ((*TRACE, "--example", "slope=f32 [99999, 99999]"), 2, "is not a value"),
        ((*TRACE, "--example", "slope=open('x')"), 2, "is not a value"),
        ((*TRACE, *SLOPE, "-o", "book.txt"), 2, "has to end in .yaml"),
        ((*TRACE, *SLOPE, "--decide", "slop=exact"), 2, "did you mean slope?"),
        ((*TRACE[:2], "functions.py:slo", *TRACE[3:], *SLOPE), 1, "did you mean slow?"),
        (("rule", "from-trace", "functions.py:wrong"), 1, "something else than (pattern, replacement, examples)"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], code: int, said: str, invoke: Invoke) -> None:
    result = invoke(*arguments)
    assert said in result.stderr
    assert result.exit_code == code


def test_rules_about_values_of_the_program(invoke: Invoke, tmp_path: Path) -> None:
    about = ("rule", "from-trace", "functions.py:same", "--replace", "last", "--example", "x=f32 [2, 3, 4, 5]")
    decided = ("--decide", "new_permute_dims=exact", "--decide", "new_permute_dims_2=exact", "-o", "book.yaml")
    made = invoke(*about, "--root", "input", "--uses", "first", *decided)
    assert made.exit_code == 0, made.stderr
    assert invoke("rule", "check", "book.yaml", "--strict").exit_code == 0
    without = invoke(*about, "--root", "input")
    assert (without.exit_code, "EK266" in without.stderr, "`uses`" in without.stderr) == (2, True, True)
    alone = invoke(*about, "--uses", "first")
    assert (alone.exit_code, "--uses is for rules about values" in alone.stderr) == (2, True)


def test_lists_of_tensors(invoke: Invoke) -> None:
    command = ("rule", "from-trace", "functions.py:joined", "--replace", "moved", "--example", "xs=list of f32 [2, 3]")
    literals = ("permute_copy_dims", "new_cat_dim", "new_permute_copy_dims")
    decided = [part for one in literals for part in ("--decide", f"{one}=exact")]
    made = invoke(*command, *decided, "-o", "book.yaml")
    assert made.exit_code == 0, made.stderr
    assert invoke("rule", "check", "book.yaml", "--strict").exit_code == 0
    assert "for x in xs" in invoke(*command).stdout


def test_sizes_that_vary(invoke: Invoke, tmp_path: Path) -> None:
    command = ("rule", "from-trace", "functions.py:halved", "--replace", "first_half", "--example", "x=f32 [6, 3]")
    undecided = json.loads(invoke(*command, "--varying", "N", "--json").stdout)["undecided"]
    decided = [part for one in undecided for part in ("--decide", f"{one}=exact")]
    made = invoke(*command, "--varying", "N", *decided, "-o", "book.yaml")
    assert made.exit_code == 0, made.stderr
    assert "(N // 2)" in (tmp_path / "book.yaml").read_text()
    assert invoke("rule", "check", "book.yaml").exit_code == 0
    wrong = invoke(*command, "--varying", "Q")
    assert (wrong.exit_code, "no example has a size 'Q'" in wrong.stderr) == (2, True)
