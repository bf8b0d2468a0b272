"""Command lines in processes of their own, forks of one that has imported torch."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from exirkit.cli import main

# Process pools of campaigns preload the same; the first of both starts the server of a test process.
PRELOADED = ["exirkit.fuzz.campaigns.execution.preloaded"]
TIMEOUT_S = 300


def run_command(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `exirkit` with arguments in a new process, which knows no book and no model, and return what it printed.

    Args:
        args: The arguments.
        cwd: The working directory.

    Raises:
        subprocess.TimeoutExpired: It took more than 300 seconds.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdout", "stderr")]
        process = context.Process(target=_command, args=(args, str(cwd), [str(one) for one in streams]))
        process.start()
        process.join(TIMEOUT_S)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(["exirkit", *args], TIMEOUT_S)
        out, err = (one.read_text(encoding="utf-8") for one in streams)
    return subprocess.CompletedProcess(["exirkit", *args], process.exitcode, out, err)


def _command(args: Sequence[str], cwd: str, streams: Sequence[str]) -> None:
    os.chdir(cwd)
    for number, stream in enumerate(streams, 1):
        file = os.open(stream, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    sys.argv = ["exirkit", *args]
    # As `python -m exirkit` does.
    sys.path.insert(0, cwd)
    main()
