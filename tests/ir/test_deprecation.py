"""Old names of renamed things work, and warn."""

from __future__ import annotations

import pytest

from exirkit import ir, program


def test_old_names_warn() -> None:
    with pytest.warns(DeprecationWarning, match=r"exirkit.ir.cheap_tracing is deprecated: use exirkit.program"):
        assert ir.__getattr__("cheap_tracing") is program.cheap_tracing
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        ir.__getattr__("no_such_name")
