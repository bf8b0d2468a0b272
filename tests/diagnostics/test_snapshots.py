"""One rendered diagnostic per code, provoked, and compared with `snapshots/`, which has one file per room.

After a deliberate change: `UPDATE_SNAPSHOTS=1 pytest tests/diagnostics` (in one process); read the difference before
committing it. A new code needs a function in a module of its room under `provocations/`.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
from tests.diagnostics.provocation import NEEDING_EXECUTORCH, PROVOCATIONS, UNREACHABLE, rendered

from exirkit.cli.commands.explain import read_code_texts

HERE = Path(__file__).parent
UPDATE = os.environ.get("UPDATE_SNAPSHOTS") == "1"
ROOMS = {
    "1": "ir",
    "2": "patterns",
    "3": "verifiers",
    "4": "passes",
    "5": "emit",
    "6": "runtime_ref",
    "7": "program_and_cli",
    "8": "fuzz",
}

for _module in sorted((HERE / "provocations").rglob("*.py")):
    import_module(".".join(("tests.diagnostics", *_module.relative_to(HERE).with_suffix("").parts)))

CODES = [
    pytest.param(code, marks=pytest.mark.executorch) if code in NEEDING_EXECUTORCH else code
    for code in sorted(PROVOCATIONS)
]


def snapshots(room: str) -> dict[str, str]:
    """Return the stored texts of a room by code."""
    path = HERE / "snapshots" / f"{room}.txt"
    parts = re.split(r"^======== (EK\d{3})\n", path.read_text(encoding="utf-8") if path.is_file() else "", flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def store(room: str, texts: dict[str, str]) -> None:
    """Write the texts of a room, ordered by code."""
    text = "".join(f"======== {code}\n{text}" for code, text in sorted(texts.items()))
    (HERE / "snapshots" / f"{room}.txt").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("code", CODES)
def test_snapshot(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    modules = set(sys.modules)
    text = rendered(code, tmp_path)
    for name in set(sys.modules) - modules:
        # Other tests have files of the same names.
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    assert text.startswith((f"error[{code}]: ", f"warning[{code}]: ", f"note[{code}]: "))
    room = ROOMS[code[2]]
    if UPDATE:
        store(room, {**snapshots(room), code: text})
    assert snapshots(room).get(code) == text, "UPDATE_SNAPSHOTS=1 writes what is expected"


def test_every_code_is_provoked() -> None:
    missing = [code for code in read_code_texts() if code not in PROVOCATIONS and code not in UNREACHABLE]
    assert not missing, "write functions that provoke them"


def test_the_table_has_no_other_codes() -> None:
    known = set(read_code_texts())
    assert set(PROVOCATIONS) <= known
    assert set(UNREACHABLE) <= known - set(PROVOCATIONS)


def test_there_are_no_other_snapshots() -> None:
    assert {code for room in ROOMS.values() for code in snapshots(room)} <= set(PROVOCATIONS)
