"""A campaign as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from exirkit.fuzz.campaigns.results import BAD_VERDICTS

from .plots import Bar, bars, line
from .summary import Bucket, CampaignSummary, FeatureCount

_MOST_BARS = 40

_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --dim: #59636e; --page: #fff; --panel: #f5f7f9; --plain: #4477aa;
        --good: #228833; --bad: #cc3311; --line: #d0d7de }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --dim: #9198a1; --page: #0d1117; --panel: #161b22; --plain: #6699cc; --good: #44aa66;
          --bad: #ee6644; --line: #30363d } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 900px;
       margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
p.dim, td.dim { color: var(--dim) }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .25rem .6rem .25rem 0;
       border-bottom: 1px solid var(--line); vertical-align: top } td.number, th.number { text-align: right }
pre { background: var(--panel); padding: .8rem; overflow-x: auto; font-size: 13px; border-radius: 6px }
details { margin: .4rem 0; border: 1px solid var(--line); border-radius: 6px; padding: .4rem .8rem }
summary { cursor: pointer; overflow-wrap: anywhere }
svg { max-width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: var(--text) }
svg .value { fill: var(--dim) } rect.plain { fill: var(--plain) } rect.good { fill: var(--good) }
rect.bad { fill: var(--bad) } polyline { fill: none; stroke: var(--plain); stroke-width: 2 }
.axis { stroke: var(--line) } .mark { stroke: var(--text); stroke-width: 2 }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem } .tile { background: var(--panel); border-radius: 6px;
       padding: .5rem 1rem; min-width: 7rem } .tile b { display: block; font-size: 1.4rem }
"""


def html_page(summary: CampaignSummary) -> str:
    """Return a page about a campaign: HTML with its style and its plots in it."""
    title = f"Campaign {summary.campaign}"
    first, last = summary.seeds or (0, 0)
    target = summary.config["target"]
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="dim">{escape(f"{target} · {summary.engine} · seeds {first} to {last}")}</p>',
        _tiles(summary),
        "<h2>Verdicts</h2>",
        bars("Verdicts", [_verdict_bar(name, count) for name, count in sorted(summary.verdicts.items())]),
        _listed("Not supported by the compiler", summary.unsupported),
        _listed("Oracles that could not be asked", summary.not_run),
        f"<h2>Buckets of failures: {len(summary.buckets)}</h2>",
        _bucket_part(summary.buckets),
        "<h2>Time of each oracle, milliseconds for a program</h2>",
        '<p class="dim">The bar is the mean, the tick is the 95th percentile.</p>',
        bars(
            "Time of each oracle",
            [Bar(one.oracle, one.mean, f"{one.mean:.2f} ms, {one.share:.0%}", one.p95) for one in summary.oracles],
        ),
        "<h2>Programs per second, last session</h2>",
        line("Programs per second", summary.rate, "s", "programs per second"),
        f"<h2>Features of programs: {len(summary.features)}</h2>",
        '<p class="dim">The tick is the quota.</p>' if any(one.quota is not None for one in summary.features) else "",
        _counts("Features", summary.features),
        f"<h2>Passes of the default chain: {len(summary.passes)}</h2>" if summary.passes else "",
        _counts("Passes", summary.passes) if summary.passes else "",
        f"<h2>Operators: {len(summary.operators)}</h2>" if summary.operators else "",
        _counts("Operators", summary.operators) if summary.operators else "",
        "<h2>Configuration</h2>",
        _configuration(summary),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def _tiles(summary: CampaignSummary) -> str:
    bitwise = "-" if summary.bitwise is None else f"{summary.bitwise:.1%}"
    shown = {
        "programs": f"{summary.programs:,}",
        "different": f"{summary.distinct:,}",
        "with failures": f"{summary.failed:,}",
        "operators, median": f"{summary.steps:g}",
        "per second": f"{summary.per_second:.1f}",
        "per second and core": f"{summary.per_core:.1f}",
        "compared bit for bit": bitwise,
    }
    tiles = "".join(f'<div class="tile"><b>{value}</b>{name}</div>' for name, value in shown.items())
    return f'<div class="tiles">{tiles}</div>'


def _verdict_bar(name: str, count: int) -> Bar:
    kind = "bad" if name in BAD_VERDICTS else "good" if name == "passed" else "plain"
    return Bar(name, count, f"{count:,}", kind=kind)


def _listed(title: str, counts: dict[str, int]) -> str:
    if not counts:
        return ""
    return f"<p>{title}: {', '.join(f'{escape(name)} ({count:,})' for name, count in counts.items())}</p>"


def _bucket_part(buckets: tuple[Bucket, ...]) -> str:
    if not buckets:
        return "<p>None.</p>"
    shown = [Bar(one.bucket, one.failures, f"{one.failures:,}", kind="bad") for one in buckets[:_MOST_BARS]]
    return bars("Buckets", shown) + "\n" + "\n".join(_bucket_details(one) for one in buckets)


def _bucket_details(bucket: Bucket) -> str:
    facts = [("oracle", bucket.oracle), ("seeds", ", ".join(map(str, bucket.seeds)))]
    facts += [("culprit", one) for one in bucket.culprit]
    facts += [("bucket of the reduced program", one) for one in bucket.causes]
    facts += [("note", one) for one in bucket.notes]
    texts = [("message", bucket.message), ("reduced program", bucket.reduced), ("repro.py", bucket.repro)]
    if bucket.reduced is None:
        texts.append(("program", bucket.program))
    return (
        f"<details><summary><b>{escape(bucket.bucket)}</b>: {bucket.failures:,}</summary>\n"
        + _table(facts)
        + "".join(f"<p>{name}</p><pre>{escape(text)}</pre>" for name, text in texts if text)
        + "</details>"
    )


def _counts(title: str, counts: tuple[FeatureCount, ...]) -> str:
    shown = [_count_bar(one) for one in counts[:_MOST_BARS]]
    rows = [(one.feature, f"{one.share:.2%}, {one.programs:,}") for one in counts[_MOST_BARS:]]
    rest = f"\n<details><summary>{len(rows)} more</summary>{_table(rows)}</details>" if rows else ""
    return bars(title, shown) + rest


def _count_bar(one: FeatureCount) -> Bar:
    kind = "plain" if one.quota is None else "good" if one.share >= one.quota else "bad"
    return Bar(one.feature, one.share, f"{one.share:.1%}, {one.programs:,}", one.quota, kind)


def _configuration(summary: CampaignSummary) -> str:
    rows = []
    for name, value in summary.config.items():
        if name in ("pipelines", "rules"):
            value = ", ".join(one["name"] for one in value)
        rows.append((name, "" if value is None else str(value)))
    return _table(rows)


def _table(rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f'<tr><td class="dim">{escape(name)}</td><td>{escape(value)}</td></tr>' for name, value in rows)
    return f"<table>{cells}</table>"
