"""A literal of a rule matches its own constant in every dialect, and nothing that computes something else."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from tests.patterns import rule_files
from torch.nn import functional

from exirkit import to_edge
from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns import RuleEngine, parse_book

Function = Callable[[torch.Tensor], torch.Tensor]


class Calls(torch.nn.Module):
    """A module around a function."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def fired(match: str, function: Function, x: torch.Tensor, types: str = 'x: "any [*S]"') -> tuple[int, int]:
    """Return how often a pattern matches a function of a tensor, as exported and in Edge."""
    book = parse_book(
        f"rulebook: 1\nrules:\n- id: one\n  vars: {{{types}}}\n  match: return {match}\n"
        "  replace: return aten.zeros_like.default(x)\n"
    )
    assert not book.found, [one.render() for one in book.found]
    exported = torch.export.export(Calls(function), (x,))
    counts: list[int] = []
    for program in (exported, to_edge(exported).exported_program()):
        report = RuleEngine(book.rules).run(GraphEditor(copy_program(program)))
        # A result of another size is undone, and was a match nonetheless.
        counts.append(len(report.journal) + len(report.rejections))
    return counts[0], counts[1]


X = torch.randn(1, 2, 16, 16)
SAME: list[tuple[str, Function]] = [
    ("aten.mul.Tensor(aten.tanh.default(x), 0.1)", lambda x: torch.tanh(x) * 0.1),
    ("aten.mul.Tensor(x, 0.7978845608028654)", lambda x: x * math.sqrt(2 / math.pi)),
    ("aten.add.Tensor(x, 1)", lambda x: x + 1),
    ("aten.add.Tensor(x, 1)", lambda x: x + 1.0),
    ("aten.add.Tensor(x, 1.0)", lambda x: x + 1),
    ("aten.div.Tensor(x, 6)", lambda x: x / 6),
    ("aten.clamp.default(x, 0, 6)", lambda x: x.clamp(0.0, 6.0)),
    ("aten.clamp.default(x, 0.0, 6.0)", lambda x: x.clamp(0, 6)),
    ("aten.pow.Tensor_Scalar(x, 3)", lambda x: x.pow(3.0)),
    ("aten.avg_pool2d.default(x, [8, 8])", lambda x: functional.avg_pool2d(x, [8, 8], [8, 8])),
    ("aten.avg_pool2d.default(x, [8, 8], [8, 8])", lambda x: functional.avg_pool2d(x, [8, 8])),
    ("aten.avg_pool2d.default(x, 8)", lambda x: functional.avg_pool2d(x, 8, 8)),
    ("aten.mean.dim(x, [2, 3])", lambda x: x.mean([-1, -2])),
    ("aten.mean.dim(x, [-1, -2], True)", lambda x: x.mean([2, 3], keepdim=True)),
    ("aten.sum.dim_IntList(x, [1], dtype=f32)", lambda x: x.sum(1)),
    ("aten.sum.dim_IntList(x, [1])", lambda x: x.sum(1, dtype=torch.float32)),
    ("aten.full_like.default(x, 2.0)", lambda x: torch.full_like(x, 2, device="cpu", pin_memory=False)),
]


@pytest.mark.parametrize(("match", "function"), SAME, ids=[str(index) for index in range(len(SAME))])
def test_what_means_the_same_matches(match: str, function: Function) -> None:
    assert fired(match, function, X) == (1, 1)


OTHER: list[tuple[str, Function, torch.Tensor]] = [
    ("aten.mul.Tensor(x, 0.1)", lambda x: x * 0.1000001, X),
    ("aten.mul.Tensor(x, 0.1)", lambda x: x * 0.2, X),
    ("aten.add.Tensor(x, 0)", lambda x: x + -0.0, X),
    ("aten.add.Tensor(x, 0.0)", lambda x: x + -0.0, X),
    # Beside integers an integer and a float give different dtypes.
    ("aten.add.Tensor(x, 1.0)", lambda x: x + 1, torch.arange(4)),
    ("aten.add.Tensor(x, 1)", lambda x: x + 1.0, torch.arange(4)),
    ("aten.clamp.default(x, 0.0, 2.0)", lambda x: x.clamp(0, 2), torch.arange(4)),
    ("aten.avg_pool2d.default(x, [8, 8])", lambda x: functional.avg_pool2d(x, [8, 8], [4, 8]), X),
    ("aten.mean.dim(x, [2, 3])", lambda x: x.mean([1, 2]), X),
    ("aten.sum.dim_IntList(x, [1])", lambda x: x.sum(1, dtype=torch.float64), X),
    ("aten.add.Tensor(x, True)", lambda x: x + 1, X),
]


@pytest.mark.parametrize(("match", "function", "x"), OTHER, ids=[str(index) for index in range(len(OTHER))])
def test_what_computes_something_else_does_not_match(match: str, function: Function, x: torch.Tensor) -> None:
    types = 'x: "i64 [*S]"' if x.dtype == torch.int64 else 'x: "f32 [*S]"'
    assert fired(match, function, x, types) == (0, 0)


