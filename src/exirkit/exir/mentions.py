"""Where Python code mentions names of `executorch.exir`: in imports, and as attributes of what it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .names import OFFICIAL, Absence, Home, NameTable, name_table


@dataclass(frozen=True, order=True)
class Mention:
    """One mention.

    Attributes:
        line: Line of the code, counted from 1.
        module: Module below `executorch.exir`; "" is that package itself.
        name: Name in the module; "" stands for the module as a whole.
        is_import: Whether an import names it; otherwise it is an attribute of a module that was imported.
    """

    line: int
    module: str
    name: str
    is_import: bool

    @property
    def qualified(self) -> str:
        """The mention in full: `executorch.exir.pass_base.ExportPass`."""
        return ".".join(part for part in (OFFICIAL, self.module, self.name) if part)


def mentions_of(tree: ast.Module) -> list[Mention]:
    """Return the mentions in code, in the order of lines."""
    table = name_table()
    local: dict[str, str] = {}
    found = list(_imports(tree, local))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.extend(_attribute(node, local, table))
    return sorted(set(found))


def counterpart(mention: Mention) -> Home | Absence | None:
    """Return where a mentioned name has its counterpart, or why it has none; None where nothing is known of it.

    A module is its own counterpart.
    """
    table = name_table()
    inner = f"{mention.module}.{mention.name}".strip(".")
    if mention.name == "*" or inner in table.modules():
        absent = table.absence(inner, "*")
        return absent or Home(".".join(part for part in ("exirkit.exir", inner) if part and part != "*"), "")
    return table.home(mention.module, mention.name) or table.absence(mention.module, mention.name)


def below(name: str | None) -> str | None:
    """Return the rest of the name of a module that is `executorch.exir` or below it, or None if it is neither."""
    if name == OFFICIAL:
        return ""
    return name.removeprefix(f"{OFFICIAL}.") if name is not None and name.startswith(f"{OFFICIAL}.") else None


def _imports(tree: ast.Module, local: dict[str, str]) -> Iterator[Mention]:
    """Yield the mentions in imports, and note which local names are modules below `executorch`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                qualified = f"{node.module}.{alias.name}"
                module = below(node.module)
                if module is not None:
                    yield Mention(node.lineno, module, alias.name, True)
                elif qualified == OFFICIAL:
                    yield Mention(node.lineno, "", "", True)
                local[alias.asname or alias.name] = qualified
        elif isinstance(node, ast.Import):
            for alias in node.names:
                module = below(alias.name)
                if module is not None:
                    yield Mention(node.lineno, module, "", True)
                first = alias.name.partition(".")[0]
                local[alias.asname or first] = alias.name if alias.asname else first


def _attribute(node: ast.Attribute, local: Mapping[str, str], table: NameTable) -> Iterator[Mention]:
    """Yield what an attribute is, if it is a name of a module below `executorch.exir`."""
    parts = [node.attr]
    value = node.value
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    if not isinstance(value, ast.Name) or value.id not in local:
        return
    owner = below(".".join([local[value.id], *reversed(parts[1:])]))
    is_module = owner is not None and owner in table.modules()
    if is_module and owner is not None and f"{owner}.{node.attr}".strip(".") not in table.modules():
        yield Mention(node.lineno, owner, node.attr, False)
