"""The command line: `exirkit --help` lists the commands.

Nothing here imports torch before a command needs it: `exirkit --help` and `exirkit explain` answer at once.
"""

from __future__ import annotations

import gc
import sys

_SELDOM = (50_000, 5, 2)
"""When garbage is collected: modules and programs live long, and looking through them takes a sixth of the time."""


def main() -> None:
    """Run the command that `sys.argv` names and leave with its exit code; see `exirkit --help`."""
    gc.set_threshold(*_SELDOM)
    # Even the import of the command line can be interrupted, and that is not a reason for a traceback.
    try:
        from .root import app, load_commands

        load_commands(sys.argv[1] if len(sys.argv) > 1 else None)
        app(prog_name="exirkit")
    except KeyboardInterrupt:
        sys.exit(130)


__all__ = ["main"]
