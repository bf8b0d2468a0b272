"""From a target, `MODULE:FACTORY`, `path/to/file.py:FACTORY` or a `.pt2` file, to exported programs."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import sys
import traceback
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .console import Steps, output_to_stderr
from .errors import WRONG_USAGE, CommandError, unknown_name

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# What torch.export.save calls the program in its archive.
_SAVED_NAME = "model"
_TARGET = "MODULE:FACTORY, path/to/file.py:FACTORY or file.pt2"
_FACTORY_RESULT = (
    "(model, example_inputs), (model, example_inputs, dynamic_shapes), an ExportedProgram, or a dict of method names "
    "with any of these"
)


@dataclass(frozen=True)
class ModelSource:
    """A parsed target of the command line.

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
    """Parse a target, without importing anything.

    Raises:
        CommandError: EK713, it is not a target, or there is no such file.
    """
    # A colon may also follow a drive letter; the factory is behind the last one and is a plain name.
    head, colon, factory = text.rpartition(":")
    if not colon or not factory.isidentifier():
        if text.endswith(".pt2"):
            return ModelSource(text, file=_existing(text))
        hint = f"name the function that returns the model: {text}:FACTORY" if text.endswith(".py") else None
        raise CommandError(code="EK713", message=f"{text!r} is not {_TARGET}", hint=hint, exit_code=WRONG_USAGE)
    if head.endswith(".py") or os.sep in head:
        return ModelSource(text, file=_existing(head), factory=factory)
    if not all(part.isidentifier() for part in head.split(".")):
        raise CommandError(code="EK713", message=f"{text!r} is not {_TARGET}", exit_code=WRONG_USAGE)
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
    """Import the module of a target and return its attribute that the target names.

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


@dataclass(frozen=True)
class ExportedTarget:
    """What a target of the command line gives.

    Attributes:
        text: The target.
        programs: Exported programs by method.
        models: The modules that they were exported from, where the target gives modules.
    """

    text: str
    programs: dict[str, ExportedProgram]
    models: dict[str, Any]

    def only(self, method: str | None) -> ExportedTarget:
        """Return one method, or all if none is named.

        Raises:
            CommandError: EK711, there is no such method.
        """
        if method is None:
            return self
        if method not in self.programs:
            raise unknown_name("the model has no method", method, list(self.programs))
        return replace(self, programs={method: self.programs[method]})


def export_target(source: ModelSource, steps: Steps, *, strict: bool = False) -> ExportedTarget:
    """Load a model and export it.

    Raises:
        CommandError: EK714 to EK718, the target gives no exported program.
    """
    with output_to_stderr():
        with steps.phase("load", f"loading {source.text}"):
            made: Any = load_exported(source.file) if source.factory is None and source.file else call_factory(source)
        with steps.phase("export"):
            programs = export_methods(made, strict=strict, say=steps)
    named = made if isinstance(made, dict) else {"forward": made}
    models = {name: one[0] for name, one in named.items() if isinstance(one, tuple)}
    return ExportedTarget(source.text, programs, models)


def example_leaves(program: ExportedProgram, method: str) -> Sequence[Any]:
    """Return the flattened example inputs of a program.

    Raises:
        CommandError: EK716, it has none.
    """
    from exirkit.ir import pytree

    if program.example_inputs is None:
        raise CommandError(
            code="EK716",
            message=f"the exported program of method {method} has no example inputs",
            hint="export it with torch.export.export, or give a factory that returns (model, example_inputs)",
        )
    leaves: list[Any] = pytree.tree_leaves(program.example_inputs)
    return leaves


def load_exported(path: Path) -> ExportedProgram | dict[str, ExportedProgram]:
    """Return the program in a file that `torch.export.save` wrote, or the programs that `package_pt2` wrote by name.

    Weights are mapped from the file.

    Raises:
        CommandError: EK718, torch does not load it, or it is an archive with compiled code, which is not loaded.
    """
    import torch
    from torch.export.pt2_archive.constants import AOTINDUCTOR_DIR

    from exirkit.ir import load_pt2, mapped_archive

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception as error:  # besides what zipfile says of bad archives: names that are not text, versions, places
        raise _not_loaded(path, f"the names in the archive cannot be read: {first_line(error)}") from error
    if any(AOTINDUCTOR_DIR in name for name in names):
        # Reading such an archive would load the machine code that is in it.
        raise CommandError(
            code="EK718",
            message="the archive has compiled code in it",
            file=str(path),
            hint="save the exported programs alone: torch.export.save, or package_pt2(..., exported_programs=...)",
        )
    try:
        programs = {found.stem for name in names if (found := PurePosixPath(name)).match("models/*.json")}
        with mapped_archive(path):
            if programs - {_SAVED_NAME}:
                return dict(load_pt2(path).exported_programs)
            return torch.export.load(path)
    except Exception as error:
        raise _not_loaded(path, f"torch.export.load failed: {first_line(error)}") from error


def _not_loaded(path: Path, message: str) -> CommandError:
    hint = "the file must come from torch.export.save of the installed torch version"
    return CommandError(code="EK718", message=message, file=str(path), hint=hint)


def export_methods(made: Any, *, strict: bool, say: Callable[[str], None]) -> dict[str, ExportedProgram]:
    """Export everything that a factory returned.

    Args:
        made: What the factory returned.
        strict: Whether `torch.export` traces with TorchDynamo.
        say: Called with a line before each export.

    Raises:
        CommandError: EK716, it is something else; EK717, `torch.export` failed.
    """
    if not isinstance(made, Mapping):
        return {"forward": _export("forward", made, strict, say)}
    if not made or not all(isinstance(name, str) for name in made):
        raise CommandError(
            code="EK716", message=f"the factory returned a dict without method names, not {_FACTORY_RESULT}"
        )
    return {name: _export(name, value, strict, say) for name, value in made.items()}


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message that is not empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _export(name: str, made: Any, strict: bool, say: Callable[[str], None]) -> ExportedProgram:
    import torch

    if isinstance(made, torch.export.ExportedProgram):
        return made
    model, inputs, dynamic_shapes = _model_and_inputs(name, made)
    say(f"{name}: exporting")
    # When it fails, torch prints the graph it had so far; when it does not, what was printed is the model's.
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            program = torch.export.export(model, inputs, dynamic_shapes=dynamic_shapes, strict=strict)
    except Exception as error:
        raise CommandError(
            code="EK717",
            message=f"torch.export failed for method {name}: {first_line(error)}",
            hint="EXIRKIT_TRACEBACK=1 shows where; this part is torch's, before exirkit begins",
        ) from error
    sys.stderr.write(printed.getvalue())
    return program


def _model_and_inputs(name: str, made: Any) -> tuple[Any, tuple[Any, ...], Any]:
    import torch

    if isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], torch.nn.Module):
        inputs = made[1]
        if isinstance(inputs, tuple | list):
            return made[0], tuple(inputs), made[2] if len(made) == 3 else None
        raise CommandError(
            code="EK716",
            message=f"the example inputs of method {name} are of type {type(inputs).__name__}, not a tuple",
            hint="write (x,) for one input",
        )
    raise CommandError(
        code="EK716", message=f"the factory returned {_described(made)} for {name}, not {_FACTORY_RESULT}"
    )


def _described(made: Any) -> str:
    import torch

    if isinstance(made, torch.nn.Module):
        return "a model without example inputs"
    if isinstance(made, tuple):
        return f"a tuple of {', '.join(type(each).__name__ for each in made) or 'nothing'}"
    return f"something of type {type(made).__name__}"


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
