"""The page about partitioning: its files do what it shows, and every key is on it."""

from __future__ import annotations

import runpy
import shlex
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke, invoke  # noqa: F401 - a fixture
from tests.docs.guide_blocks import steps_of

from exirkit.passes import Minimum, Partitioning, TakingRule

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how_to" / "partitioning.md").read_text(encoding="utf-8")


def test_the_guide_runs(
    invoke: Invoke,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    shown = 0
    for step in steps_of(PAGE):
        if step.file:
            (tmp_path / step.file).write_text(step.text, encoding="utf-8")
            continue
        program, *arguments = shlex.split(step.command)
        if program == "exirkit":
            done = invoke(*arguments)
            assert done.exit_code == 0, done.output
            printed = done.stdout
        else:
            runpy.run_path(str(tmp_path / arguments[0]))
            printed = capsys.readouterr().out
        lines = [" ".join(line.split()) for line in printed.splitlines()]
        for line in step.output:
            shown += 1
            assert " ".join(line.split()) in lines
    assert shown == 5


@pytest.mark.parametrize("model", [Partitioning, TakingRule, Minimum])
def test_every_key_is_on_the_page(model: type[Partitioning]) -> None:
    for key in model.model_fields:
        assert f"`{key}" in PAGE or f"{key}:" in PAGE, key
