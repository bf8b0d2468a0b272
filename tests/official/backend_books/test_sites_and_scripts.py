"""What the bridge says of two programs, the rules it makes of that, and its scripts: without the official package.

Importing `exirkit.bridge` takes seconds, because it imports that package. These modules are loaded without it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tests.passes.programs import exported
from torch.export import ExportedProgram

import exirkit
from exirkit.fuzz import CampaignConfig, Found, parse_program
from exirkit.patterns import parse_book

BRIDGE = Path(exirkit.__file__).parent / "bridge"
PACKAGE = "bridge_alone"


def loaded(name: str) -> ModuleType:
    """Load a module of the bridge in a package that has nothing else than what was loaded before."""
    own = f"{PACKAGE}.{name.rpartition('/')[2]}"
    spec = importlib.util.spec_from_file_location(own, BRIDGE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[own] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """A package in place of `exirkit.bridge`, in which nothing observes a pass."""
    sys.modules[PACKAGE] = ModuleType(PACKAGE)
    stub: Any = ModuleType(f"{PACKAGE}.observing")
    stub.Observations = stub.observe = None
    sys.modules[stub.__name__] = stub
    yield
    for name in [one for one in sys.modules if one.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def sites(alone: None) -> ModuleType:
    return loaded("porting/sites")


@pytest.fixture(scope="module")
def porting(sites: ModuleType) -> ModuleType:
    return loaded("porting/porting")


@pytest.fixture(scope="module")
def scripts(alone: None) -> ModuleType:
    return loaded("against/scripts")


def names(nodes: Any) -> list[str]:
    return [str(one.target).removeprefix("aten.") for one in nodes]


X, Y = torch.tensor([[0.5, -1.0, 2.0]]), torch.tensor([[1.5, 0.25, -3.0]])


@pytest.mark.parametrize(
    ("before", "after", "there", "now"),
    [
        # What both have is passed through, above and below.
        (
            lambda x, y: x.relu().neg().neg() * y,
            lambda x, y: x.relu() * y,
            ["neg.default", "neg.default"],
            [],
        ),
        (
            lambda x, y: torch.sub(x.sin(), y, alpha=2),
            lambda x, y: torch.add(x.sin(), y, alpha=-2),
            ["sub.Tensor"],
            ["add.Tensor"],
        ),
        # The sine is still there: it is an input of the site, and no part of it.
        (
            lambda x, y: (x.sin().exp().log(), x.sin() + y),
            lambda x, y: (x.sin(), x.sin() + y),
            ["exp.default", "log.default"],
            [],
        ),
        # The cosine is read only by what was there: it is an input as well.
        (
            lambda x, y: (x.sin() + (c := y.cos()) * 0, c),
            lambda x, y: (x.sin(), y.cos()),
            ["mul.Tensor", "add.Tensor"],
            [],
        ),
        (
            lambda x, y: (m := x * y) + m.neg().neg().abs(),
            lambda x, y: (m := x * y) + torch.maximum(m, m * -1),
            ["neg.default", "neg.default", "abs.default"],
            ["mul.Tensor", "maximum.default"],
        ),
        # The sine is computed twice, and the second one is the input.
        (
            lambda x, y: (x.sin(), x.sin().exp().log() * y),
            lambda x, y: (x.sin(), x.sin() * y),
            ["exp.default", "log.default"],
            [],
        ),
    ],
)
def test_a_site_is_what_differs_and_no_more(
    sites: ModuleType, before: Callable[..., Any], after: Callable[..., Any], there: list[str], now: list[str]
) -> None:
    programs = exported(before, X, Y), exported(after, X, Y)
    (site,) = sites.sites_of(*programs, (X, Y))
    assert names(site.before) == there
    assert names(site.after) == now
    # Each side is described in its own program.
    nodes = [set(program.graph.nodes) for program in programs]
    assert {*site.before, site.results[0]} <= nodes[0]
    assert {*site.after, site.results[1]} <= nodes[1]
    for mine, theirs in site.inputs:
        assert mine in nodes[0]
        # What nothing reads now stands for itself.
        assert theirs in nodes[1] or theirs is mine
    first, second = (function(*site.examples) for function in site.functions())
    torch.testing.assert_close(first, second)
    assert site.is_exact == torch.equal(first, second)


def test_equal_programs_have_no_sites(sites: ModuleType) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sub(x.relu(), y, alpha=2)

    assert list(sites.sites_of(exported(function, X, Y), exported(function, X, Y), (X, Y))) == []


def test_sites_of_one_form_have_one_skeleton(sites: ModuleType) -> None:
    """Literals and shapes do not count, and which operand comes first does."""

    def skeleton(number: float, *inputs: torch.Tensor, turns: bool = False) -> str:
        order = -1 if turns else 1
        (site,) = sites.sites_of(
            exported(lambda x, y: torch.sub(x, y.relu(), alpha=number), *inputs),
            exported(lambda x, y: torch.add(*(x, y.relu() * -number)[::order]), *inputs),
            inputs,
        )
        return str(site.skeleton)

    assert skeleton(2.0, X, Y) == skeleton(3.0, torch.ones(4), torch.ones(4))
    assert skeleton(2.0, X, Y) != skeleton(2.0, X, Y, turns=True)


Pair = tuple[Callable[..., Any], Callable[..., Any], tuple[torch.Tensor, ...]]


def observed(sites: ModuleType, pairs: list[Pair], untouched: list[ExportedProgram]) -> Any:
    """Return what is seen of a pass of which programs before and after are known."""
    found: dict[str, list[Any]] = {}
    for before, after, inputs in pairs:
        for site in sites.sites_of(exported(before, *inputs), exported(after, *inputs), inputs):
            found.setdefault(site.skeleton, []).append(site)
    return SimpleNamespace(sites=found, programs=9, changed=len(pairs), wrong=2, unclear=1, untouched=untouched)


def subtraction(alpha: float, *inputs: torch.Tensor) -> Pair:
    return lambda x, y: torch.sub(x, y, alpha=alpha), lambda x, y: torch.add(x, y, alpha=-alpha), inputs


def turn(*dims: int) -> Pair:
    x = torch.rand(*range(2, 2 + len(dims)))
    return lambda x: x.permute(dims).neg(), lambda x: x.neg().permute(dims), (x,)


def reshape(rows: int, columns: int) -> Pair:
    sizes = (columns, rows)
    return lambda x: x.reshape(sizes).neg(), lambda x: x.neg().view(sizes), (torch.rand(rows, columns),)


def double(rows: int) -> Pair:
    return lambda x: x + x, lambda x: x * 2, (torch.rand(rows, 3),)


FIVE_TIMES = exported(lambda x, y: torch.sub(x, y, alpha=5), X, Y)


@pytest.mark.parametrize(
    ("pairs", "untouched", "types", "match", "replace", "undecided", "evidence"),
    [
        # Of other forms, and of one form: a literal that varies may be anything.
        *(
            (
                [subtraction(2, X, Y), subtraction(3, *others)],
                [FIVE_TIMES],
                {"sub_alpha": "int"},
                "aten.sub.Tensor(x0, x1, alpha=sub_alpha)",
                "aten.add.Tensor(x0, x1, alpha=DECIDE(new_add_alpha, -",
                ("new_add_alpha",),
                "sub_alpha varies: 2, 3",
            )
            for others in ((torch.ones(4), torch.ones(4)), (X, Y))
        ),
        (
            [subtraction(2, X, Y)],
            [FIVE_TIMES],
            {},
            "aten.sub.Tensor(x0, x1, alpha=2)",
            "alpha=DECIDE(new_add_alpha, -2)",
            ("new_add_alpha",),
            "sub_alpha is always 2; calls with 5 were left alone",
        ),
        (
            [turn(1, 0), turn(2, 0, 1), turn(0, 2, 1), turn(1, -1, 0)],
            [],
            {"permute_dims": "perm of x0", "x0": "f32 [*S]"},
            "aten.neg.default(aten.permute.default(x0, permute_dims))",
            "aten.permute.default(aten.neg.default(x0), permute_dims)",
            (),
            "new_permute_dims varies with permute_dims",
        ),
        # Sizes whose remainders are a permutation of the dims do not count as dims.
        (
            [reshape(2, 3), reshape(4, 5), reshape(6, 7)],
            [],
            {"x0": "f32 [N, K]", "reshape_shape": "ints"},
            "aten.neg.default(aten.reshape.default(x0, reshape_shape))",
            "aten.view.default(aten.neg.default(x0), reshape_shape)",
            (),
            "reshape_shape varies: [3, 2], [5, 4], [7, 6]",
        ),
        (
            [double(2), double(3), double(4)],
            [],
            {"x0": "f32 [N, K]"},
            "aten.add.Tensor(x0, x0)",
            "aten.mul.Tensor(x0, 2)",
            (),
            "new_mul_other is 2 in all sites",
        ),
        # Twice the same is too little to decide.
        (
            [double(2), double(3)],
            [],
            {"x0": "f32 [N, K]"},
            "aten.add.Tensor(x0, x0)",
            "aten.mul.Tensor(x0, DECIDE(new_mul_other, 2))",
            ("new_mul_other",),
            "x0 was f32, of 2 dims",
        ),
    ],
)
def test_what_observation_decides(
    porting: ModuleType,
    sites: ModuleType,
    pairs: list[Pair],
    untouched: list[ExportedProgram],
    types: dict[str, str],
    match: str,
    replace: str,
    undecided: tuple[str, ...],
    evidence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = observed(sites, pairs, untouched)
    monkeypatch.setattr(porting, "observe", lambda *_, **__: seen)
    book = porting.port_pass("passes:ThatPass")
    (rule,) = book.rules
    assert {name: str(rule.rule.vars[name]) for name in types} == types
    assert match in str(rule.rule.match)
    assert replace in str(rule.rule.replace)
    assert rule.undecided == undecided
    assert evidence in rule.evidence
    assert rule.sites == len(pairs)
    # What was observed stands above the book, which is read as one if nothing is left to decide.
    assert f"9 programs, {len(pairs)} of them changed" in book.text
    assert f"- ported.that-pass-1: {len(pairs)} sites\n#   {rule.evidence[0]}" in book.text
    assert "decide on" not in book.text if not undecided else f"decide on {', '.join(undecided)}: " in book.text
    if not undecided:
        assert not parse_book(book.text).found
    # As they were seen, on demand.
    (exact,) = porting.port_pass("passes:ThatPass", exact=True).rules
    assert exact.undecided == ()
    assert "DECIDE" not in str(exact.rule.replace)


PLAIN = """program(1)

