"""Rules applied to small functions: how often they fire, and whether results stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from exirkit import to_edge
from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns import LoadedBook, RuleEngine, parse_book


class Whole(torch.nn.Module):
    """A module around a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)


def book_of(text: str, head: str = "") -> LoadedBook:
    """Return a book with one rule, `one`."""
    return parse_book(f"rulebook: 1\n{head}rules:\n- id: one\n{text}", "book.yaml")


def rewritten(
    book: LoadedBook, function: Callable[..., Any], *given: torch.Tensor, is_edge: bool = True
) -> tuple[int, torch.export.ExportedProgram]:
    """Return how often a book fires on a function, and what it makes of it; results must stay."""
    assert not book.found, [one.render() for one in book.found]
    program = torch.export.export(Whole(function), given)
    program = to_edge(program).exported_program() if is_edge else program
    wanted = program.module()(*given)
    editor = GraphEditor(copy_program(program))
    report = RuleEngine(book.rules).run(editor)
    torch.testing.assert_close(editor.program.module()(*given), wanted)
    return len(report.journal), editor.program


def fired(book: LoadedBook, function: Callable[..., Any], *given: torch.Tensor, is_edge: bool = True) -> int:
    """Return how often a book fires on a function; results must stay."""
    return rewritten(book, function, *given, is_edge=is_edge)[0]
