"""Mutants of the product against the quick selection of tests, and against all tests.

    python -m tools.selection_power prepare DIR            # a copy of the tree with all mutants, switched off
    python -m tools.selection_power reach DIR              # one run of the selection: who reaches which mutant
    python -m tools.selection_power reach DIR --slow       # the same for what the selection leaves out
    python -m tools.selection_power kill DIR [--slow]      # each mutant against the tests that reach it
    python -m tools.selection_power report DIR
    python -m tools.selection_power fuzz DIR               # each mutant against generated programs, not tests

Everything is kept in files of DIR, so each command goes on where it was stopped.
"""

from __future__ import annotations

import enum
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import pydantic
import typer

from tools.selection_power.sites import ROOMS, Site, draw, write_tree

ROOT = Path(__file__).resolve().parents[2]
# Tests of the sources, which a tree with mutants fails.
_LEFT_OUT = ("tests/packaging", "tests/docs/test_completeness.py")
_SITES = pydantic.TypeAdapter(list[Site])

app = typer.Typer(add_completion=False, help=__doc__)


class Verdict(enum.StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNDECIDED = "undecided"


@app.command()
def prepare(
    directory: Path, count: int = 100, seed: int = 1, rooms: Annotated[list[str] | None, typer.Option("--room")] = None
) -> None:
    """Copy the tree and write mutants into it: into all rooms of the product, or some folders."""
    tree = directory / "tree"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        source, copied = ROOT / name, tree / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copied.symlink_to(source.readlink())
        else:
            shutil.copy(source, copied)
    sites = draw(tree, count, seed, rooms or ROOMS)
    write_tree(tree, sites)
    (directory / "path").mkdir()
    shutil.copy(Path(__file__).with_name("probe.py"), directory / "path" / "exirkit_mutants.py")
    (directory / "sites.json").write_bytes(_SITES.dump_json(sites, indent=1))
    counts = Counter(one.file.split("/")[0] for one in sites)
    print(f"{len(sites)} mutants, seed {seed}: {dict(counts)}")


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
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "exirkit_mutants", "-m", mark]
        with (directory / "pytest.log").open("w") as log:
            code = subprocess.run(
                [*command, "--deselect", _LEFT_OUT[1], name],
                cwd=directory / "tree",
                env=_environment(directory, environment),
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        print(f"{name}: {code}", flush=True)
        with done.open("a") as finished_log:
            finished_log.write(f"{mark} {name}\n")


@app.command()
def kill(directory: Path, slow: bool = False, most_seconds: float = 900, part: tuple[int, int] = (0, 1)) -> None:
    """Run each mutant against tests until one fails.

    First come the tests that reach it, where `reach` has run, the cheap ones first; then the test file of the same
    name; then the tests of its room. Those that survive the selection meet what it leaves out with `--slow`. With
    `--part 0 2` and `--part 1 2`, two processes share the mutants.
    """
    sites = _SITES.validate_json((directory / "sites.json").read_bytes())
    verdicts = _verdicts(directory)
    reached, seconds, broken = _reached(directory, slow)
    order = sorted(range(part[0], len(sites), part[1]), key=lambda number: (number * 37) % len(sites))
    with _Server(directory, part[0]) as server:
        for number in order:
            key = _key(number, slow)
            if key in verdicts or (slow and not _is_survivor(verdicts, number)):
                continue
            direct = sorted(reached[number] - broken, key=lambda test: seconds.get(test, 0.0))
            groups = [
                [f"--deselect={test}" for test in sorted(broken)] + list(batch) for batch in _batches(direct, seconds)
            ]
            groups += _of_room(sites[number].file, directory / "tree")
            result = _fate(server, number, groups, "slow" if slow else "not slow", most_seconds)
            with (directory / "verdicts.jsonl").open("a") as log:
                log.write(json.dumps({"key": key, **result}) + "\n")
            print(f"{key} {sites[number].file}:{sites[number].line} {sites[number].kind}: {result}", flush=True)


@app.command()
def fuzz(directory: Path, programs: int = 340, seconds: float = 60.0) -> None:
    """Run each mutant against the first programs of campaigns that reach it, until an oracle finds a failure.

    Prints the figures, and the mutants that were reached and survive; many of these change nothing that can be seen.
    """
    command = [sys.executable, "-m", "tools.selection_power.programs", str(directory.resolve())]
    tree, environment = (directory / "tree").resolve(), _environment(directory, {})
    subprocess.run([*command, str(programs), str(seconds)], cwd=tree, env=environment, check=True)
    sites = _SITES.validate_json((directory / "sites.json").read_bytes())
    entries = [json.loads(line) for line in (directory / "programs.jsonl").read_text().splitlines()]
    reached = [one for one in entries if one["reached"]]
    left = [one for one in reached if "killed_by" not in one]
    print(f"{len(sites)} mutants, {len(reached)} reached by {programs} programs, {len(reached) - len(left)} killed")
    for entry in left:
        one = sites[entry["mutant"]]
        print(f"\n{entry['mutant']} {one.file}:{one.line} {one.kind}, met {entry['met']} of {entry['reached']}")
        print(f"    {one.original}\n    {one.changed}")


@app.command()
def report(directory: Path) -> None:
    """Print the figures, and the mutants that survive."""
    sites = _SITES.validate_json((directory / "sites.json").read_bytes())
    verdicts = _verdicts(directory)
    quick = {number for number in range(len(sites)) if _is_killed(verdicts, number, False)}
    full = quick | {number for number in range(len(sites)) if _is_killed(verdicts, number, True)}
    found = [verdicts.get(_key(number, False), {}).get("verdict") for number in range(len(sites))]
    judged = sum(one in (Verdict.KILLED, Verdict.SURVIVED) for one in found)
    late = found.count(Verdict.UNDECIDED)
    print(f"{len(sites)} mutants, {judged} judged, {late} not in time: the selection kills {len(quick)}")
    if all(_key(number, True) in verdicts for number, one in enumerate(found) if one not in (None, Verdict.KILLED)):
        print(f"all tests kill {len(full)}: {100 * len(quick) / max(len(full), 1):.0f} % by the selection")
    for number, one in enumerate(sites):
        entry = verdicts.get(_key(number, False))
        if entry and number not in quick:
            later = verdicts.get(_key(number, True), {})
            print(f"\n{number} {one.file}:{one.line} {one.kind}: {entry['verdict']}, {later.get('verdict', 'not met')}")
            print(f"    {one.original}\n    {one.changed}\n    {later.get('by', '')}")


class _Server:
    """A process that has imported what takes long, and forks for each run of tests."""

    def __init__(self, directory: Path, part: int) -> None:
        self.log = directory / f"pytest_{part}.log"
        self.failures = directory / f"failures_{part}.jsonl"
        self._process = subprocess.Popen(
            [sys.executable, "-c", "import exirkit_mutants; exirkit_mutants.serve()"],
            cwd=(directory / "tree").resolve(),
            env=_environment(directory, {"EXIRKIT_MUTANTS_REACHED": str(self.failures.resolve())}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def run(self, number: int, arguments: list[str], seconds: float) -> tuple[int, str]:
        """Run tests against a mutant; return the exit code of pytest and the test that fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.failures.unlink(missing_ok=True)
        # The plugin of the package is imported before pytest could rewrite it.
        arguments = ["-q", "-x", "-W", "ignore:Module already imported", *arguments]
        arguments = ["-p", "no:cacheprovider", "-p", "exirkit_mutants", *arguments]
        request = {"mutant": number, "arguments": arguments, "seconds": seconds, "log": str(self.log.resolve())}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        entries = (
            [json.loads(line) for line in self.failures.read_text().splitlines()] if self.failures.exists() else []
        )
        by = next((entry["test"] for entry in entries if "failed" in entry), "hangs" if code == -1 else f"exit {code}")
        return code, by


def _fate(server: _Server, number: int, groups: list[list[str]], mark: str, most_seconds: float) -> dict[str, Any]:
    """Run groups of tests against a mutant until one fails or the time is over."""
    end = time.monotonic() + most_seconds
    for arguments in groups:
        code, by = server.run(number, ["-m", mark, *arguments], 300 + 2 * most_seconds)
        # 5: no test was selected.
        if code not in (0, 5):
            return {"verdict": Verdict.KILLED, "by": by}
        if time.monotonic() > end:
            return {"verdict": Verdict.UNDECIDED}
    return {"verdict": Verdict.SURVIVED}


def _of_room(file: str, tree: Path) -> list[list[str]]:
    """Return the tests that are likely to notice a change of a file: those of its name, of its folder, of its room."""
    parts = Path(file.removeprefix("src/exirkit/")).with_suffix("").parts
    tests = tree / "tests"
    same = sorted(tests.rglob(f"test_{parts[-1]}.py")) or sorted(tests.rglob(f"test_{parts[-1]}s.py"))
    folders = [tests.joinpath(*parts[:depth]) for depth in range(len(parts) - 1, 0, -1)]
    fixtures = [tests / "passes" / "test_fixtures.py"] if parts[0] == "passes" else []
    listed = [same, fixtures, *([one] for one in folders if one.is_dir())]
    return [[one.relative_to(tree).as_posix() for one in group] for group in listed if group]


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


def _environment(directory: Path, more: dict[str, str]) -> dict[str, str]:
    tree = (directory / "tree").resolve()
    path = os.pathsep.join([str((directory / "path").resolve()), str(tree / "src"), str(tree)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}
    # As the Makefile: where this is set, every process that a test starts compiles all modules again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _reached(directory: Path, slow: bool) -> tuple[dict[int, set[str]], dict[str, float], set[str]]:
    """Return the tests that reach each mutant, the seconds of each test, and the tests that fail without mutants."""
    reached: dict[int, set[str]] = defaultdict(set)
    seconds: dict[str, float] = {}
    broken: set[str] = set()
    imported: dict[int, None] = {}
    log = directory / _log_name(slow)
    for line in log.read_text().splitlines() if log.exists() else ():
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


def _is_survivor(verdicts: dict[str, dict[str, Any]], number: int) -> bool:
    return verdicts.get(_key(number, False), {}).get("verdict") in (Verdict.SURVIVED, Verdict.UNDECIDED)


def _is_killed(verdicts: dict[str, dict[str, Any]], number: int, slow: bool) -> bool:
    return verdicts.get(_key(number, slow), {}).get("verdict") == Verdict.KILLED


if __name__ == "__main__":
    app()
