"""Where the product can be changed, and a tree that contains all changes, each switched on by its number.

Each change is written as `(changed if _mutant_active_(7) else original)`, so that one tree serves all mutants and tells
which tests reach which of them.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pydantic

FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ROOMS = ("ir", "patterns", "passes", "verifiers", "emit", "runtime_ref", "fuzz", "src/exirkit")
# Their changes are visible in messages only.
_TEXT_FUNCTIONS = {"__repr__", "__str__", "Diagnostic", "error", "Location", "warn", "UsageError", "ModelError"}
_HOOK = "from exirkit_mutants import active as _mutant_active_"


class Site(pydantic.BaseModel):
    """A change of one expression.

    Attributes:
        file: Path in the tree.
        line: Line of the expression, from 1.
        kind: What is changed.
        start: Byte offset of the expression in its file.
        end: Byte offset after it.
        original: Source text.
        changed: Source text of the mutant.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    file: str
    line: int
    kind: str
    start: int
    end: int
    original: str
    changed: str


def draw(root: Path, count: int, seed: int, rooms: Sequence[str] = ROOMS) -> list[Site]:
    """Draw changes over the rooms, as many in each as its code has expressions to change.

    Args:
        root: Of the tree.
        count: How many.
        seed: Of the random generator.
        rooms: Folders of the tree.

    Returns:
        Changes that do not overlap, sorted by file and place.
    """
    generator = random.Random(seed)
    files = sorted(one for room in rooms for one in (root / room).rglob("*.py") if not one.is_symlink())
    files = [one for one in files if not any(part.is_symlink() for part in one.relative_to(root).parents if part.name)]
    sites = [site for file in dict.fromkeys(files) for site in sites_of(file.relative_to(root), root)]
    # Kinds are equally frequent; inside a kind each expression of the product is equally likely.
    by_kind = {kind: [one for one in sites if one.kind == kind] for kind in sorted({one.kind for one in sites})}
    chosen: list[Site] = []
    while len(chosen) < count:
        kind = list(by_kind)[len(chosen) % len(by_kind)]
        one = generator.choice(by_kind[kind])
        if not any(one.file == other.file and one.start < other.end and other.start < one.end for other in chosen):
            chosen.append(one)
    return sorted(chosen, key=lambda site: (site.file, site.start))


def sites_of(file: Path, root: Path) -> list[Site]:
    """Return the changes that a file allows, in functions only: what runs at import is run by every test."""
    source = (root / file).read_bytes()
    lines = source.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    found: list[Site] = []
    for kind, node, changed in _changes(ast.parse(source)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[node.end_lineno - 1] + node.end_col_offset
        found.append(
            Site(
                file=file.as_posix(),
                line=node.lineno,
                kind=kind,
                start=start,
                end=end,
                original=source[start:end].decode(),
                changed=ast.unparse(changed),
            )
        )
    return found


def write_tree(root: Path, sites: list[Site]) -> None:
    """Write all changes into a tree."""
    for file in sorted({one.file for one in sites}):
        source = (root / file).read_bytes()
        numbered = [(number, one) for number, one in enumerate(sites) if one.file == file]
        for number, one in sorted(numbered, key=lambda pair: -pair[1].start):
            switched = f"(({one.changed}) if _mutant_active_({number}) else ({one.original}))"
            source = source[: one.start] + switched.encode() + source[one.end :]
        (root / file).write_bytes(_with_hook(source))


def _with_hook(source: bytes) -> bytes:
    future = b"from __future__ import annotations"
    assert future in source
    # On the same line, so that line numbers stay.
    return source.replace(future, future + b"; " + _HOOK.encode(), 1)


def _changes(tree: ast.Module) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name not in _TEXT_FUNCTIONS:
            for statement in function.body:
                yield from _in(statement)


def _in(node: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Raise | ast.JoinedStr | ast.Assert | ast.AnnAssign):
        # Functions inside functions are visited as functions.
        return
    if isinstance(node, ast.Call) and _name(node.func) in _TEXT_FUNCTIONS:
        return
    yield from _changed(node)
    for child in ast.iter_child_nodes(node):
        yield from _in(child)


def _changed(node: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    match node:
        case ast.Compare(ops=[operator]):
            other = copy.deepcopy(node)
            other.ops = [FLIPPED[type(operator)]()]
            yield "comparison", node, other
        case ast.Constant(value=bool() as value):
            yield "constant", node, ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield "constant", node, ast.Constant(value + 1)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield "condition", test, ast.UnaryOp(ast.Not(), test)
        case ast.Expr(value=ast.Call() as call) if _name(call.func) not in _TEXT_FUNCTIONS:
            yield "statement", call, ast.Constant(None)
        case ast.Call(args=[ast.Name() | ast.Attribute() as first, ast.Name() | ast.Attribute() as second, *rest]) if (
            # Others crash wherever they are called, or mean the same.
            _name(node.func) not in ("isinstance", "issubclass", "max", "min") and ast.dump(first) != ast.dump(second)
        ):
            swapped = copy.deepcopy(node)
            swapped.args = [second, first, *rest]
            yield "arguments", node, swapped


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
