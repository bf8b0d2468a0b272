"""Where a model comes from: `MODULE:FACTORY`, `path/to/file.py:FACTORY`, or a `.pt2` file."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from .failures import WRONG_USAGE, CommandError

_EXPECTED = "MODULE:FACTORY, path/to/file.py:FACTORY or file.pt2"


@dataclass(frozen=True)
class ModelSource:
    """A target of the command line, taken apart.

    Attributes:
        text: The target as it was given.
        file: The `.py` or `.pt2` file, if it names one.
        module: The dotted module otherwise.
        factory: Name of the function that returns the model; absent for a `.pt2` file.
    """

    text: str
    file: Path | None = None
    module: str | None = None
    factory: str | None = None


def parse_source(text: str) -> ModelSource:
    """Take a target apart, without importing anything.

    Raises:
        CommandError: EK713, it is no target or there is no such file.
    """
    # A colon may also follow a drive letter; the factory is behind the last one and is a plain name.
    head, colon, factory = text.rpartition(":")
    if not colon or not factory.isidentifier():
        if text.endswith(".pt2"):
            return ModelSource(text, file=_existing(text))
        hint = f"name the function that returns the model: {text}:FACTORY" if text.endswith(".py") else None
        raise CommandError(code="EK713", message=f"{text!r} is not {_EXPECTED}", hint=hint, exit_code=WRONG_USAGE)
    if head.endswith(".py") or os.sep in head:
        return ModelSource(text, file=_existing(head), factory=factory)
    if not all(part.isidentifier() for part in head.split(".")):
        raise CommandError(code="EK713", message=f"{text!r} is not {_EXPECTED}", exit_code=WRONG_USAGE)
    return ModelSource(text, module=head, factory=factory)


def call_factory(source: ModelSource) -> Any:
    """Import the module of a target and return what its factory returns.

    Raises:
        CommandError: EK714, there is no such module or function; EK715, the code of the model raised.
    """
    assert source.factory is not None, "a .pt2 file has no factory"
    (called,) = find_functions(source, source.factory)
    try:
        return called()
    except (Exception, SystemExit) as error:
        raise _model_error(error, source, f"{source.factory}()") from error


def find_functions(source: ModelSource, *names: str) -> list[Callable[..., Any]]:
    """Import the module of a target and return functions of it.

    Raises:
        CommandError: EK714, there is no such module or function; EK715, the code of the module raised.
    """
    module = _import(source)
    found: list[Callable[..., Any]] = []
    for name in names:
        function = getattr(module, name, None)
        if not callable(function):
            raise CommandError(
                code="EK714",
                message=f"{source.text.rpartition(':')[0]} has no function {name!r}",
                hint=_similar(module, name),
            )
        found.append(function)
    return found


def find_object(source: ModelSource) -> Any:
    """Import the module of a target and return what it calls by the name that the target has.

    Raises:
        CommandError: EK714, there is no such module or name; EK715, the code of the module raised.
    """
    module = _import(source)
    name = str(source.factory)
    if not hasattr(module, name):
        raise CommandError(
            code="EK714", message=f"{source.text.rpartition(':')[0]} has no {name!r}", hint=_similar(module, name)
        )
    return getattr(module, name)


def _import(source: ModelSource) -> ModuleType:
    try:
        if source.file is not None:
            return _import_file(source.file)
        assert source.module is not None, "a target is a file or a module"
        # As with `python -m`, modules of the working directory can be named.
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        # A file may be newer than what the import system remembers of its directory.
        importlib.invalidate_caches()
        return importlib.import_module(source.module)
    except (Exception, SystemExit) as error:
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if missing and source.module and f"{source.module}.".startswith(f"{missing}."):
            from exirkit.ir import choices_hint

            files = sorted(path.stem for path in Path.cwd().glob("*.py"))
            place = "modules are looked up in the working directory and the environment; a path to a .py file will do"
            near = choices_hint(missing, files, "here there is")
            hint = f"{place}; {near}" if near else place
            raise CommandError(code="EK714", message=f"there is no module {missing!r}", hint=hint) from error
        raise _model_error(error, source, f"importing {source.text.rpartition(':')[0]}") from error


def _import_file(path: Path) -> ModuleType:
    """Import a file as a script would be: its neighbours can be imported, its module is called like the file."""
    path = path.resolve()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = path.stem if path.stem not in sys.modules else f"model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CommandError(code="EK713", message="this is not a Python file", file=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _model_error(error: BaseException, source: ModelSource, doing: str) -> CommandError:
    if isinstance(error, CommandError):
        return error
    if isinstance(error, SyntaxError):
        file, line = error.filename, error.lineno
        text = error.msg
    else:
        file, line = _place_in_model(error, source)
        text = str(error)
    message = f"{doing} raised {type(error).__name__}{': ' if text else ''}{text}"
    return CommandError(code="EK715", message=message, file=file, line=line)


def _place_in_model(error: BaseException, source: ModelSource) -> tuple[str | None, int | None]:
    """Return file and line of the last frame that is the user's: in the target's file, or else in no library."""
    frames = traceback.extract_tb(error.__traceback__)
    target = str(source.file.resolve()) if source.file else None
    own = [frame for frame in frames if frame.filename == target] or [
        frame for frame in frames if not _is_library(frame.filename)
    ]
    return (own[-1].filename, own[-1].lineno) if own else (None, None)


def _is_library(filename: str) -> bool:
    here = str(Path(__file__).parents[1])
    prefixes = (here, sys.prefix, sys.base_prefix, "<frozen ")
    return filename.startswith(prefixes) or "site-packages" in filename


def _existing(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        what = "this is a directory" if path.is_dir() else "there is no such file"
        raise CommandError(code="EK713", message=what, file=text)
    return path


def _similar(module: ModuleType, name: str) -> str:
    from exirkit.ir import choices_hint

    own = [
        key
        for key, value in vars(module).items()
        if callable(value) and not key.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return choices_hint(name, sorted(own), "it has") or "it defines no functions or classes of its own"
