"""What a person at a terminal sees: progress that is readable, and an end that leaves nothing behind."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.fuzz.campaigns.stand_in import BENCH

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")]

COMMAND = [sys.executable, "-m", "exirkit"]
# Cursor movement, colours and erasing.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def run_in_terminal(args: list[str], directory: Path, *, interrupt_at: str | None = None) -> tuple[int, str, str]:
    """Run the command line with standard error on a terminal; return exit code, standard output, and what was shown.

    Args:
        args: The command line.
        directory: Working directory.
        interrupt_at: Press Ctrl-C when this text appears.
    """
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    # What runs the tests in the background of a shell has interrupts ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [*COMMAND, *args], stdout=subprocess.PIPE, stderr=follower, cwd=directory, env=environment, text=True
        )
    finally:
        signal.signal(signal.SIGINT, before)
    os.close(follower)
    shown = ""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 0.2)[0]:
            try:
                piece = os.read(leader, 65536)
            except OSError:
                # Linux reports the end of the other side as an input/output error.
                break
            if not piece:
                break
            shown += piece.decode()
            if interrupt_at is not None and interrupt_at in shown:
                interrupt_at = None
                process.send_signal(signal.SIGINT)
        elif process.poll() is not None:
            break
    output, _ = process.communicate(timeout=60)
    os.close(leader)
    return process.returncode, output, shown


def test_progress_on_a_terminal(program_file: Path, tmp_path: Path) -> None:
    code, output, shown = run_in_terminal(["run", str(program_file)], tmp_path)
    assert code == 0
    lines = [line.strip() for line in CONTROL.sub("", shown).replace("\r", "\n").splitlines() if line.strip()]
    finished = [line for line in lines if re.match(r"\d+\.\d s  ", line)]
    assert [line.split(" s  ")[1] for line in finished] == [
        "loading torch",
        f"loading {program_file}",
        "running forward",
    ]
    # The cursor is given back.
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert "\x1b" not in output
    assert "random inputs" in output


def test_errors_on_a_terminal(tmp_path: Path) -> None:
    code, output, shown = run_in_terminal(["run", "none.pte"], tmp_path)
    assert (code, output) == (1, "")
    lines = [line.strip() for line in CONTROL.sub("", shown).replace("\r", "\n").splitlines() if line.strip()]
    assert lines[-1] == "error[EK712]: none.pte: no such file or directory"
    assert not any("Traceback" in line for line in lines)


def test_interrupting_the_work(model_file: Path, tmp_path: Path) -> None:
    model_file.write_text(model_file.read_text() + "\n\ndef slow():\n    import time\n    time.sleep(100)\n")
    code, output, shown = run_in_terminal(
        ["lower", "models.py:slow", "-o", "x.pte"], tmp_path, interrupt_at="loading models.py:slow"
    )
    assert (code, output) == (130, ""), CONTROL.sub("", shown)
    assert "Traceback" not in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["models.py"]


def test_interrupts_that_a_library_turns_into_an_error(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(
        "import time\ntry:\n    time.sleep(100)\nexcept BaseException:\n    raise ImportError('broken') from None\n"
    )
    code, output, shown = run_in_terminal(
        ["lower", "models.py:f", "-o", "x.pte"], tmp_path, interrupt_at="loading models.py:f"
    )
    assert (code, output) == (130, ""), CONTROL.sub("", shown)
    assert "broken" not in shown


def test_reader_that_stops_early(program_file: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        f"{shlex.quote(sys.executable)} -m exirkit explain | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("code")


def test_a_campaign_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("fail: [3]\nsleep: 0.02\n")
    words = ["fuzz", "--bench", BENCH, "--policy", "policy.yaml", "--workers", "1", "--seeds"]
    code, output, shown = run_in_terminal([*words, "200"], tmp_path, interrupt_at="passed")
    plain = CONTROL.sub("", shown)
    assert (code, output) == (130, ""), plain
    assert "results are in fuzz.db; the same command continues from there" in plain
    assert "Traceback" not in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    code, output, shown = run_in_terminal([*words, "100"], tmp_path)
    assert code == 1
    assert "seeds 0:100: 100 programs" in output
    assert "O3/values" in CONTROL.sub("", shown)
    assert "\x1b" not in output
