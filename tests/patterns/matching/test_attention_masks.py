"""Attention whose mask replaces scores, as models write it: `masked_fill`, `where` with a number or a stored tensor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.patterns.rule_files import book
from torch.export import ExportedProgram

from exirkit import to_edge
from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns import RuleEngine

# The official exporter warns of what is its own business.
pytestmark = pytest.mark.filterwarnings("ignore")

Masking = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""From scores, a mask of what is kept and a stored number to masked scores."""

LEAST = torch.finfo(torch.float32).min
FOUND: dict[str, Masking] = {
    "masked_fill": lambda s, keep, low: s.masked_fill(keep == 0, -torch.inf),
    "scaled": lambda s, keep, low: (s / 3).masked_fill(~keep, -torch.inf),
    "where": lambda s, keep, low: torch.where(keep, s * 0.5, LEAST),
    "where, turned": lambda s, keep, low: torch.where(~keep, -1.0e32, s),
    "stored": lambda s, keep, low: torch.where(keep, s, low),
    "and added": lambda s, keep, low: torch.where(keep, s, low) + torch.where(keep.mT, 0.0, -1.0),
    "added first": lambda s, keep, low: torch.zeros(5, 5) + (s * 2).masked_fill(~keep, LEAST),
}
NOT_FOUND: dict[str, Masking] = {
    # What is left of such a score depends on the score.
    "no number is far below": lambda s, keep, low: s.masked_fill(~keep, -1.0e4),
    "the mask has a row alone": lambda s, keep, low: s.masked_fill(keep[0], -torch.inf),
    "another value for each score": lambda s, keep, low: torch.where(keep, s, s.detach() - 1.0e32),
}


class Attention(torch.nn.Module):
    def __init__(self, masking: Masking) -> None:
        super().__init__()
        self.masking = masking
        self.keep = torch.nn.Buffer(torch.ones(5, 5, dtype=torch.bool).tril())
        self.low = torch.nn.Buffer(torch.tensor(LEAST))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self.masking(q @ k.transpose(-2, -1), self.keep, self.low).softmax(-1) @ v


def dialects(program: ExportedProgram) -> list[ExportedProgram]:
    from executorch.exir import to_edge as official

    return [program, to_edge(program).exported_program(), official(program).exported_program()]


def fired(masking: Masking) -> list[int]:
    """Return how many operators of attention are made in each dialect; the results must be those of the model."""
    model = Attention(masking)
    inputs = tuple(torch.randn(2, 3, 5, size) for size in (4, 4, 6))
    counts = []
    for program in dialects(torch.export.export(model, inputs)):
        editor = GraphEditor(copy_program(program))
        report = RuleEngine(book("attention").rules).run(editor)
        counts.append(sum(one.rule.startswith("attention.sdpa") for one in report.journal))
        torch.testing.assert_close(editor.program.module()(*inputs), model(*inputs), rtol=1e-4, atol=1e-5)
    return counts


@pytest.mark.executorch
@pytest.mark.parametrize("name", FOUND)
def test_a_mask_that_replaces_scores_is_part_of_attention(name: str) -> None:
    assert fired(FOUND[name]) == [1, 1, 1]


@pytest.mark.executorch
@pytest.mark.parametrize("name", NOT_FOUND)
def test_other_replacements_are_left_alone(name: str) -> None:
    assert fired(NOT_FOUND[name]) == [0, 0, 0]
