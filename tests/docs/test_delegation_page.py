"""The Python of the page about delegation runs, in its order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from exirkit.runtime_ref import Runtime

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how_to" / "delegation.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_every_block_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), names)
    method = Runtime.get().load_program(names["lowered"].buffer, knowing=True).load_method("forward")
    given = names["x"], names["y"]
    assert torch.equal(method.execute(list(given))[0], names["Model"]()(*given))
    assert len(names["lowered"].executorch_program.execution_plan[0].delegates) == 2
    assert capsys.readouterr().out.startswith("['aten.add.Tensor', 'aten.mul.Tensor', ")
