"""`exirkit new-backend`: what it writes passes its own tests, in a process of its own and without being installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke
from tests.thoroughness import TRIES_ALL

SOURCES = Path(__file__).resolve().parents[3] / "src"


@pytest.fixture
def package(invoke: Invoke, tmp_path: Path) -> Path:
    done = invoke("new-backend", "TinyNpu")
    assert done.exit_code == 0, done.output
    return tmp_path / "tiny_npu"


def run(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # The package lies in its directory, and exirkit may lie in its sources.
    path = os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.slow
def test_it_passes_its_own_tests(package: Path) -> None:
    programs = "200" if TRIES_ALL else "4"
    done = run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", FUZZ_PROGRAMS=programs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{int(programs) + 5} passed" in done.stdout
    # A kernel that is forgotten is noticed, and so is one that is wrong.
    runtime = package / "tiny_npu" / "runtime.py"
    right = runtime.read_text()
    runtime.write_text(right.replace('"aten.relu.default": torch.relu', '"aten.relu.default": torch.tanh'))
    wrong = run(package, "-m", "pytest", "-q", "-x", "tests/test_backend.py", "-k", "test_a_model")
    assert (wrong.returncode, "Mismatched elements" in wrong.stdout) == (1, True)


def test_its_rules_and_partitioning_are_valid(invoke: Invoke, package: Path) -> None:
    from exirkit.passes import load_partitioner
    from exirkit.patterns import check_book, load_book

    assert load_partitioner(package / "tiny_npu" / "partitioning.yaml").partitioning.backend == "TinyNpu"
    book = load_book(package / "tiny_npu" / "rules.yaml").require_valid()
    assert check_book(book).is_accepted


def test_its_entry_point_names_what_there_is(package: Path) -> None:
    project = tomllib.loads((package / "pyproject.toml").read_text())
    assert project["project"]["name"] == "tiny-npu"
    (point,) = project["project"]["entry-points"]["exirkit.backends"].values()
    assert point == "tiny_npu:TinyNpu"
    for file in package.rglob("*"):
        assert file.is_dir() or "$" not in file.read_text().replace("$ ", ""), file
    for file in package.rglob("*.py"):
        compile(file.read_text(), str(file), "exec")


def test_report_and_directory(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("new-backend", "Abc9Dsp", "-o", tmp_path / "some" / "where", "--json")
    report = json.loads(done.stdout)
    assert (report["backend"], report["package"]) == ("Abc9Dsp", "abc9_dsp")
    assert all((tmp_path / "some" / "where" / file).is_file() for file in report["files"])
    again = invoke("new-backend", "Abc9Dsp", "-o", tmp_path / "some" / "where")
    assert (
        again.exit_code,
        "EK712" in again.stderr,
        "exists already and is not an empty directory" in again.stderr,
    ) == (1, True, True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tiny-npu", "TinyNpu"), ("npu", "Npu"), ("9Lives", "Lives"), ("Tiny Npu", "TinyNpu"), ("", "TinyNpu"),
        ("../Evil", "Evil"), ("Größe", "Gre"), ("None", "TinyNpu"), ("Json", "TinyNpu"), ("Torch", "TinyNpu"),
        ("ReferenceBackend", "TinyNpu"), ("A" * 62, "A" * 40), ("Import", "TinyNpu"), ("$backend", "Backend"),
    ],
)  # fmt: skip
def test_bad_names(invoke: Invoke, tmp_path: Path, name: str, hint: str) -> None:
    done = invoke("new-backend", "--", name)
    assert (done.exit_code, "EK725" in done.stderr) == (2, True), done.output
    assert f"such as {hint}" in done.stderr
    assert not list(tmp_path.iterdir())
