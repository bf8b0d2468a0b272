"""Oracles that are asked for what is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.diagnostics.provocation import provokes

from exirkit.fuzz.compilers import OfficialCompiler, compiler_of, official_compiler
from exirkit.fuzz.oracles import oracles_named, suite


@provokes("EK830")
def unknown_oracle(scratch: Path) -> object:
    with pytest.MonkeyPatch.context() as patch:
        # Two of them, so that a new oracle does not change the snapshot.
        patch.setattr(suite, "ORACLES", {name: suite.ORACLES[name] for name in ("eager-run", "lowering")})
        return oracles_named(["eager-run", "O99"])


@provokes("EK831")
def unknown_compiler(scratch: Path) -> object:
    return compiler_of("no_such_module:lower")


@provokes("EK832")
def no_wheel(scratch: Path) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(official_compiler, "missing_reason", lambda: "the executorch wheel is not installed")
        return OfficialCompiler()
