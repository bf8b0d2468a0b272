"""Rules that choose by cost: the cheapest on the target, within the memory there is; otherwise nothing happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from exirkit import ApplyRules, FoldConstants, UsageError, to_edge
from exirkit.ir import underlying
from exirkit.passes import Pass
from exirkit.patterns import (
    KernelCost,
    RewriteOptions,
    Target,
    load_book,
    parse_book,
    read_target,
    shipped_targets,
    work_of,
)

HOST = read_target("official_host")


class Called(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.randn(8, 4, 3, 3), requires_grad=False)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def rewritten(function: Any, *inputs: torch.Tensor, books: tuple[str, ...] = ("host",), **options: Any) -> list[str]:
    rules = [rule for name in books for rule in load_book(name).rules]
    edge = to_edge(torch.export.export(Called(function), inputs, strict=False))
    passes: list[Pass] = [FoldConstants(1 << 20, creation_nbytes=1 << 20), ApplyRules(rules, RewriteOptions(**options))]
    return calls(edge.transform(passes).exported_program())


def calls(program: torch.export.ExportedProgram) -> list[str]:
    return [str(underlying(node.target)) for node in program.graph.nodes if node.op == "call_function"]


def convolved(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, self.weight, padding=1)


X = torch.randn(1, 4, 20, 20)


def test_nothing_is_chosen_without_a_target() -> None:
    assert rewritten(convolved, X) == ["aten.convolution.default"]


def test_nothing_is_chosen_for_a_target_without_the_kernels() -> None:
    other = Target(target=1, name="other", kernels={"aten.convolution.default": KernelCost(mac_ns=1000)})
    assert rewritten(convolved, X, target=other) == ["aten.convolution.default"]


def test_the_cheapest_is_chosen() -> None:
    found = rewritten(convolved, X, target=HOST)
    assert "aten.bmm.default" in found
    assert "aten.convolution.default" not in found


def test_less_memory_takes_more_strips() -> None:
    counts = [
        rewritten(convolved, X, target=HOST, room=lambda node, room=room: room).count("aten.bmm.default")
        for room in (1e9, 60_000, 40_000, 100)
    ]
    assert counts[0] == 1
    assert counts[0] < counts[1] < counts[2]
    assert counts[3] == 0


def attention(mask: torch.Tensor | None) -> Any:
    def function(self: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask)

    return function


@pytest.mark.parametrize(
    ("mask", "is_needed"),
    [
        (None, False),
        (torch.ones(6, 6, dtype=torch.bool).tril(), False),
        (torch.ones(6, 6, dtype=torch.bool).tril(-1), True),
    ],
    ids=["none", "causal", "a row of nothing"],
)
def test_only_a_row_that_is_masked_whole_needs_precautions(mask: torch.Tensor | None, is_needed: bool) -> None:
    q, k = torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    found = rewritten(attention(mask), q, k, books=("canonicalize", "algebra", "finite"))
    assert ("aten.any.dim" in found) == is_needed


def test_work_of_a_convolution_and_of_a_slice() -> None:
    edge = to_edge(torch.export.export(Called(lambda self, x: convolved(self, x)[:, :, ::2, 1:]), (X,)))
    works = [work_of(node) for node in edge.exported_program().graph.nodes if node.op == "call_function"]
    assert works[0] is not None
    assert works[-1] is not None
    assert works[0].macs == 8 * 20 * 20 * 4 * 9
    # Rows of 19 numbers each, of 8 channels and 10 of their rows.
    assert (works[-1].elements, works[-1].runs) == (8 * 10 * 19, 80)


def test_shipped_targets_and_files(tmp_path: Path) -> None:
    assert shipped_targets() == ("any", "official_host")
    assert HOST.has("aten.linear.default")
    file = tmp_path / "mine.yaml"
    file.write_text("target: 1\nname: mine\nkernels:\n  aten.relu.default: {call_ns: 5, element_ns: 2}\n")
    mine = read_target(file)
    assert mine.cost_ns("aten.relu.default", elements=10) == 25
    assert mine.cost_ns("aten.gelu.default", elements=10) is None
    file.write_text("target: 1\nkernels: {aten.relu.default: {call_ns: -5}}\n")
    with pytest.raises(UsageError) as caught:
        read_target(file)
    assert caught.value.code == "EK209"


def test_numbers_to_tune_are_known_to_replacements_only() -> None:
    book = parse_book(
        """
rulebook: 1
rules:
- id: tuned
  tune: {parts: [1, 2]}
  vars: {x: "f32 [N]"}
  match: return aten.relu.default(x)
  where: parts > 1
  replace: return aten.relu.default(x)
""",
        "tuned.yaml",
    )
    assert [one.code for one in book.errors] == ["EK212"]
