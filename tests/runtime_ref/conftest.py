"""Fixtures of the reference runtime."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def official_operators() -> frozenset[str]:
    """Names of the operators that the official runtime 1.5.1 registers."""
    text = Path(__file__).with_name("official_operators.txt").read_text()
    return frozenset(text.split())
