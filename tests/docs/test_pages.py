"""Every block of every page does what the page shows; `pages.py` states what a block is."""

from __future__ import annotations

import io
import json
import linecache
import os
import re
import shlex
import subprocess
import sys
import tomllib
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import Invoke, invoke  # noqa: F401  (a fixture)
from tests.docs.pages import PAGES, ROOT, Step, steps_of
from tests.official.oracle import missing_reason
from tests.thoroughness import TRIES_ALL

from exirkit.patterns.functions import registered
from exirkit.patterns.functions.words import WORDS

_READERS: dict[str, Callable[[str], Any]] = {"yaml": yaml.safe_load, "toml": tomllib.loads, "json": json.loads}
_WITH_STEPS = [page for page in PAGES if any(steps_of(page.read_text(encoding="utf-8")))]
_IMPORTS_OFFICIAL = re.compile(r"^(from|import) executorch", re.MULTILINE)
_FAILS = re.compile(r"REJECTED|^error|failed|WRONG", re.MULTILINE)


class Reader:
    """Does what a page shows, in an empty directory."""

    def __init__(self, page: Path, invoke: Invoke, directory: Path) -> None:  # noqa: F811
        self.page = page
        self.invoke = invoke
        self.directory = directory
        self.names: dict[str, Any] = {"__name__": "page"}
        self.tested = False

    def do(self, step: Step) -> None:
        """Do one step; fails the test if it does something else than the page shows."""
        if step.kind == "file":
            target = self.directory / step.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(step.text, encoding="utf-8")
        elif step.kind == "code":
            self._run(step)
        elif step.kind == "excerpt":
            _READERS[step.name](step.text)
        elif step.kind == "commands":
            self._compare(step, "".join(self._command(one, step) for one in _commands(step.text)))

    def _run(self, step: Step) -> None:
        # Tracebacks and rules written in Python read the source of the block.
        file = self.directory / f"block_at_line_{step.line}.py"
        file.write_text(step.text, encoding="utf-8")
        linecache.checkcache()
        exec(compile(step.text, str(file), "exec", dont_inherit=True), self.names)

    def _command(self, command: str, step: Step) -> str:
        program, *arguments = shlex.split(command.partition(" > ")[0], comments=True)
        if program == "pytest" and not TRIES_ALL and (self.tested or not step.output):
            # Fifteen seconds of a core each. EXIRKIT_TESTS=all runs every one of them.
            return "\n".join(step.output)
        self.tested = self.tested or program == "pytest"
        if program == "exirkit":
            done = self.invoke(*arguments)
            code, printed = done.exit_code, done.output
        elif program == "python" and arguments[0].endswith(".py"):
            code, printed = self._script(*arguments)
        else:
            code, printed = self._process(program, arguments)
        may_fail = bool(_FAILS.search("\n".join(step.output)))
        assert code in ((0, 1) if may_fail else (0,)), f"{command}: exit code {code}\n{printed}"
        _, redirected, target = command.partition(" > ")
        if redirected:
            (self.directory / target.strip()).write_text(printed, encoding="utf-8")
        return printed

    def _script(self, path: str, *arguments: str) -> tuple[int, str]:
        out = io.StringIO()
        source = (self.directory / path).read_text(encoding="utf-8")
        # An earlier test of this process may have imported a file of the same name.
        for file in self.directory.glob("*.py"):
            sys.modules.pop(file.stem, None)
        before = sys.argv, set(sys.modules)
        sys.argv = [path, *arguments]
        try:
            with redirect_stdout(out), redirect_stderr(out):
                exec(
                    compile(source, str(self.directory / path), "exec", dont_inherit=True),
                    {"__name__": "__main__", "__file__": path},
                )
        except SystemExit as stop:
            return int(stop.code or 0), out.getvalue()
        except Exception:
            return 1, out.getvalue() + traceback.format_exc()
        finally:
            sys.argv = before[0]
            for name in set(sys.modules) - before[1]:
                if str(self.directory) in str(getattr(sys.modules[name], "__file__", "")):
                    del sys.modules[name]
        return 0, out.getvalue()

    def _process(self, program: str, arguments: list[str]) -> tuple[int, str]:
        programs = {
            "python": [sys.executable],
            # As if the package were installed: its plug-in is there.
            "pytest": [sys.executable, "-m", "pytest", "-p", "exirkit.fuzz.pytest_plugin"],
        }
        done = subprocess.run(
            [*programs[program], *arguments],
            cwd=self.directory,
            env={**os.environ, "PYTHONWARNINGS": "ignore", "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )
        return done.returncode, done.stdout

    def _compare(self, step: Step, printed: str) -> None:
        found = 0
        text = self._plain(printed)
        for line in step.output:
            wanted = self._plain(line)
            position = text.find(wanted, found)
            assert position >= 0, f"line {step.line}: {line!r} is not printed (there) but\n{printed}"
            found = position + len(wanted)

    def _plain(self, text: str) -> str:
        text = "\n".join(" ".join(line.split()) for line in text.splitlines())
        if self.page.name == "fuzzing.md":
            # What another generator would draw differently: numbers, and names made of them.
            text = re.sub(r"(?<![\w.])-?[a-z]?\d+(\.\d+)?\b", "N", text)
        return text


@pytest.fixture(autouse=True)
def _nothing_stays_registered() -> Iterator[None]:
    words, builders = dict(WORDS), dict(registered._BUILDERS)
    yield
    WORDS.clear()
    WORDS.update(words)
    registered._BUILDERS.clear()
    registered._BUILDERS.update(builders)


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(ROOT))) for page in _WITH_STEPS])
def test_page(page: Path, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    steps = list(steps_of(page.read_text(encoding="utf-8")))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    reader = Reader(page, invoke, tmp_path)
    if any(step.kind == "code" and _IMPORTS_OFFICIAL.search(step.text) for step in steps):
        # This process must not load the official package; code of such a page has a process of its own.
        for step in steps:
            if step.kind == "file":
                reader.do(step)
        _run_code_in_a_process([step.text for step in steps if step.kind == "code"], tmp_path)
        steps = [step for step in steps if step.kind != "code"]
    with warnings.catch_warnings():
        # torch warns of its own changes to come.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        for step in steps:
            if not (step.kind == "commands" and "official" in step.text and missing_reason()):
                reader.do(step)


def _run_code_in_a_process(blocks: list[str], directory: Path) -> None:
    if missing_reason():
        blocks = [block for block in blocks if not _IMPORTS_OFFICIAL.search(block)]
    script = directory / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _commands(text: str) -> list[str]:
    """Return the commands of a block; a backslash at the end of a line continues it."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]


def test_a_block_must_be_of_a_known_kind() -> None:
    with pytest.raises(ValueError, match="pages use python"):
        list(steps_of("```perl\nprint 1\n```\n"))
    with pytest.raises(ValueError, match="nothing prints"):
        list(steps_of("```text\n1\n```\n"))


def test_what_is_not_run_has_a_reason() -> None:
    """A block that is left out says why; most blocks of the documentation are run."""
    steps = [step for page in PAGES for step in steps_of(page.read_text(encoding="utf-8"))]
    skipped = [step for step in steps if step.kind == "skipped"]
    assert all(len(step.name) > 15 for step in skipped)
    assert len(skipped) < len(steps) / 10
