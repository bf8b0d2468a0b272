"""Records the outcomes of all conditions of modules that are imported after `install`, and calls of their functions.

Of each condition it is recorded that it held and that it did not; of each comparison of numbers by size also that both
were equal, which a bound that is off by one changes. Parts of `and` and `or` are conditions of their own.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

COMPILER = tuple(
    f"exirkit.{room}" for room in ("emit", "ir", "passes", "patterns", "program", "runtime_ref", "verifiers")
)
"""Packages of what campaigns test."""

_CONDITION, _COMPARISON = "__exirkit_condition__", "__exirkit_comparison__"
_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS = tuple(_OPERATORS.values())
_OUTCOMES = ("held", "failed", "equal")
_PLACES: list[str] = []
_seen: set[int] = set()


def install(packages: Sequence[str] = COMPILER) -> None:
    """Record conditions of packages that are not imported yet.

    Raises:
        RuntimeError: One is.
    """
    finder = _Finder(packages)
    early = [name for name in sys.modules if finder.records(name)]
    if early:
        raise RuntimeError(f"imported too early: {early[0]}")
    sys.meta_path.insert(0, finder)


def take() -> list[str]:
    """Return what was recorded since the last call: file, line, column and outcome of each condition."""
    found = sorted(f"{_PLACES[number // 3]} {_OUTCOMES[number % 3]}" for number in _seen)
    _seen.clear()
    return found


def outcomes_of(path: Path, module: str) -> dict[str, list[str]]:
    """Return what may be recorded of each function of a module, by its qualified name.

    Args:
        path: Of the module.
        module: Its name, without that of the package.
    """
    # Not before `install`: it would import what is to be recorded.
    from exirkit.fuzz.campaigns import functions_of

    tree = ast.parse(path.read_bytes(), str(path))
    first = len(_PLACES)
    functions = dict(functions_of(tree))
    _Probes(module).visit(tree)
    found: dict[str, list[str]] = {}
    for place in _PLACES[first:]:
        line = int(place.split(":")[1])
        around = next((name for name, lines in functions.items() if line in lines), None)
        if around is not None:
            found.setdefault(around, []).extend(f"{place} {outcome}" for outcome in _OUTCOMES)
    del _PLACES[first:]
    return found


def _condition(number: int, value: Any) -> Any:
    _seen.add(number if value else number + 1)
    return value


def _comparison(number: int, which: int, one: Any, other: Any) -> Any:
    # Symbolic sizes must not be asked more than the compiler asks.
    if type(one) is type(other) is int and one == other:
        _seen.add(number + 2)
    return _FUNCTIONS[which](one, other)


class _Finder(MetaPathFinder):
    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = tuple(packages)

    def records(self, name: str) -> bool:
        return name in self._packages or name.startswith(tuple(f"{one}." for one in self._packages))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self.records(fullname):
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and isinstance(found.loader, SourceFileLoader):
            found.loader = _Loader(found.loader.name, found.loader.path)
        return found


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        # Not from or to the cache, which has the module as it is.
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        name = fullname.removeprefix("exirkit.")
        made = ast.fix_missing_locations(_Probes(name).visit(tree))
        return compile(made, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update({_CONDITION: _condition, _COMPARISON: _comparison})
        super().exec_module(module)


class _Probes(ast.NodeTransformer):
    def __init__(self, module: str) -> None:
        self._module = module

    def _number(self, node: ast.expr | ast.FunctionDef) -> ast.Constant:
        _PLACES.append(f"{self._module}:{node.lineno}:{node.col_offset}")
        return ast.Constant(3 * (len(_PLACES) - 1))

    def _recorded(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.BoolOp):
            # Its parts record themselves, all but the last.
            node.values[-1] = self._recorded(node.values[-1])
            return node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node.operand = self._recorded(node.operand)
            return node
        if isinstance(node, ast.Constant):
            return node
        call = ast.Call(ast.Name(_CONDITION, ast.Load()), [self._number(node), node], [])
        return ast.copy_location(call, node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        # The last part may be any value, which is not asked whether it is true.
        node.values[:-1] = [self._recorded(one) for one in node.values[:-1]]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        number = self._number(node)
        self.generic_visit(node)
        if len(node.ops) > 1 or type(node.ops[0]) not in _OPERATORS:
            return node
        which = list(_OPERATORS).index(type(node.ops[0]))
        given = [number, ast.Constant(which), node.left, node.comparators[0]]
        return ast.copy_location(ast.Call(ast.Name(_COMPARISON, ast.Load()), given, []), node)

    def _with_entry(self, node: Any) -> Any:
        """Record that a function is called, behind its docstring."""
        self.generic_visit(node)
        call = ast.Call(ast.Name(_CONDITION, ast.Load()), [self._number(node), ast.Constant(True)], [])
        place = int(ast.get_docstring(node, clean=False) is not None)
        node.body.insert(place, ast.copy_location(ast.Expr(call), node.body[0]))
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _with_entry  # noqa: N815

    def _with_test(self, node: Any) -> Any:
        self.generic_visit(node)
        node.test = self._recorded(node.test)
        return node

    visit_If = visit_While = visit_IfExp = visit_Assert = _with_test  # noqa: N815

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.ifs = [self._recorded(one) for one in node.ifs]
        return node
