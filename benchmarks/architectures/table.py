"""The results of a sweep as a page."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.architectures.measuring import Outcome

_HEAD = """# Architectures

{count} architectures of transformers, timm and torchvision, with random weights from small configurations, beyond those
of [`tests/models`](../../tests/models). Each is exported, lowered at `-O1` and `-O2`, run on the reference runtime and
on the official one, and compared with eager PyTorch. **{goes} go all the way**; of the others the table says where.

`python -m benchmarks.architectures --table docs/reference/architectures.md` makes this page. Each architecture
has a process of its own with a time limit, so that one that crashes does not end the sweep. The test
`tests/benchmarks/test_architectures.py` tries a sample. Where its column is empty,
the official exporter was not asked.
"""

_ORIGINS = ("build", "eager", "export")


def page(results: Mapping[str, Outcome]) -> str:
    """Return the page in Markdown."""
    tried = {name: one for name, one in results.items() if not any(stage in one.failures for stage in _ORIGINS)}
    rest = {name: one for name, one in results.items() if name not in tried}
    failing = {name: one for name, one in tried.items() if not one.goes}
    parts = [_HEAD.format(count=len(tried), goes=len(tried) - len(failing))]
    parts.append("\n## What does not go\n")
    if failing:
        parts.append("| architecture | stage | why | official exporter |\n|---|---|---|---|")
        parts += [_failing_row(name, one) for name, one in failing.items()]
    else:
        parts.append("Nothing.")
    parts.append("\n## What goes\n")
    parts.append("Errors are the largest difference from eager over the largest value, on the official runtime.\n")
    parts.append(
        "| architecture | instructions | error `-O1` | error `-O2` | official exporter |\n|---|---|---|---|---|"
    )
    parts += [_going_row(name, one) for name, one in tried.items() if one.goes]
    if rest:
        parts.append("\n## Not exported\n")
        parts.append("What stops before our chain begins: in the library itself, or in `torch.export`.\n")
        parts.append("| architecture | stage | why |\n|---|---|---|")
        parts += [f"| {name} | {' | '.join(_first_failure(one))} |" for name, one in rest.items()]
    return "\n".join(parts) + "\n"


def _first_failure(one: Outcome) -> tuple[str, str]:
    stage, why = next((stage, why) for stage, why in one.failures.items() if not stage.startswith("official exporter"))
    return stage, _cell(why)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")[:240]


def _failing_row(name: str, one: Outcome) -> str:
    stage, why = _first_failure(one)
    return f"| {name} | {stage} | {why} | {_official(one)} |"


def _going_row(name: str, one: Outcome) -> str:
    errors = " | ".join(f"{one.passed[f'official runtime -O{level}']:.0e}" for level in (1, 2))
    return f"| {name} | {one.operators} | {errors} | {_official(one)} |"


def _official(one: Outcome) -> str:
    """Return what the official exporter and runtime do with an architecture; nothing where it was not asked."""
    failures = {stage: why for stage, why in one.failures.items() if stage.startswith("official exporter")}
    for stage, why in failures.items():
        return f"{'lowers, fails' if stage.endswith('run') else 'fails'}: {_cell(why)[:120]}"
    return "goes" if "official exporter, run" in one.passed else ""
