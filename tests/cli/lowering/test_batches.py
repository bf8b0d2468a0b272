"""Several models of one command line: the files and reports that they have alone, whatever becomes of the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.conftest import Invoke, document

MODELS = ("models.py:tiny", "saved.pt2", "models.py:several", "models.py:dynamic")
NAMES = ("tiny", "saved", "several", "dynamic")


@pytest.fixture
def models(model_file: Path) -> Path:
    """A folder with a Python file of factories and a saved program."""
    with model_file.open("a") as file:
        file.write("\n\ndef dies():\n    import os\n\n    os._exit(9)\n")
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    torch.export.save(torch.export.export(layers, (torch.ones(2, 4),)), model_file.parent / "saved.pt2")
    # The weights of a factory are to be the same in each process.
    text = model_file.read_text().replace("super().__init__()", "super().__init__(); torch.manual_seed(0)")
    model_file.write_text(text)
    return model_file.parent


def without_times(report: Any) -> dict[str, Any]:
    return {key: value for key, value in vars(report).items() if key not in ("file", "seconds")}


@pytest.mark.parametrize("jobs", [1, 3])
def test_each_has_the_file_and_the_report_that_it_has_alone(invoke: Invoke, models: Path, jobs: int) -> None:
    result = invoke("lower", *MODELS, "-o", "made", "-j", jobs, "-O2", "--json", "--report", "all.json")
    assert result.exit_code == 0, result.stderr
    batch = document(result.stdout)
    assert batch.ok
    assert document((models / "all.json").read_text()) == batch
    for target, name, report in zip(MODELS, NAMES, batch.models, strict=True):
        alone = document(invoke("lower", target, "-o", f"{name}.pte", "-O2", "--json").stdout)
        assert without_times(report) == without_times(alone)
        assert report.file == str(Path("made", f"{name}.pte"))
        assert (models / report.file).read_bytes() == (models / f"{name}.pte").read_bytes()


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_that_fails_does_not_keep_the_others_from_being_lowered(invoke: Invoke, models: Path, jobs: int) -> None:
    targets = ("models.py:tiny", "models.py:raises", "models.py:rejected_by_export", "saved.pt2")
    result = invoke("lower", *targets, "-o", "made", "--jobs", jobs)
    assert result.exit_code == 1
    said = result.stderr.replace("the model talks\n", "").splitlines()
    assert [line.partition(": error")[0] for line in said] == ["models.py:raises", "models.py:rejected_by_export"]
    assert "[EK715]" in said[0]
    assert "[EK717]" in said[1]
    lines = result.stdout.splitlines()
    assert [line.partition(" -> ")[0] for line in lines[:2]] == ["models.py:tiny", "saved.pt2"]
    assert lines[2:] == ["2 models lowered, 2 failed"]
    assert sorted(one.name for one in (models / "made").iterdir()) == ["saved.pte", "tiny.pte"]
    batch = document(invoke("lower", *targets, "-o", "made", "--jobs", jobs, "--json").stdout)
    assert [one.ok for one in batch.models] == [True, False, False, True]
    assert [one.diagnostics[0].code for one in batch.models if not one.ok] == ["EK715", "EK717"]
    assert not batch.ok


def test_a_process_that_dies_is_reported_and_replaced(invoke: Invoke, models: Path) -> None:
    targets = ("models.py:dies", "models.py:tiny", "saved.pt2")
    result = invoke("lower", *targets, "-o", "made", "-j", 2)
    assert result.exit_code == 1
    assert result.stderr.startswith("models.py:dies: error[EK792]: the process that was lowering this model died")
    assert sorted(one.name for one in (models / "made").iterdir()) == ["saved.pte", "tiny.pte"]


def test_what_a_library_registers_is_known_in_each_process(
    invoke: Invoke, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(models)
    (models / "library.py").write_text("import pathlib, os\npathlib.Path(f'seen-{os.getpid()}').touch()\n")
    result = invoke("lower", "saved.pt2", "models.py:tiny", "-o", "made", "-j", 2, "--import", "library")
    assert result.exit_code == 0, result.stderr
    # Here, and in two processes or in one that was quick.
    assert len(list(models.glob("seen-*"))) >= 2


def test_a_folder_holds_one_model_as_well(invoke: Invoke, models: Path) -> None:
    (models / "made").mkdir()
    result = invoke("lower", "saved.pt2", "-o", "made", "--rules", "fuse", "--journal", "journal.json")
    assert result.exit_code == 0, result.stderr
    assert (models / "journal.json").is_file()
    assert result.stdout.splitlines()[-1] == "1 model lowered"
    assert (models / "made" / "saved.pte").stat().st_size


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["models.py:tiny", "other.py:tiny", "-o", "made"], "EK711", "would be written to one file"),
        (["models.py:tiny", "saved.pt2", "-o", "made.pte"], "EK712", "this names a file"),
        (["models.py:tiny", "saved.pt2", "-o", "models.py"], "EK712", "this names a file"),
        (["models.py:tiny", "saved.pt2", "-o", "no/where"], "EK712", "no such directory"),
        (["models.py:tiny", "saved.pt2", "-o", "made", "--journal", "all.json"], "EK711", "--journal names one file"),
        (["models.py:tiny", "saved.pt2", "-o", "made", "--etrecord", "a.etrecord"], "EK711", "--etrecord"),
        (["models.py:tiny", "missing.pt2", "-o", "made"], "EK713", "no such file"),
        (["models.py:tiny", "saved.pt2", "-o", "made", "--rules", "rules.yaml"], "EK712", "no such file"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_lowered(
    invoke: Invoke, models: Path, args: list[str], code: str, words: str
) -> None:
    (models / "other.py").write_text((models / "models.py").read_text())
    result = invoke("lower", *args)
    assert result.exit_code in (1, 2)
    assert f"[{code}]" in result.stderr
    assert words in result.stderr
    assert not list(models.glob("**/*.pte"))
    assert not (models / "made").exists()
