"""Findings in the official exporter and runtime, and the page that tells of them.

`python -m tests.fuzz.official.table` writes docs/reference/upstream_findings.md.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]
REPROS = ROOT / "docs" / "upstream"
PAGE = ROOT / "docs" / "reference" / "upstream_findings.md"
PROGRAMS = Path(__file__).parent

KINDS = ("wrong result", "crash", "exporter raises", "does not load", "does not run", "waste")

HEAD = """# Defects of the official exporter and runtime

Found in executorch 1.5.1 with torch 2.13.0 on Linux (x86-64, CPU, kernels of the Python wheel), and confirmed by
execution. Numbers 1 to 15 were known to us before; the others come from `exirkit fuzz --target official`, and from
operators tried one by one with odd dtypes, sizes and layouts. Each script below is on its own, has at most 20 lines,
and fails while the defect is there:

    python docs/upstream/02_two_conditions.py

| kind | meaning |
|---|---|
| wrong result | other numbers than eager PyTorch, without a word |
| crash | the process ends |
| exporter raises | a model that `torch.export` takes is not lowered |
| does not load, does not run | a file is made, and the runtime rejects it, or the first call of its method |
| waste | right, but larger or slower than need be |

An operator for which the runtime has no kernel is not in the list, and neither is one outside of the core operators.

**The bench** says how our own bench finds the defect: the first of [the oracles](../../fuzz/oracles/README.md) that
reports it when the program of the same name in `tests/fuzz/official/` is given to the compiler that is named.
`official:reinplaced` and the like are the official exporter with a flag or a pass that is not on by default, also for
`exirkit fuzz --target official:reinplaced`. The corpus is a campaign too:

    exirkit fuzz --bench tests/fuzz/official/corpus.py:Corpus --target official --seeds {programs} \\
        --oracles eager-run,lowering,memory-plan,poisoned-run,memory-sanitizer,repeated-runs,official-runtime

**Through exirkit** says what the script does with one word changed: `exirkit.exir` in place of `executorch.exir`. The
file that exirkit makes runs on the same official runtime.

`tests/fuzz/official/test_findings.py` runs every script and every program, so that we notice what a newer version
fixes. This page is written by `python -m tests.fuzz.official.table` from `docs/upstream/findings.yaml`.

{counts}
"""


@dataclass(frozen=True)
class Finding:
    """One defect.

    Attributes:
        name: Of its script and its program.
        kind: One of `KINDS`.
        part: `exporter`, `runtime`, or `torch`.
        expected: What is right.
        seen: What comes instead.
        shows: A pattern in what the script prints.
        known: Threads where it is discussed.
        target: Compiler that is given the program.
        oracle: The first oracle that reports it.
        seed: A seed of the generator whose program shows it with the usual policy.
        why_not: Why the bench doesn't find it, if it doesn't.
        ours: What the script does if it imports `exirkit.exir` in place of `executorch.exir`: `right`, or the code of
            the diagnostic that rejects the program and why, or why the defect is there too.
    """

    name: str
    kind: str
    part: str
    expected: str
    seen: str
    shows: str
    known: str = ""
    target: str = "official"
    oracle: str = ""
    seed: int | None = None
    why_not: str = ""
    ours: str = "right"

    @property
    def script(self) -> Path:
        return REPROS / f"{self.name}.py"

    @property
    def program(self) -> Path:
        return PROGRAMS / f"{self.name}.txt"

    @property
    def title(self) -> str:
        return ast.get_docstring(ast.parse(self.script.read_text(encoding="utf-8"))) or ""


def findings() -> list[Finding]:
    """Return all findings, by number."""
    return [Finding(**one) for one in yaml.safe_load((REPROS / "findings.yaml").read_text(encoding="utf-8"))]


def page(found: list[Finding]) -> str:
    """Return the page."""
    counts = ", ".join(f"{sum(one.kind == kind for one in found)} {kind}" for kind in KINDS)
    by_bench = sum(bool(one.oracle) for one in found)
    right = sum(one.ours == "right" for one in found)
    rejected = sum(one.ours.startswith("EK") for one in found)
    summary = (
        f"{len(found)} findings: {counts}. The bench reports {by_bench} of them. Through exirkit, {right} of the "
        f"scripts are right, {rejected} are rejected with a diagnostic, and "
        f"{len(found) - right - rejected} show the defect."
    )
    rows = [
        "| | what is wrong | kind | where | expected | seen | known | the bench | through exirkit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [_row(one) for one in found]
    programs = sum(bool(one.oracle) for one in found)
    return HEAD.format(counts=summary, programs=programs) + "\n" + "\n".join(rows) + "\n"


def _row(one: Finding) -> str:
    number = f"[{int(one.name[:2])}](../upstream/{one.name}.py)"
    bench = f"{one.oracle}, `{one.target}`" if one.oracle else one.why_not
    bench += f", also seed {one.seed}" if one.seed is not None else ""
    cells = (number, one.title, one.kind, one.part, one.expected, one.seen, one.known or "not found", bench, one.ours)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(findings()), encoding="utf-8")


if __name__ == "__main__":
    main()
