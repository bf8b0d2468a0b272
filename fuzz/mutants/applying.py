"""Applying mutants in the running process: the code of one function is replaced, and restored afterwards.

The function object stays the same, so that it does not matter under which name it is imported. Nothing is executed when
a mutant is applied, and no file is touched.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any

from exirkit.ir import Diagnostic, InternalError

from .model import Mutant, mutant

_MARK = "_exirkit_mutant_reached"

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Reach:
    """How often the changed statement of a mutant was executed.

    Attributes:
        count: Times.
    """

    def __init__(self) -> None:
        self.count = 0

    def note(self) -> None:
        """Note that the statement is executed."""
        self.count += 1


@contextmanager
def applied(one: Mutant, *, alone: bool = False) -> Iterator[Reach]:
    """Apply a mutant, with those that it needs, for as long as the block lasts.

    Args:
        one: The mutant.
        alone: Leave out those that it needs.

    Yields:
        How often the mutant itself is reached.

    Raises:
        InternalError: EK881, the function no longer reads as the mutant expects.
    """
    with ExitStack() as stack:
        for name in () if alone else one.together:
            stack.enter_context(_replaced(mutant(name)))
        yield stack.enter_context(_replaced(one))


@contextmanager
def applied_companions(one: Mutant) -> Iterator[None]:
    """Apply what a mutant needs, but not the mutant."""
    with ExitStack() as stack:
        for name in one.together:
            stack.enter_context(_replaced(mutant(name)))
        yield


@contextmanager
def _replaced(one: Mutant) -> Iterator[Reach]:
    function = function_of(one)
    code, reach = mutated_code(one), Reach()
    before = function.__code__
    function.__globals__[_marker(one)] = reach.note
    function.__code__ = code
    _forget(one)
    try:
        yield reach
    finally:
        function.__code__ = before
        function.__globals__.pop(_marker(one), None)
        _forget(one)


def function_of(one: Mutant) -> FunctionType:
    """Return the function that a mutant changes."""
    found = inspect.unwrap(_lookup(one.module, one.function))
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__func__", found)
    if not isinstance(found, FunctionType):
        raise _misfit(one, "it is not a Python function")
    return found


def mutated_code(one: Mutant) -> CodeType:
    """Return the code of the mutated function, with a mark in front of the changed statement."""
    module = import_module(f"exirkit.{one.module}")
    lines = inspect.getsource(module).splitlines(keepends=True)
    where = _definition(ast.parse("".join(lines)), one)
    assert where.end_lineno is not None
    first, last = where.lineno - 1, where.end_lineno
    text = "".join(lines[first:last])
    if text.count(one.old) != 1:
        raise _misfit(one, f"its text is there {text.count(one.old)} times")
    line = where.lineno + text[: text.index(one.old)].count("\n")
    tree = ast.parse("".join(lines[:first]) + text.replace(one.old, one.new) + "".join(lines[last:]))
    _mark(_definition(tree, one).body, line, _marker(one))
    found = _code_named(compile(ast.fix_missing_locations(tree), module.__file__ or "", "exec"), one.function)
    if found is None or found.co_freevars != function_of(one).__code__.co_freevars:
        raise _misfit(one, "the change uses other variables from around the function")
    return found


def _marker(one: Mutant) -> str:
    return f"{_MARK}_{one.id.replace('-', '_')}"


def _mark(body: list[ast.stmt], line: int, name: str) -> None:
    """Insert a call in front of the innermost statement on a line."""
    for at, statement in enumerate(body):
        if not statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            continue
        blocks: list[Any] = [getattr(statement, each, None) for each in ("body", "orelse", "finalbody")]
        blocks += [each.body for each in getattr(statement, "handlers", ())]
        for block in blocks:
            if isinstance(block, list) and block and block[0].lineno <= line <= (block[-1].end_lineno or line):
                _mark(block, line, name)
                return
        call = ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], []))
        body.insert(at, ast.copy_location(call, statement))
        return


def _definition(tree: ast.Module, one: Mutant) -> ast.FunctionDef:
    body: Sequence[ast.stmt] = tree.body
    found: ast.stmt | None = None
    for name in one.function.split("."):
        found = next((each for each in body if isinstance(each, _Definition) and each.name == name), None)
        if not isinstance(found, _Definition):
            raise _misfit(one, "there is no such function")
        body = found.body
    if not isinstance(found, ast.FunctionDef):
        raise _misfit(one, "it is not a plain function")
    return found


def _code_named(code: CodeType, name: str) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == name:
                return constant
            found = _code_named(constant, name)
            if found is not None:
                return found
    return None


def _forget(one: Mutant) -> None:
    """Empty the caches that may hold what the function returned before."""
    module: ModuleType = sys.modules[f"exirkit.{one.module}"]
    found = [each for each in vars(module).values() if getattr(each, "__module__", None) == module.__name__]
    found += [_lookup(*each.split(":")) for each in one.caches]
    for each in found:
        clear = getattr(each, "cache_clear", None)
        if clear is not None:
            clear()


def _lookup(module: str, name: str) -> Any:
    try:
        return reduce(inspect.getattr_static, name.split("."), import_module(f"exirkit.{module}"))
    except (AttributeError, ImportError) as error:
        raise InternalError(Diagnostic(code="EK881", message=f"there is no {module}:{name}: {error}")) from error


def _misfit(one: Mutant, why: str) -> InternalError:
    return InternalError(
        Diagnostic(
            code="EK881",
            message=f"mutant {one.id} does not fit {one.module}:{one.function}: {why}",
            hint="the function was changed: write the same mutant for the function as it is now",
        )
    )
