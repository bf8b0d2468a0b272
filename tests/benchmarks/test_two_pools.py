"""The benchmark of two memories, on a model small enough for a test."""

from __future__ import annotations

import pytest
from benchmarks.two_pools import measure, report


@pytest.mark.parametrize("kib", [3, 64])
def test_a_policy_serves_no_less_than_a_subclass_and_no_more_than_there_is(
    kib: int, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = measure("mlp", kib, None)
    shares = [figures[title]["share"] for title in ("by operator", "operator, size", "policy", "policy, in place")]
    assert max(shares[:2]) <= shares[2] <= figures["bound"] <= 1.0
    assert (figures["bound"] == 1.0) == (kib == 64)
    assert shares[3] >= shares[2]
    assert all(figures[title]["bitwise"] for title in ("by operator", "policy", "policy, in place"))
    report([figures], kib, "our interpreter only")
    assert "bit-equal" in capsys.readouterr().out
