"""The command line as a whole: every module of `commands` has added its command."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from exirkit.cli.root import app

for _module in iter_modules([str(Path(__file__).with_name("commands"))]):
    import_module(f"exirkit.cli.commands.{_module.name}")

__all__ = ["app"]
