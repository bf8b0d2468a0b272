"""Books that come with exirkit: general ones, those that are read only when named, and those of backends."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

SHIPPED = "rules"
BACKENDS = "backends"
NAMED = "named"
WITNESSES = "witnesses"
CHAINS = "chains"
CLASSES = "classes"


def shipped_books() -> tuple[str, ...]:
    """Return the names of the general books that come with exirkit: those that commands take where none is named."""
    return _names(_folder())


@cache
def backend_books() -> tuple[str, ...]:
    """Return the names of the books of backends: `backends/` and the name of a package.

    They are in no level of optimization and in no list of all books; nothing reads them unless they are named.
    """
    return tuple(f"{BACKENDS}/{name}" for name in _names(_folder() / BACKENDS))


@cache
def named_books() -> tuple[str, ...]:
    """Return the names of books that are in no level of optimization, and that nothing reads unless they are named."""
    return _names(_folder() / NAMED)


def is_shipped(name: str) -> bool:
    """Return whether a name is that of a book that comes with exirkit, general or of a backend."""
    return name in shipped_books() or name in named_books() or name in backend_books()


def book_text(name: str) -> str:
    """Return the text of a book that comes with exirkit, by its name."""
    path = f"{NAMED}/{name}" if name in named_books() else name
    return (_folder() / f"{path}.yaml").read_text(encoding="utf-8")


def witnesses_of(name: str) -> bytes | None:
    """Return the stored witnesses of a book that comes with exirkit, or None if there are none."""
    folder, _, stem = name.rpartition("/")
    folder = NAMED if name in named_books() else folder
    resource = _folder() / folder / WITNESSES / f"{stem}.json"
    return resource.read_bytes() if resource.is_file() else None


def backend_chain_text(name: str) -> str:
    """Return the chain of passes of a backend's package, as a pipeline whose stages are rules of its book and others.

    Args:
        name: Name of the book: `backends/` and the name of the package.
    """
    return _beside(name, CHAINS)


def backend_classes_text(name: str) -> str:
    """Return the table of the classes of a backend's package: the rules that do the work of each, or why none does.

    Args:
        name: Name of the book: `backends/` and the name of the package.
    """
    return _beside(name, CLASSES)


def bucket_verdicts_text() -> str:
    """Return what is known of the buckets of `exirkit fuzz --against`."""
    return _beside(f"{BACKENDS}/buckets", "verdicts")


def other_classes_text() -> str:
    """Return the tables of the classes of packages that have no book."""
    return _beside(f"{BACKENDS}/other_packages", CLASSES)


def _beside(name: str, kind: str) -> str:
    folder, _, stem = name.rpartition("/")
    return (_folder() / folder / kind / f"{stem}.yaml").read_text(encoding="utf-8")


def _folder() -> Traversable:
    return files("exirkit.patterns") / SHIPPED


def _names(folder: Traversable) -> tuple[str, ...]:
    return tuple(sorted(each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml")))
