"""How many of our files are entered on the way of a two-layer model to bytes, and of a YAML rule to an applied rewrite.

A file counts if a function of it is called; what runs at import does not count.

Usage: python -m tools.files_entered [--list]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import exirkit

_PACKAGE = Path(exirkit.__file__).parent
# The rooms are links to folders at the top of the repository.
ROOTS = {str(one.resolve()) for one in (_PACKAGE, *_PACKAGE.iterdir())}
BOOK = """
rulebook: 1
rules:
- id: fuse.silu
  doc: A value times its sigmoid is one operator.
  vars: {x: "f32 [*S]"}
  match: return aten.mul.Tensor(x, aten.sigmoid.default(x))
  replace: return aten.silu.default(x)
  equiv: {rtol: 1.0e-5, atol: 1.0e-6}
"""


class TwoLayers(torch.nn.Module):
    """Two layers, and a counter of calls."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        hidden = self.first(x)
        return self.second(hidden * torch.sigmoid(hidden))


def entered(work: Callable[[], Any]) -> dict[str, int]:
    """Return our files in which functions are called while something runs, with their numbers of lines."""
    names: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            names.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    ours = {Path(name).resolve() for name in names if Path(name).is_file()}
    return {
        str(one): len(one.read_text(encoding="utf-8").splitlines())
        for one in sorted(ours)
        if any(str(one).startswith(f"{root}/") for root in ROOTS)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the files")
    options = parser.parse_args()
    exported = torch.export.export(TwoLayers().eval(), (torch.randn(1, 4),))
    with tempfile.TemporaryDirectory() as directory:
        book = Path(directory) / "book.yaml"
        book.write_text(BOOK, encoding="utf-8")
        edge = exirkit.to_edge(exported)

        def lower() -> None:
            exirkit.to_edge(exported).to_executorch().save(str(Path(directory) / "model.pte"))

        def rewrite() -> None:
            rules = exirkit.load_book(book).require_valid()
            _, report = exirkit.ApplyRules(rules).apply(edge.exported_program())
            assert report.modified

        for title, work in (("a model to bytes", lower), ("a YAML rule to an applied rewrite", rewrite)):
            found = entered(work)
            print(f"{title}: {len(found)} files, {sum(found.values()):,} lines")
            if options.list:
                print("\n".join(f"  {lines:5} {name}" for name, lines in found.items()))


if __name__ == "__main__":
    main()
