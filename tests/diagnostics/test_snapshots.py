"""One rendered diagnostic per code, provoked, and compared with the text in `snapshots/`.

After a deliberate change: `UPDATE_SNAPSHOTS=1 pytest tests/diagnostics`, and read the difference before committing it.
A new code needs a function in the `provoke_*` module of its room.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.diagnostics import (  # noqa: F401 - they fill the table
    provoke_bridge,
    provoke_campaigns,
    provoke_cli,
    provoke_delegation,
    provoke_dialects,
    provoke_emit,
    provoke_emitter,
    provoke_generation,
    provoke_ir,
    provoke_loader_fuzzing,
    provoke_memory,
    provoke_memory_policies,
    provoke_mutants,
    provoke_oracles,
    provoke_partitioning,
    provoke_passes,
    provoke_patterns,
    provoke_pictures,
    provoke_pipelines,
    provoke_programs,
    provoke_rule_use,
    provoke_runtime_ref,
    provoke_sanitizer,
    provoke_verifiers,
)
from tests.diagnostics.provocation import NEEDING_EXECUTORCH, PROVOCATIONS, UNREACHABLE, rendered

from exirkit.cli.commands.explain import read_code_texts

SNAPSHOTS = Path(__file__).parent / "snapshots"
UPDATE = os.environ.get("UPDATE_SNAPSHOTS") == "1"


CODES = [
    pytest.param(code, marks=pytest.mark.executorch) if code in NEEDING_EXECUTORCH else code
    for code in sorted(PROVOCATIONS)
]


@pytest.mark.parametrize("code", CODES)
def test_snapshot(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = rendered(code, tmp_path)
    assert text.startswith((f"error[{code}]: ", f"warning[{code}]: ", f"note[{code}]: "))
    path = SNAPSHOTS / f"{code}.txt"
    if UPDATE:
        path.write_text(text)
    assert path.is_file(), f"no snapshot yet; UPDATE_SNAPSHOTS=1 writes\n{text}"
    assert text == path.read_text()


def test_every_code_is_provoked() -> None:
    missing = [code for code in read_code_texts() if code not in PROVOCATIONS and code not in UNREACHABLE]
    assert not missing, "write functions that provoke them"


def test_the_table_has_no_other_codes() -> None:
    known = set(read_code_texts())
    assert set(PROVOCATIONS) <= known
    assert set(UNREACHABLE) <= known - set(PROVOCATIONS)


def test_there_are_no_other_snapshots() -> None:
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} <= set(PROVOCATIONS)
