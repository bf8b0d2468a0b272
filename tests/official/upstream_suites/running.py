"""Running test modules of the wheel in a process of their own, and the table of what is known about them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PLUGIN = "tests.official.upstream_suites.plugin"
TIMEOUT_S = 3600


@dataclass(frozen=True)
class Group:
    """Modules that run in one process.

    Attributes:
        name: What they are about.
        modules: Their names in `executorch.backends`.
        needs: Packages without which the group is not run.
        lowers: Whether each module takes steps of the chain.
        thorough: Whether it runs with `EXIRKIT_TESTS=all` only.
        preserve: Operators that `to_edge` leaves where they change nothing (`EdgeCompileConfig.preserve_ops`), because
            tests look for them.
    """

    name: str
    modules: tuple[str, ...]
    needs: tuple[str, ...] = ()
    lowers: bool = True
    thorough: bool = False
    preserve: tuple[str, ...] = ()


@dataclass(frozen=True)
class Known:
    """Tests that do not pass, for one reason.

    Attributes:
        why: The reason.
        tests: Patterns of their names (`ops/test_linear.py::TestLinear::test_x` in the folder of the backend); `*`
            stands for any characters.
        run: Whether they are run nevertheless.
        needs: The package without which they do not pass.
    """

    why: str
    tests: tuple[str, ...]
    run: bool = True
    needs: str | None = None


@dataclass(frozen=True)
class Table:
    """What is known about the suites.

    Attributes:
        groups: What is run.
        known: Tests that do not pass.
        left: Modules that are not run: why.
    """

    groups: tuple[Group, ...]
    known: tuple[Known, ...]
    left: dict[str, str]


def read_table() -> Table:
    """Read `suites.yaml`."""
    data = yaml.safe_load((HERE / "suites.yaml").read_text(encoding="utf-8"))
    groups = tuple(
        Group(
            one["name"],
            tuple(f"{one['in']}.{module}".removeprefix(".") for module in one["modules"]),
            tuple(one.get("needs", ())),
            one.get("lowers", True),
            one.get("thorough", False),
            tuple(one.get("preserve", ())),
        )
        for one in data["groups"]
    )
    known = tuple(Known(**{**one, "tests": tuple(one["tests"])}) for one in data["known"])
    left = {module: one["why"] for one in data["left"] for module in one["modules"]}
    return Table(groups, known, left)


@dataclass
class Outcome:
    """How a test ended.

    Attributes:
        outcome: `passed`, `failed`, `skipped`, `expected failure`, or how its module was not collected.
        reason: Why it did not pass.
        cpu_s: What it took, in seconds of a core.
        steps: How many steps of our chain it took.
    """

    outcome: str
    reason: str = ""
    cpu_s: float = 0.0
    steps: int = 0


def run_modules(
    modules: Sequence[str], not_run: Sequence[str] = (), chain: str = "exirkit", preserve: Sequence[str] = ()
) -> tuple[dict[str, Outcome], str]:
    """Run test modules of the wheel.

    Args:
        modules: Their names in `executorch.backends`.
        not_run: Patterns of the names of tests to leave out.
        chain: `exirkit`, or `official` to run them as they are.
        preserve: Operators that our chain leaves where they change nothing.

    Returns:
        The outcomes by test, and what pytest printed.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.jsonl")
        names = [f"executorch.backends.{one}" for one in modules]
        environment = {
            **os.environ,
            "UPSTREAM_CHAIN": chain,
            "UPSTREAM_RESULTS": str(results),
            "UPSTREAM_NOT_RUN": json.dumps(list(not_run)),
            "UPSTREAM_PRESERVE": json.dumps(list(preserve)),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        }
        # Configuration of ours, such as warnings as errors, is not theirs.
        options = [
            "-q",
            "-p",
            PLUGIN,
            "-p",
            "no:cacheprovider",
            "--import-mode=importlib",
            "-c",
            os.devnull,
            f"--rootdir={_site_packages()}",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, "--continue-on-collection-errors", "--pyargs", *names],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    return _outcomes(map(json.loads, lines)), done.stdout + done.stderr


def _outcomes(lines: Iterator[dict[str, Any]]) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for line in lines:
        name = line["test"].removeprefix("executorch/backends/")
        if "cpu_s" in line:
            ended = found.setdefault(name, Outcome("did not end"))
            ended.cpu_s, ended.steps = line["cpu_s"], line["steps"]
        # A test of several parts has failed if one of them has.
        elif name not in found or found[name].outcome in ("passed", "started"):
            found[name] = Outcome(line["outcome"], line["reason"])
    return found


def _site_packages() -> Path:
    spec = find_spec("executorch")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations))).parent


def modules_of(folder: str) -> list[str]:
    """Return the test modules in a folder of `executorch.backends` and below it, by name there."""
    backends = _site_packages() / "executorch" / "backends"
    files = [*(backends / folder).rglob("test_*.py")]
    files += [file for file in (backends / folder).rglob("models/*.py") if file.name != "__init__.py"]
    return sorted({".".join(file.relative_to(backends).with_suffix("").parts) for file in files})
