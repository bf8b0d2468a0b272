"""Backends of the wheel whose import lines `exirkit migrate` has changed, in our chain and as they were in theirs."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.official.backends.migrated_worker import MODELS
from tests.official.oracle import ROOT, OfficialRuntime
from tests.thoroughness import TRIES_ALL, some_of

pytestmark = [pytest.mark.executorch]

# What each backend imports of the others.
PACKAGES = {
    "xnnpack": ("xnnpack", "transforms"),
    "vulkan": ("vulkan", "transforms", "xnnpack"),
    "coreml": ("apple",),
    "cadence": ("cadence", "transforms"),
    "cortex_m": ("cortex_m", "arm", "transforms", "xnnpack"),
}

# Backends of which `EXIRKIT_TESTS=all` lowers models in both chains; groups of their suites run at every change.
# Four of the ten models are lowered for the others by default.
THOROUGH = ("vulkan", "coreml", "cadence", "cortex_m")

# In Cadence's chain our Edge has no copies to the dtype that a value has already.
GONE = {"cadence": {"aten::_to_copy"}}

# Models that the official chain does not lower, with what it says; ours may.
REJECTED = {
    "cortex_m": {
        "attention": "expected scalar type torch.int8 but found torch.int32",
        "depthwise": '"hardswish_cpu" not implemented for',
    }
}


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the function that returns, for a backend, a folder with its packages.

    After migration they are in `migrated`, and as they were in `originals`.
    """

    @functools.cache
    def folder_of(backend: str) -> Path:
        folder = tmp_path_factory.mktemp(backend)
        spec = find_spec("executorch")
        assert spec is not None
        backends = Path((spec.submodule_search_locations or [""])[0], "backends")
        for package in PACKAGES[backend]:
            shutil.copytree(backends / package, folder / "originals" / package, ignore=_not_ahead_of_time)
        shutil.copytree(folder / "originals", folder / "migrated")
        command = [sys.executable, "-m", "exirkit", "migrate", str(folder / "migrated"), "--write", "--json"]
        done = subprocess.run(
            [*command, "--map", "executorch.backends=migrated"], check=True, capture_output=True, text=True, cwd=ROOT
        )
        report = json.loads(done.stdout)
        assert report["unread"] == []
        assert report["missing"] == []
        return folder

    return folder_of


def _not_ahead_of_time(folder: str, names: list[str]) -> set[str]:
    """Return what is not part of compiling: tests, sources of runtimes, and caches."""
    suffixes = (".py", ".fbs", ".yaml", ".json", ".so")
    return {
        name
        for name in names
        if name in ("test", "tests", "runtime", "third-party", "scripts", "__pycache__")
        or (Path(folder, name).is_file() and not name.endswith(suffixes))
    }


@pytest.mark.slow
@pytest.mark.parametrize("backend", PACKAGES)
def test_nothing_but_names_of_modules_changed(backend: str, migrated: Callable[[str], Path]) -> None:
    before, after = migrated(backend) / "originals", migrated(backend) / "migrated"
    changed = 0
    for path in sorted(before.rglob("*.py")):
        old, new = (Path(one, path.relative_to(before)).read_text().splitlines() for one in (before, after))
        assert len(old) == len(new)
        for one, other in zip(old, new, strict=True):
            if one != other:
                changed += 1
                renamed = one.replace("executorch.exir", "exirkit.exir").replace("executorch.backends", "migrated")
                assert other in (renamed, one.replace("from executorch import exir", "from exirkit import exir")), one
    assert changed > 50


def test_xnnpack_holds_what_the_original_makes(
    migrated: Callable[[str], Path], official_runtime: OfficialRuntime
) -> None:
    _compare(migrated("xnnpack"), "xnnpack", ["residual", "perceptron", "attention"], official_runtime)


@pytest.mark.slow
@pytest.mark.parametrize("backend", PACKAGES)
def test_delegates_and_results_are_those_of_the_originals(
    backend: str, migrated: Callable[[str], Path], official_runtime: OfficialRuntime
) -> None:
    if backend in THOROUGH and not TRIES_ALL:
        pytest.skip(f"{backend} takes one or two minutes of a core: EXIRKIT_TESTS=all runs it")
    models = some_of(list(MODELS), (), list(PACKAGES).index(backend), 4)
    _compare(migrated(backend), backend, models, official_runtime)


@pytest.mark.slow
def test_without_copies_there_are_fewer_delegates(
    migrated: Callable[[str], Path], official_runtime: OfficialRuntime
) -> None:
    """Our Edge has no `expand` to the shape that is there; in the official one it is between delegates."""
    folder = migrated("xnnpack")
    ours = _lowered(folder, "ours", "xnnpack", ["attention"])["attention"]
    theirs = _lowered(folder, "theirs", "xnnpack", ["attention"])["attention"]
    assert len(ours["delegates"]) < len(theirs["delegates"])
    assert theirs["beside"].pop("aten::expand_copy") == 4
    assert ours["beside"] == theirs["beside"]
    _check_outputs(folder, "attention.xnnpack", official_runtime)


def _compare(folder: Path, backend: str, models: list[str], runtime: OfficialRuntime) -> None:
    ours = _lowered(folder, "ours", backend, ["all-copies", *models])
    theirs = _lowered(folder, "theirs", backend, models)
    rejected = REJECTED.get(backend, {})
    assert len(MODELS.keys() - rejected.keys()) >= 10
    for name in models:
        if name in rejected:
            assert rejected[name] in theirs[name]["error"]
            continue
        assert "error" not in ours[name], (name, ours[name]["error"])
        assert "error" not in theirs[name], (name, theirs[name]["error"])
        for one in GONE.get(backend, ()):
            theirs[name]["beside"].pop(one, None)
        assert ours[name]["delegates"] == theirs[name]["delegates"], name
        assert ours[name]["beside"] == theirs[name]["beside"], name
        assert ours[name]["delegates"] or backend in ("cadence", "cortex_m")
        if backend == "xnnpack":
            _check_outputs(folder, f"{name}.{backend}", runtime)
        elif backend in ("cadence", "cortex_m"):
            made, expected = (torch.load(folder / one / f"{name}.{backend}.outputs") for one in ("ours", "theirs"))
            for one, other in zip(made, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=0)


def _check_outputs(folder: Path, name: str, runtime: OfficialRuntime) -> None:
    """Run both files on the official runtime, and compare what they say with each other and with eager."""
    inputs, eager = torch.load(folder / "ours" / f"{name}.eager")
    made, expected = (
        runtime.run((folder / whose / f"{name}.pte").read_bytes(), [list(inputs)]).unwrap()[0]
        for whose in ("ours", "theirs")
    )
    for one, other, exact in zip(made, expected, eager, strict=True):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(one, exact, rtol=1e-3, atol=1e-4)


def _lowered(folder: Path, whose: str, backend: str, models: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.official.backends.migrated_worker", whose, str(folder), backend, *models]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {one["model"]: one for one in map(json.loads, filter(_is_answer, done.stdout.splitlines()))}


def _is_answer(line: str) -> bool:
    return line.startswith('{"model"')
