"""Passes and pass managers of the official package, where the process has loaded it; nothing here imports it.

Ours join theirs, and theirs run on our programs: while they run, calls name operators by the official handles, with
which such passes compare targets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch.fx import GraphModule

from exirkit.ir import give_foreign_handles, take_foreign_handles

_LIBRARY = "executorch"
_HOME, _BASE = "executorch.exir.pass_base", "ExportedProgramPassBase"


def join_official_passes(kind: type) -> None:
    """Make a class of passes count as passes over programs for the official pass manager.

    The manager calls such passes with the exported program, in which stored tensors are known, and all others with its
    graph module. What is asked of them is to be callable and to return something with `exported_program` and
    `modified`. Versions of the package without such passes call every pass with the graph module.

    Args:
        kind: The class; its objects can be called with either.
    """
    base = getattr(sys.modules.get(_HOME), _BASE, None)
    if base is not None and not issubclass(kind, base):
        base.register(kind)


def is_official(one: Any) -> bool:
    """Return whether a pass is made for official handles.

    That is an object of a class that is derived from one of the official package, or a function that is defined in it
    or names something of it, such as `lambda module: OfficialPass()(module)`.
    """
    if isinstance(one, FunctionType):
        return _is_in_library(one.__module__) or any(map(_is_of_library, _named_by(one)))
    if isinstance(one, MethodType):
        return is_official(one.__self__) or is_official(one.__func__)
    if isinstance(one, partial):
        return is_official(one.func) or any(map(_is_of_library, (*one.args, *one.keywords.values())))
    return any(_is_in_library(kind.__module__) for kind in type(one).__mro__)


def _is_of_library(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return _is_in_library(value.__name__)
    if isinstance(value, type):
        return any(_is_in_library(kind.__module__) for kind in value.__mro__)
    if isinstance(value, FunctionType):
        return _is_in_library(value.__module__)
    return any(_is_in_library(kind.__module__) for kind in type(value).__mro__)


def _is_in_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] == _LIBRARY


def _named_by(function: FunctionType) -> Iterator[Any]:
    """Yield the values that a function refers to: defaults, variables of enclosing functions, globals and imports."""
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        # A cell is empty while the enclosing function has not assigned it.
        with suppress(ValueError):
            yield cell.cell_contents
    for name in _names_in(function.__code__):
        if name in function.__globals__:
            yield function.__globals__[name]
        elif _is_in_library(name) and name in sys.modules:
            yield sys.modules[name]


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def takes_programs(one: Any) -> bool:
    """Return whether a pass of the official package works on exported programs, not on graph modules."""
    base = getattr(sys.modules.get(_HOME), _BASE, None)
    return base is not None and is_official(one) and isinstance(one, base)


@contextmanager
def official_handles(module: GraphModule) -> Iterator[None]:
    """Let a graph name operators by the official handles inside of the block."""
    give_foreign_handles(module, _LIBRARY)
    try:
        yield
    finally:
        take_foreign_handles(module)


def run_official(one: Any, module: GraphModule) -> Any:
    """Call an official pass with a graph module of ours; what it returns has our handles.

    Args:
        one: A pass over graph modules.
        module: The graph, which has our handles again in the end.
    """
    with official_handles(module):
        result = one(module)
        made = getattr(result, "graph_module", result)
        if isinstance(made, GraphModule):
            take_foreign_handles(made)
    return result
