"""Strings of types that have no meaning, and where in them that shows."""

from __future__ import annotations

import pytest

from exirkit.patterns.types.parser import parse_variable
from exirkit.patterns.types.scanner import VariableSyntaxError


@pytest.mark.parametrize("size", ["4 // 0", "2 * (3 // (1 - 1))"])
def test_sizes_without_a_value(size: str) -> None:
    with pytest.raises(VariableSyntaxError, match="division by zero") as caught:
        parse_variable("x", f"f32 [B, {size}]")
    assert caught.value.offset == len("f32 [B, ")
