"""The page of the firing table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from .columns import COLUMNS
from .measure import Row, total
from .reasons import reason_for
from .sites import CONCEPTS, Site, family

_HEAD = """\
# Where the shipped rules fire

Sites of well-known building blocks in real models with random weights, and how many of them the shipped rules find:
in the program as `torch.export` returns it, in our Edge, and in the official exporter's Edge. Sites are counted by an
oracle that knows nothing of rules: what the modules of the eager model call while it runs. A site counts as found where
a rule fires, or where its operator stands in the program already and no rule is needed (in brackets). Made by
`python -m benchmarks.firing --output docs/reference/firing_table.md`.

"""


def page(rows: Sequence[Row], inductor: Mapping[str, int | str]) -> str:
    """Return the text of the page."""
    parts = [_HEAD, "## By building block\n", *_by_concept(rows), "\n## By model\n", *_by_model(rows)]
    parts += ["\n## Sites that are missed\n", *_missed(rows)]
    if inductor:
        parts += ["\n## Inductor's attention patterns, for scale\n", *_inductor(rows, inductor)]
    return "\n".join(parts) + "\n"


def _share(found: int, sites: int) -> str:
    return f"{100 * found / sites:.1f} %" if sites else "-"


def _by_concept(rows: Sequence[Row]) -> list[str]:
    columns = list(COLUMNS)
    lines = [f"| building block | models | sites | {' | '.join(columns)} |", "|---|---|---|" + "---|" * len(columns)]
    sums: Counter[str] = Counter()
    for concept, meaning in CONCEPTS.items():
        sites = sum(total(row.sites, concept) for row in rows)
        having = sum(bool(total(row.sites, concept)) for row in rows)
        found = {key: sites - sum(total(row.missed[key], concept) for row in rows) for key in columns}
        there = {key: _there(rows, concept, key) for key in columns}
        cells = [f"{found[key]}{f' ({there[key]})' if there[key] else ''}" for key in columns]
        lines.append(f"| {meaning} | {having} | {sites} | {' | '.join(cells)} |")
        sums.update({"sites": sites, **found})
    shares = " | ".join(f"**{sums[key]}, {_share(sums[key], sums['sites'])}**" for key in columns)
    return [*lines, f"| **all** | {len(rows)} | {sums['sites']} | {shares} |"]


def _there(rows: Sequence[Row], concept: str, column: str) -> int:
    """Return at how many sites of a concept the operator stands already."""
    count = 0
    for row in rows:
        there = row.found[column].there
        for site, sites in row.sites.items():
            if site.concept == concept:
                count += min(sites, there[Site(family(concept), site.path)])
    return count


def _by_model(rows: Sequence[Row]) -> list[str]:
    columns = list(COLUMNS)
    lines = [f"| model | sites | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns)]
    for row in rows:
        sites = sum(row.sites.values())
        cells = " | ".join(str(sites - sum(row.missed[key].values())) for key in columns)
        counts = ", ".join(f"{total(row.sites, key)} {key}" for key in CONCEPTS if total(row.sites, key))
        lines.append(f"| {row.model}: {counts} | {sites} | {cells} |")
    return lines


def _missed(rows: Sequence[Row]) -> list[str]:
    reasons: dict[tuple[str, str, str, str], Counter[str]] = {}
    for row in rows:
        for column, left in row.missed.items():
            for site, count in left.items():
                why = row.found[column].error or reason_for(row.model, site.concept, site.path, column)
                key = (row.model, site.concept, general(site.path), why)
                reasons.setdefault(key, Counter())[column] += count
    if not reasons:
        return ["None."]
    lines = [f"| model | building block | module | {' | '.join(COLUMNS)} | reason |", "|---|---|---|---|---|---|---|"]
    for (model, concept, path, why), counts in sorted(reasons.items()):
        cells = " | ".join(str(counts[key]) if counts[key] else "" for key in COLUMNS)
        lines.append(f"| {model} | {concept} | `{path or '(model)'}` | {cells} | {why} |")
    return lines


def general(path: str) -> str:
    """Return a path whose numbers are stars: layers of one kind are listed once."""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))


def _inductor(rows: Sequence[Row], inductor: Mapping[str, int | str]) -> list[str]:
    lines = ["| model | attention sites | Inductor finds | ours in the exported program |", "|---|---|---|---|"]
    for row in rows:
        if row.model not in inductor:
            continue
        kinds = [key for key in CONCEPTS if key.startswith("attention")]
        sites = sum(total(row.sites, key) for key in kinds)
        found = sites - sum(total(row.missed["exported"], key) for key in kinds)
        one = sum(count for site, count in row.found["exported"].there.items() if site.concept == "attention")
        lines.append(f"| {row.model} | {sites}, {one} of them one operator | {inductor[row.model]} | {found} |")
    return lines
