"""Runs scripts, one after another, each in a child of a process that has imported what all of them need.

Paths come in by standard input, one in a line; for each there is a line of JSON: how the child ended, and what it
printed. With the argument `ours`, they import `exirkit.exir` where they say `executorch.exir`; nothing else is
changed.
"""

import json
import os
import runpy
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

TIMEOUT_S = 300


def run(path: str, *, ours: bool) -> dict[str, object]:
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            in_child(path, output.fileno(), ours=ours)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return {"code": os.waitstatus_to_exitcode(status), "output": output.read().decode(errors="replace")}


def in_child(path: str, descriptor: int, *, ours: bool) -> None:
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    signal.alarm(TIMEOUT_S)
    code = 0
    try:
        with tempfile.TemporaryDirectory() as directory:
            if ours:
                text = Path(path).read_text(encoding="utf-8").replace("executorch.exir", "exirkit.exir")
                path = str(Path(directory) / "script.py")
                Path(path).write_text(text, encoding="utf-8")
            runpy.run_path(path, run_name="__main__")
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    ours = sys.argv[1:] == ["ours"]
    import executorch.runtime
    import torch

    if ours:
        pass
    else:
        import executorch.exir  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(run(line.strip(), ours=ours)), file=answers, flush=True)


if __name__ == "__main__":
    main()
