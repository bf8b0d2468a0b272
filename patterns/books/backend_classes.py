"""The classes of a backend's package that rewrite programs, and which rules or passes do the work of each."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from exirkit.ir import DocumentCodes, read_document
from exirkit.patterns.books.shipped import backend_classes_text, other_classes_text

_CODES = DocumentCodes(syntax="EK201", form="EK202")
_LARGEST_CHARACTERS = 1 << 20

Extent = Literal["same", "wider", "narrower", "nothing"]
Expressible = Literal["rules", "propagation", "done", "neither", "base"]


class BackendClass(BaseModel):
    """One class.

    Attributes:
        name: Name of the class.
        file: Its file, from the folder of the package.
        lines: Lines of code of the class and of the functions of its file that it uses.
        runs_on: Programs that it is given: in Edge, or as exporters return them (`aten`).
        keeps: ATen operators that its package has lowering to Edge keep whole.
        does: What the class does.
        extent: How much of its work is done here: the `same`, more (`wider`), a part (`narrower`), `nothing`.
        rules: Ids of the rules that do it, of the package's book or of a general one.
        passes: Names of exirkit's passes that do it.
        propagations: Names of analyses of the whole graph that do it.
        expressible: If nothing is done of its work, what would say it: `rules`, a `propagation`, `neither` of them;
            `done` if nothing is left to do here; `base` if the class rewrites nothing itself.
        remark: In what it differs, or what is in the way.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^\w+$")]
    file: str
    lines: Annotated[int, Field(ge=1)]
    runs_on: Literal["edge", "aten"] = "edge"
    keeps: tuple[str, ...] = ()
    does: str
    extent: Extent
    rules: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    propagations: tuple[str, ...] = ()
    expressible: Expressible | None = None
    remark: str = ""

    @model_validator(mode="after")
    def _reasons(self) -> BackendClass:
        if (self.extent == "nothing") == bool(self.rules or self.passes or self.propagations):
            raise ValueError(f"{self.name}: rules, passes or propagations are named exactly where they do something")
        if not self.remark and self.extent in ("narrower", "nothing"):
            raise ValueError(f"{self.name}: a remark has to say what is left out, or why")
        if (self.extent == "nothing") != (self.expressible is not None):
            raise ValueError(f"{self.name}: where nothing is done, and only there, an entry says what would express it")
        return self


class PackageClasses(BaseModel):
    """The classes of one package.

    Attributes:
        package: Folder of the package in the official tree.
        entries: Its classes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    package: str
    entries: tuple[BackendClass, ...]


class BackendClasses(PackageClasses):
    """The classes of a package that has a book.

    Attributes:
        classes: Version of the form: 1.
    """

    classes: Literal[1]


class _OtherPackages(BaseModel):
    """The classes of packages that have no book.

    Attributes:
        classes: Version of the form: 1.
        packages: The packages.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    classes: Literal[1]
    packages: tuple[PackageClasses, ...]


@cache
def backend_classes(name: str) -> BackendClasses:
    """Return what is known of the classes of a package.

    Args:
        name: Name of the book, as in `backend_books()`.

    Raises:
        ModelError: EK201, EK202, the file that comes with exirkit is damaged.
    """
    text = backend_classes_text(name)
    return read_document(text, BackendClasses, _CODES, file=f"{name}.yaml", largest=_LARGEST_CHARACTERS).model


def other_backend_classes() -> tuple[PackageClasses, ...]:
    """Return what is known of the classes of packages that have no book.

    Raises:
        ModelError: EK201, EK202, the file that comes with exirkit is damaged.
    """
    text, file = other_classes_text(), "other_packages.yaml"
    return read_document(text, _OtherPackages, _CODES, file=file, largest=_LARGEST_CHARACTERS).model.packages
