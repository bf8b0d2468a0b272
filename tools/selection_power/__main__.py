"""Mutants of the product against the quick selection of tests, and against all tests.

    python -m tools.selection_power prepare DIR            # a copy of the tree with all mutants, switched off
    python -m tools.selection_power reach DIR              # one run of the selection: who reaches which mutant
    python -m tools.selection_power reach DIR --slow       # the same for what the selection leaves out
    python -m tools.selection_power kill DIR [--slow]      # each mutant against the tests that reach it
    python -m tools.selection_power report DIR

Everything is kept in files of DIR, so each command goes on where it was stopped.
"""

from __future__ import annotations

import enum
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import pydantic
import typer

from tools.selection_power.sites import Site, draw, write_tree

ROOT = Path(__file__).resolve().parents[2]
# Tests of the sources, which a tree with mutants fails.
_LEFT_OUT = ("tests/packaging", "tests/docs/test_completeness.py")
_SITES = pydantic.TypeAdapter(list[Site])

app = typer.Typer(add_completion=False, help=__doc__)


class Verdict(enum.StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNREACHED = "unreached"


@app.command()
def prepare(directory: Path, count: int = 100, seed: int = 1) -> None:
    """Copy the tree and write mutants into it."""
    tree = directory / "tree"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        source, copied = ROOT / name, tree / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copied.symlink_to(source.readlink())
        else:
            shutil.copy(source, copied)
    sites = draw(tree, count, seed)
    write_tree(tree, sites)
    (directory / "path").mkdir()
    shutil.copy(Path(__file__).with_name("probe.py"), directory / "path" / "exirkit_mutants.py")
    (directory / "sites.json").write_bytes(_SITES.dump_json(sites, indent=1))
    rooms = defaultdict[str, int](int)
    for one in sites:
        rooms[one.file.split("/")[0]] += 1
    print(f"{len(sites)} mutants, seed {seed}: {dict(rooms)}")


@app.command()
def reach(directory: Path, slow: bool = False, paths: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Run tests folder by folder with all mutants off, and record which tests reach which mutant."""
    done = directory / "reached_folders.txt"
    finished = set(done.read_text().splitlines()) if done.exists() else set()
    mark = "slow" if slow else "not slow"
    for file in sorted((directory / "tree" / "tests").glob("*")):
        if not (file.is_dir() or file.name.startswith("test_")):
            continue
        name = file.relative_to(directory / "tree").as_posix()
        chosen = not paths or name.startswith(tuple(paths))
        if f"{mark} {name}" in finished or name.startswith(_LEFT_OUT) or not chosen:
            continue
        environment = {"EXIRKIT_MUTANTS_REACHED": str((directory / _log_name(slow)).resolve())}
        code = _pytest(directory, ["-m", mark, "--deselect", _LEFT_OUT[1], name], environment, seconds=4 * 3600)
        print(f"{name}: {code}", flush=True)
        with done.open("a") as log:
            log.write(f"{mark} {name}\n")


@app.command()
def kill(directory: Path, slow: bool = False, most_seconds: float = 600) -> None:
    """Run each mutant against the tests that reach it, cheap ones first, until one fails.

    Those that survive the selection meet the tests that it leaves out with `--slow`. A mutant that is reached while a
    module is imported, or before a cached value is first used, meets all tests of the files in which it was reached.
    """
    sites = _SITES.validate_json((directory / "sites.json").read_bytes())
    verdicts = _verdicts(directory)
    reached, seconds, broken = _reached(directory, slow)
    for number, one in enumerate(sites):
        key = _key(number, slow)
        if key in verdicts or (slow and verdicts.get(_key(number, False), {}).get("verdict") == Verdict.KILLED):
            continue
        direct = sorted(reached[number] - broken, key=lambda test: seconds.get(test, 0.0))
        files = {test.partition("::")[0] for test in direct}
        others = [test for test in seconds if test.partition("::")[0] in files and test not in broken]
        others = sorted(set(others) - set(direct), key=lambda test: seconds[test])
        result = _fate(directory, number, [direct, others], seconds, most_seconds)
        entry = {"key": key, "tests": len(direct), **result}
        with (directory / "verdicts.jsonl").open("a") as log:
            log.write(json.dumps(entry) + "\n")
        print(f"{key} {one.file}:{one.line} {one.kind}: {result}", flush=True)


@app.command()
def report(directory: Path) -> None:
    """Print the figures, and the mutants that survive."""
    sites = _SITES.validate_json((directory / "sites.json").read_bytes())
    verdicts = _verdicts(directory)
    quick = {number for number in range(len(sites)) if _is_killed(verdicts, number, False)}
    full = quick | {number for number in range(len(sites)) if _is_killed(verdicts, number, True)}
    judged = sum(_key(number, False) in verdicts for number in range(len(sites)))
    print(f"{len(sites)} mutants, {judged} judged: the selection kills {len(quick)}, all tests {len(full)}", end="")
    print(f" ({100 * len(quick) / max(len(full), 1):.0f} %)")
    for number, one in enumerate(sites):
        entry = verdicts.get(_key(number, False))
        if entry and number not in quick:
            later = verdicts.get(_key(number, True), {})
            print(f"\n{number} {one.file}:{one.line} {one.kind}: {entry['verdict']}, {later.get('verdict', 'not met')}")
            print(f"    {one.original}\n    {one.changed}\n    {later.get('by', '')}")


def _fate(
    directory: Path, number: int, groups: list[list[str]], seconds: dict[str, float], most_seconds: float
) -> dict[str, Any]:
    """Run groups of tests against a mutant until one fails or the time is over."""
    if not any(groups):
        return {"verdict": Verdict.UNREACHED}
    left = most_seconds
    for tests in groups:
        for batch in _batches(tests, seconds):
            cost = sum(seconds.get(test, 0.0) for test in batch)
            if cost > left:
                return {"verdict": Verdict.SURVIVED, "left_out": len(tests)}
            left -= cost
            failures = directory / "failures.jsonl"
            failures.unlink(missing_ok=True)
            environment = {"EXIRKIT_MUTANT": str(number), "EXIRKIT_MUTANTS_REACHED": str(failures.resolve())}
            listed = directory / "tests.txt"
            listed.write_text("\n".join(batch))
            # The machine may be busy; only what hangs takes so long.
            code = _pytest(directory, ["-x", f"@{listed.resolve()}"], environment, seconds=300 + 10 * cost)
            if code != 0:
                entries = [json.loads(line) for line in failures.read_text().splitlines()] if failures.exists() else []
                by = next((entry["test"] for entry in entries if "failed" in entry), f"exit {code}")
                return {"verdict": Verdict.KILLED, "by": by}
    return {"verdict": Verdict.SURVIVED}


def _batches(tests: list[str], seconds: dict[str, float]) -> Iterable[list[str]]:
    """Cut tests into batches that take longer and longer, by file inside each so that fixtures are made once."""
    batch: list[str] = []
    cost, most = 0.0, 5.0
    for test in tests:
        if batch and cost + seconds.get(test, 0.0) > most:
            yield sorted(batch)
            batch, cost, most = [], 0.0, most * 4
        batch.append(test)
        cost += seconds.get(test, 0.0)
    if batch:
        yield sorted(batch)


def _pytest(directory: Path, arguments: list[str], environment: dict[str, str], *, seconds: float) -> int | str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "exirkit_mutants", *arguments]
    tree = (directory / "tree").resolve()
    path = os.pathsep.join([str((directory / "path").resolve()), str(tree / "src"), str(tree)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment}
    # In a group of its own: a mutant may hang in a process that a test has started.
    with (directory / "pytest.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
        hangs = process.poll() is None
        if hangs:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    # 5: no test was selected.
    return "hangs" if hangs else 0 if process.returncode == 5 else process.returncode


def _reached(directory: Path, slow: bool) -> tuple[dict[int, set[str]], dict[str, float], set[str]]:
    """Return the tests that reach each mutant, the seconds of each test, and the tests that fail without mutants."""
    reached: dict[int, set[str]] = defaultdict(set)
    seconds: dict[str, float] = {}
    broken: set[str] = set()
    imported: dict[int, None] = {}
    for line in (directory / _log_name(slow)).read_text().splitlines():
        entry = json.loads(line)
        if "seconds" in entry:
            seconds[entry["test"]] = entry["seconds"]
        elif "failed" in entry:
            broken.add(entry["test"])
        elif entry["test"]:
            reached[entry["reached"]].add(entry["test"])
        else:
            imported[entry["reached"]] = None
    for number in imported:
        # Reached while tests are collected; whichever is cheap may notice.
        reached[number] |= set(sorted(seconds, key=lambda test: seconds[test])[:200])
    return reached, seconds, broken


def _log_name(slow: bool) -> str:
    return "reached_slow.jsonl" if slow else "reached.jsonl"


def _key(number: int, slow: bool) -> str:
    return f"{number} {'slow' if slow else 'quick'}"


def _verdicts(directory: Path) -> dict[str, dict[str, Any]]:
    file = directory / "verdicts.jsonl"
    entries = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {entry["key"]: entry for entry in entries}


def _is_killed(verdicts: dict[str, dict[str, Any]], number: int, slow: bool) -> bool:
    return verdicts.get(_key(number, slow), {}).get("verdict") == Verdict.KILLED


if __name__ == "__main__":
    app()
