"""`exirkit new-backend`: a small package with a backend that works, to start from."""

from __future__ import annotations

import keyword
import re
import string
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from exirkit.cli.console import print_json, print_line
from exirkit.cli.errors import WRONG_USAGE, CommandError
from exirkit.cli.options import Json
from exirkit.cli.root import app

_FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "init.py": "$package/__init__.py",
    "lowering.py": "$package/lowering.py",
    "preprocess.py": "$package/preprocess.py",
    "runtime.py": "$package/runtime.py",
    "rules.yaml": "$package/rules.yaml",
    "partitioning.yaml": "$package/partitioning.yaml",
    "conftest.py": "tests/conftest.py",
    "test_backend.py": "tests/test_backend.py",
    "test_fuzz.py": "tests/test_fuzz.py",
}
_NAME = re.compile(r"[A-Z][A-Za-z0-9]{0,60}")


@dataclass(frozen=True)
class NewBackendReport:
    """The document of `exirkit new-backend`.

    Attributes:
        backend: Name of the backend.
        package: Name of the package.
        directory: Where it is.
        files: Its files, by their paths in there.
    """

    backend: str
    package: str
    directory: str
    files: list[str]
    ok: bool = True


@app.command("new-backend")
def new_backend(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A class name, such as TinyNpu.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Output directory; default: named like the package."),
    ] = None,
    json: Json = False,
) -> None:
    """Create a small package with a working backend, to start from.

    It has rewrite rules, a partitioning, a compiler, a runtime in Python, tests and a README, and passes its own tests.
    """
    report = write_backend(name, output)
    if json:
        print_json(report)
        return
    for file in report.files:
        print_line(f"{report.directory}/{file}")
    print_line()
    print_line(f"tests: cd {report.directory} && pytest")


def write_backend(name: str, directory: Path | None = None) -> NewBackendReport:
    """Write a package.

    Args:
        name: Name of the backend, as a class is called: `TinyNpu`.
        directory: Where to; the name of the package in the working directory if absent.

    Raises:
        CommandError: EK725, the name is not valid, or is taken; EK712, the directory is not empty or not writable.
    """
    package = _package_of(name)
    root = Path(package) if directory is None else directory
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise CommandError(code="EK712", message="exists already and is not an empty directory", file=str(root))
    words = {"backend": name, "package": package, "distribution": package.replace("_", "-")}
    folder = files("exirkit.cli").joinpath("backend_starter")
    written = []
    for source, target in _FILES.items():
        path = root / string.Template(target).substitute(words)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = folder.joinpath(f"{source}.txt").read_text(encoding="utf-8")
        path.write_text(string.Template(text).substitute(words), encoding="utf-8")
        written.append(path.relative_to(root).as_posix())
    return NewBackendReport(backend=name, package=package, directory=str(root), files=sorted(written))


def _package_of(name: str) -> str:
    """Return the name of the package of a backend."""
    package = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    problem = None
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        problem = "is not a name for a backend"
    elif keyword.iskeyword(package) or package in sys.stdlib_module_names or package in ("exirkit", "tests", "torch"):
        problem = f"would be the package {package!r}, a name that is taken"
    elif name in ("ReferenceBackend", "BackendWithCompilerDemo"):
        problem = "is a backend of exirkit"
    if problem is None:
        return package
    raise CommandError(
        code="EK725",
        message=f"{name!r} {problem}; a backend is named like a class: letters and digits, starting with a capital",
        hint=f"such as {_suggested(name)}",
        exit_code=WRONG_USAGE,
    )


def _suggested(name: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", name.encode("ascii", "ignore").decode())
    joined = "".join(word[:1].upper() + word[1:] for word in words).lstrip("0123456789")
    made = joined[:1].upper() + joined[1:40]
    is_good = _NAME.fullmatch(made) and made != name and made.lower() not in sys.stdlib_module_names
    return made if is_good else "TinyNpu"