def test_a_constant_that_is_rounded_beside_doubles_is_another_number() -> None:
    """0.1 of float32 beside float64 is not 0.1: the difference is seen in the result."""
    rough = torch.tensor(0.1, dtype=torch.float32)
    x = torch.randn(3, dtype=torch.float64)
    assert fired("aten.mul.Tensor(x, 0.1)", lambda x: x * rough, x) == (0, 0)
    assert fired("aten.mul.Tensor(x, 0.1)", lambda x: x * rough.double(), x) == (0, 0)
    exact = torch.tensor(0.1, dtype=torch.float64)
    assert fired("aten.mul.Tensor(x, 0.1)", lambda x: x * exact, x) == (1, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_constants_of_half_precision_match(dtype: torch.dtype) -> None:
    x = torch.ones(3, dtype=dtype)
    assert fired("aten.mul.Tensor(x, 0.1)", lambda x: x * 0.1, x) == (1, 1)
    assert fired("aten.mul.Tensor(x, 0.1)", lambda x: x * 0.101, x)[0] == 0


@pytest.mark.parametrize(
    ("match", "types", "function", "counts"),
    [
        ("aten.mul.Tensor(x, c)", 'c: "one_of 0.1, 0.2"', lambda x: x * 0.2, (1, 1)),
        ("aten.mul.Tensor(x, c)", 'c: "one_of 0.1, 0.2"', lambda x: x * 0.3, (0, 0)),
        ("aten.mul.Tensor(x, c)", 'c: "one_of 1, 2"', lambda x: x * 2.0, (1, 1)),
        ("aten.mul.Tensor(x, c)", 'c: "float in [0.1, 0.2]"', lambda x: x * 0.1, (1, 1)),
        ("aten.div.Tensor(x, c)", 'c: "float in [1.0, 9.0]"', lambda x: x / 8, (1, 1)),
        ("aten.div.Tensor(x, c)", 'c: "int in [1, 9]"', lambda x: x / 8, (1, 1)),
        # One name for the limit of a clamp, which stays a number, and for a divisor, which becomes a tensor.
        ("aten.div.Tensor(aten.clamp.default(x, 0, c), c)", 'c: "scalar"', lambda x: x.clamp(0, 6) / 6, (1, 1)),
        ("aten.div.Tensor(aten.clamp.default(x, 0, c), c)", 'c: "scalar"', lambda x: x.clamp(0, 0.7) / 0.7, (1, 1)),
        ("aten.mul.Tensor(aten.div.Tensor(x, c), c)", 'c: "float"', lambda x: x / 0.3 * 0.3, (1, 1)),
        ("aten.div.Tensor(aten.clamp.default(x, 0, c), c)", 'c: "scalar"', lambda x: x.clamp(0, 0.7) / 0.8, (0, 0)),
    ],
)  # fmt: skip
def test_variables_for_numbers(match: str, types: str, function: Function, counts: tuple[int, int]) -> None:
    assert fired(match, function, X, f'x: "f32 [*S]", {types}') == counts


def test_a_number_read_from_a_constant_is_short() -> None:
    """What a rule computes with is what the model says: 0.1 and not 0.10000000149011612."""
    book = parse_book(
        "rulebook: 1\nrules:\n- id: one\n  vars: {x: 'f32 [*S]', c: float}\n  match: return aten.mul.Tensor(x, c)\n"
        "  where: c == 0.1\n  replace: return aten.neg.default(x)\n"
    )
    exported = torch.export.export(Calls(lambda x: x * 0.1), (X,))
    report = RuleEngine(book.rules).run(GraphEditor(copy_program(to_edge(exported).exported_program())))
    assert [one.bindings["c"] for one in report.journal] == ["0.1"]


@pytest.mark.parametrize(
    ("match", "function"),
    [
        ("aten.view_copy.default(x, [2, -1])", lambda x: x.reshape(2, 256).cos()),
        ("aten.view_copy.default(x, [2, 16, -1])", lambda x: x.reshape(2, -1, 16).cos()),
        ("aten.expand_copy.default(x, [3, -1, -1, -1])", lambda x: x.expand(3, 2, 16, 16).cos()),
    ],
)
def test_sizes_that_are_left_open_match(match: str, function: Function) -> None:
    assert fired(match, function, X)[1] == 1


def test_an_expansion_that_keeps_a_size_is_not_one_that_changes_it() -> None:
    x = torch.randn(1, 3)
    assert fired("aten.expand_copy.default(x, [-1, 3])", lambda x: x.expand(2, 3).cos(), x)[1] == 0


class NewGelu(torch.nn.Module):
    """The approximate GELU as models write it out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def test_the_written_out_gelu_is_found_in_every_dialect() -> None:
    rules = [rule_files.book("fuse").rule("fuse.gelu-tanh")]
    exported = torch.export.export(NewGelu(), (X,))
    for program in (exported, to_edge(exported).exported_program()):
        editor = GraphEditor(copy_program(program))
        report = RuleEngine(rules).run(editor)
        assert len(report.journal) == 1
        torch.testing.assert_close(editor.program.module()(X), NewGelu()(X), rtol=1e-4, atol=1e-5)
