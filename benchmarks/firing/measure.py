"""One model: what the oracle counts, and what the rules find in each column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from torch.export import ExportedProgram

from .columns import COLUMNS, Finder, Found, exported, path_of
from .models import Built, build
from .oracle import sites_of
from .sites import Site, is_around, missed


@dataclass
class Row:
    """What was seen of a model.

    Attributes:
        model: Its name.
        sites: What the oracle counts.
        found: What was found, by column.
        missed: The sites that were not found, by column.
    """

    model: str
    sites: Counter[Site] = field(default_factory=Counter)
    found: dict[str, Found] = field(default_factory=dict)
    missed: dict[str, Counter[Site]] = field(default_factory=dict)


def measure(name: str, make: Callable[[], Built], finder: Finder, columns: tuple[str, ...] = tuple(COLUMNS)) -> Row:
    """Count the sites of a model, and find them in programs made of it.

    A program that cannot be made, or rules that cannot be applied to it, miss every site of the model.
    """
    model, inputs = build(make)
    program = exported(model, inputs)
    row = Row(name, alive(sites_of(model, inputs), program))
    for column in columns:
        try:
            found = finder.find(COLUMNS[column](program))
        except Exception as error:
            found = Found(error=f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
        row.found[column] = found
        row.missed[column] = missed(row.sites, found.fired + found.there)
    return row


def alive(sites: Counter[Site], program: ExportedProgram) -> Counter[Site]:
    """Return the sites without those in modules whose results the model does not return: no program computes them."""
    live = {node for node in program.graph.nodes if node.op == "output"}
    for node in reversed(program.graph.nodes):
        if node in live:
            live.update(node.all_input_nodes)
    paths = {path_of(node) for node in live if node.op == "call_function"}
    return Counter({site: count for site, count in sites.items() if any(is_around(site.path, one) for one in paths)})


def total(counts: Counter[Site], concept: str) -> int:
    """Return how many sites of a concept there are."""
    return sum(count for site, count in counts.items() if site.concept == concept)
