"""The command line as a whole: every module of `commands` has added its command."""

from exirkit.cli.root import app, load_commands

load_commands()

__all__ = ["app"]
