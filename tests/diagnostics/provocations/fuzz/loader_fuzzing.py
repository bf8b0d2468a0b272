"""Loader fuzzing that cannot begin."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from tests.diagnostics.provocation import provokes

from exirkit.fuzz.loader import LoaderFuzzing, campaign


@provokes("EK890")
def no_atheris(scratch: Path) -> object:
    with patch.object(campaign, "find_spec", lambda _name: None):
        return LoaderFuzzing(scratch / "state.json").run(1)


@provokes("EK891")
def child_that_does_not_start(scratch: Path) -> object:
    with patch.object(campaign, "find_spec", lambda _name: True):
        command = [sys.executable, "-c", "raise SystemExit('no module named atheris')"]
        with patch.object(campaign, "child_command", lambda _settings: command):
            return LoaderFuzzing(scratch / "state.json").run(1)


@provokes("EK892")
def no_state(scratch: Path) -> object:
    (scratch / "state.json").write_text('{"format": "of tomorrow"}')
    return LoaderFuzzing(scratch / "state.json").prepare()
