"""`exirkit new-backend`: a small package with a backend that works, to start from."""

from __future__ import annotations

import keyword
import re
import string
import sys
from importlib.resources import files
from pathlib import Path

from .failures import WRONG_USAGE, CommandError
from .reports import Report

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


class NewBackendReport(Report):
    """What `exirkit new-backend` has written.

    Attributes:
        backend: Name of the backend.
        package: Name of the package.
        directory: Where it is.
        files: Its files, by their paths in there.
    """

    ok: bool = True
    backend: str
    package: str
    directory: str
    files: list[str]


def write_backend(name: str, directory: Path | None = None) -> NewBackendReport:
    """Write a package.

    Args:
        name: Name of the backend, as a class is called: `TinyNpu`.
        directory: Where to; the name of the package in the working directory if absent.

    Raises:
        CommandError: EK725, the name is none, or is taken; EK712, there is something already, or it cannot be written.
    """
    package = _package_of(name)
    root = Path(package) if directory is None else directory
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise CommandError(code="EK712", message="there is something already", file=str(root))
    words = {"backend": name, "package": package, "distribution": package.replace("_", "-")}
    folder = files(__package__ or "exirkit.cli").joinpath("backend_starter")
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
        problem = "is no name of a backend"
    elif keyword.iskeyword(package) or package in sys.stdlib_module_names or package in ("exirkit", "tests", "torch"):
        problem = f"would be the package {package!r}, a name that is taken"
    elif name in ("ReferenceBackend", "BackendWithCompilerDemo"):
        problem = "is a backend of exirkit"
    if problem is None:
        return package
    raise CommandError(
        code="EK725",
        message=f"{name!r} {problem}; a backend is called like a class: letters and digits, the first one a capital",
        hint=f"such as {_suggested(name)}",
        exit_code=WRONG_USAGE,
    )


def _suggested(name: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", name.encode("ascii", "ignore").decode())
    joined = "".join(word[:1].upper() + word[1:] for word in words).lstrip("0123456789")
    made = joined[:1].upper() + joined[1:40]
    is_good = _NAME.fullmatch(made) and made != name and made.lower() not in sys.stdlib_module_names
    return made if is_good else "TinyNpu"
