"""The results of a sweep as a page."""

from __future__ import annotations

from benchmarks.architectures.measuring import Outcome


def page(results: dict[str, Outcome]) -> str:
    return str(len(results))
