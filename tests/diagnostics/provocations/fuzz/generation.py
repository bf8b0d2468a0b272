"""What the generator of programs complains about."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from tests.diagnostics.provocation import provokes

from exirkit.fuzz.generation import Policy, generate, programs, read_operators


@provokes("EK820")
def unknown_dtype(scratch: Path) -> object:
    file = scratch / "operators.yaml"
    file.write_text("unary:\n  - {op: aten.abs.default, dtypes: float9}\n")
    return read_operators(file)


@provokes("EK821")
def unknown_operator(_: Path) -> object:
    return generate(0, Policy(operators=frozenset({"aten.ad.Tensor"})))


@provokes("EK822")
def without_hypothesis(_: Path) -> object:
    with patch.dict(sys.modules, {"hypothesis": None}):
        return programs()
