"""Files of the official exporter are read, and files of ours mean the same to the official reader and runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.official.oracle import OfficialRuntime

from exirkit.emit import (
    DataLocation,
    Program,
    PteImage,
    encode_program,
    lay_out,
    open_program,
    read_program,
    restore,
    restore_mutable_data,
    restore_named_data,
    write_file,
)
from exirkit.emit.container import decode_program

pytestmark = pytest.mark.executorch

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ["branch", "delegate", "dynamic", "initial_values", "inline_delegate", "stack_traces", "two_methods"]


def run_samples(command: str, directory: Path) -> str:
    line = [sys.executable, "-W", "ignore", "-m", "tests.emit.official_samples", command, str(directory)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def written_again(path: Path) -> PteImage:
    file = read_program(path.read_bytes())
    is_inline = any(
        delegate.processed.location is DataLocation.INLINE
        for plan in file.program.execution_plan
        for delegate in plan.delegates
    )
    return lay_out(
        restore(file),
        mutable_data=restore_mutable_data(file),
        named_data=restore_named_data(file),
        extract_delegate_segments=not is_inline,
    )


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a `.pte` of every sample, and a `.ours` that was read from it and written again."""
    directory = tmp_path_factory.mktemp("samples")
    run_samples("export", directory)
    for path in directory.glob("*.pte"):
        write_file(path.with_suffix(".ours"), written_again(path))
    return directory


def test_all_samples_are_there(samples: Path) -> None:
    assert sorted(path.stem for path in samples.glob("*.pte")) == SAMPLES


@pytest.mark.parametrize("name", SAMPLES)
def test_programs_survive(samples: Path, name: str) -> None:
    with open_program(samples / f"{name}.pte") as file:
        data = b"".join(encode_program(file.program).chunks())
        program = decode_program(memoryview(data))
        assert program == file.program
        assert Program.model_validate_json(program.model_dump_json()) == program


@pytest.mark.parametrize("name", SAMPLES)
def test_files_come_back_smaller(samples: Path, name: str) -> None:
    theirs, ours = samples / f"{name}.pte", samples / f"{name}.ours"
    before, after = read_program(theirs.read_bytes()), read_program(ours.read_bytes())
    assert restore(after) == restore(before)
    assert restore_mutable_data(after) == restore_mutable_data(before)
    assert restore_named_data(after) == restore_named_data(before)
    assert after.program.segments == before.program.segments
    assert written_again(ours).to_bytes() == ours.read_bytes()
    assert ours.stat().st_size < theirs.stat().st_size


def test_official_reader_sees_the_same(samples: Path) -> None:
    assert "differs" not in run_samples("compare", samples)


@pytest.mark.parametrize("name", SAMPLES)
def test_official_runtime_computes_the_same(samples: Path, name: str, official_runtime: OfficialRuntime) -> None:
    calls = [[torch.linspace(-1, 1, 8).reshape(2, 4)], [torch.arange(8.0).reshape(2, 4)]]
    for method in official_runtime.metadata(samples / f"{name}.pte"):
        theirs, ours = (
            official_runtime.run(samples / f"{name}{suffix}", calls, method=method).unwrap()
            for suffix in (".pte", ".ours")
        )
        for expected, found in zip(theirs, ours, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
