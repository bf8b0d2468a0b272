"""Plans of memory that cannot be shown."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tests.diagnostics.provocation import provokes
from tests.runtime_ref.assembly import Assembly

from exirkit.runtime_ref import lifetimes_of_program


@provokes("EK667")
def tensor_with_too_many_names(_: Path) -> None:
    made = Assembly()
    values = [made.tensor([1]) for _ in range(2100)]
    for before, after in pairwise(values):
        made.move(before, after)
    lifetimes_of_program(made.file(values[:1], values[-1:]))
