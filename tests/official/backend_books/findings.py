"""Programs that classes of the official package get wrong: `docs/upstream/passes`, one script for each."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from exirkit.patterns import backend_classes

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "upstream" / "passes"


@dataclass(frozen=True)
class PassFinding:
    """A defect of a class.

    Attributes:
        name: Name of the script.
        book: The book of the class's package; None if there is no such book.
        package: The package otherwise.
        class_name: The class.
        shows: A pattern in what the script prints.
        is_rare: Few programs have such operators, arguments or values.
    """

    name: str
    book: str | None
    package: str
    class_name: str
    shows: str
    is_rare: bool

    @property
    def script(self) -> Path:
        return FOLDER / f"{self.name}.py"

    @property
    def title(self) -> str:
        return ast.get_docstring(ast.parse(self.script.read_text(encoding="utf-8"))) or ""

    def program(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the model and the inputs of the script, without the official package."""
        kept = []
        for line in self.script.read_text(encoding="utf-8").splitlines():
            if "executorch" not in line:
                kept.append(line)
            if line.startswith("inputs = "):
                break
        names: dict[str, Any] = {}
        exec("\n".join(kept), names)
        return names["Model"](), names["inputs"]


def pass_findings() -> list[PassFinding]:
    """Return all of them, in the order of the list."""
    listed = yaml.safe_load((FOLDER / "findings.yaml").read_text(encoding="utf-8"))
    return [
        PassFinding(
            one["name"],
            one.get("book"),
            one.get("package") or backend_classes(one["book"]).package,
            one["class"],
            one["shows"],
            bool(one.get("rare")),
        )
        for one in listed
    ]