def forward(x: "f32[2]"):
    y = aten.relu.default(x)
    return {result}

run("forward", x=dyadic(1))
"""
SIMPLE = PLAIN.format(result="y")
STORED = SIMPLE.replace("\n\ndef", '\nw = constant("f32[2]", dyadic(3))\n\ndef', 1).replace(
    "relu.default(x", "add.Tensor(x, w"
)
BOTH = (
    SIMPLE.replace("\n\nrun", '\n\n\ndef other(u: "f32[2]"):\n    v = aten.neg.default(u)\n    return v\n\nrun')
    + 'run("other", u=dyadic(1))\n'
)
SIZED = """program(1)
n = symbol(1, 4)

def forward(x: "f32[n]"):
    y = aten.relu.default(x)
    return y

run("forward", n=2, x=dyadic(1))
"""


@pytest.mark.parametrize(
    ("text", "oracle", "target", "on_edge", "is_alone"),
    [
        (SIMPLE, "their-results", "executorch.passes:Wrong", True, True),
        (SIMPLE, "agreement", "executorch.passes:Wrong", True, False),
        (SIMPLE, "their-results", "passes/own.py:Wrong", True, False),
        (SIMPLE, "their-results", "executorch.passes:Wrong", False, False),
        (STORED, "their-results", "executorch.passes:Wrong", True, False),
        (BOTH, "their-results", "executorch.passes:Wrong", True, False),
        (SIZED, "their-results", "executorch.passes:Wrong", True, False),
        (PLAIN.format(result="y, 3"), "their-results", "executorch.passes:Wrong", True, False),
        (PLAIN.format(result="y, y"), "their-results", "executorch.passes:Wrong", True, True),
    ],
)
def test_which_scripts_need_the_official_package_only(
    scripts: ModuleType, text: str, oracle: str, target: str, *, on_edge: bool, is_alone: bool
) -> None:
    one = SimpleNamespace(target=target, dialect="edge" if on_edge else "aten", takes_program=False)
    comparison = SimpleNamespace(name="Wrong", originals=(one,), is_on_edge=on_edge)
    found = Found(oracle=oracle, symptom="values", message="1.0 instead of 2.0", bucket="theirs is wrong | Wrong")
    script = scripts.script_of(parse_program(text), found, comparison, CampaignConfig())
    compile(script, "script.py", "exec")
    assert ("from executorch.exir import to_edge" in script) == is_alone
    assert ("parse_program(PROGRAM)" in script) == (not is_alone)
    assert "theirs is wrong | Wrong" in script
    assert "1.0 instead of 2.0" in script
