"""Loops in replacements: lines that are repeated for every element of a list that the match knows."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.fx import Node

from exirkit.ir import value_of
from exirkit.patterns.syntax.expressions import Compiled, ExpressionCompiler, ExpressionError, Names, OwnNames

MAX_TURNS = 1_000
"""Most turns of one loop, those of loops inside it included: each turn makes calls."""

PROBE = "$loops"
"""Name under which a check passes a `LoopProbe`."""
_TURNS = "$turns"

Step = tuple[tuple[str, ...], Compiled]
"""Names that a line assigns, and what computes their values."""


class LoopProbe(Protocol):
    """What a check does to the lists of loops before they are used."""

    def items(self, loop: Loop, items: list[Any]) -> list[Any]:
        """Return the list to use instead."""
        ...


@dataclass(frozen=True)
class Loop:
    """A loop of a program.

    Attributes:
        text: Its first line, as in reports.
        line: Line of the program, from 1.
    """

    text: str
    line: int


@dataclass
class _Turns:
    """Turns that the outermost loop may still make."""

    left: int = MAX_TURNS


class LoopCompiler:
    """Compiles the loops of one program.

    Args:
        compiler: Compiles expressions.
        step: Compiles a line `name = ...`.

    Attributes:
        loops: Loops so far, those inside of others after them.
        inner: Names that only turns of a loop have.
    """

    def __init__(self, compiler: ExpressionCompiler, step: Callable[[ast.stmt], Step]) -> None:
        self.compiler = compiler
        self.step = step
        self.loops: list[Loop] = []
        self.inner: set[str] = set()

    def compile(self, statement: ast.For, known: Collection[str]) -> Step:
        """Compile a loop to a line that assigns the values it carries from turn to turn.

        Args:
            statement: The loop.
            known: Names with a value before it: assigned ones, variables and sizes.

        Returns:
            The carried names, and what computes their values after the last turn.

        Raises:
            ExpressionError: It is not in the language.
        """
        if statement.orelse:
            raise ExpressionError("`else` of a loop is not part of the language", statement.orelse[0])
        loop = Loop(f"for {ast.unparse(statement.target)} in {ast.unparse(statement.iter)}", statement.lineno)
        self.loops.append(loop)
        source = self.compiler.compile(statement.iter)
        keys = _loop_names(statement.target, known)
        outside = dict(self.compiler.free)
        self.compiler.free.clear()
        with self.compiler.local_names(keys):
            steps, first_uses = self._body(statement, known)
        assigned = list(dict.fromkeys(name for names, _ in steps for name in names))
        carried = tuple(name for name in assigned if name in known or name in first_uses)
        if not carried:
            raise ExpressionError(
                "the loop changes nothing: it assigns no name that has a value before it",
                statement,
                "assign the start before the loop: `y = x`, then `for d in dims: y = aten.flip.default(y, [d])`",
            )
        self.inner |= {*keys, *assigned} - set(carried)
        self.compiler.free.clear()
        self.compiler.free.update({**outside, **first_uses})
        # A carried name that the pattern binds has its first value from there.
        self.compiler.free.update({name: ast.Name(name) for name in carried})
        run = _Run(loop, statement, source, keys, isinstance(statement.target, ast.Name), tuple(steps), carried)
        return carried, run if len(carried) > 1 else lambda names: run(names)[0]

    def _body(self, statement: ast.For, known: Collection[str]) -> tuple[list[Step], dict[str, ast.Name]]:
        """Return the lines of a loop, and the names that a turn reads before it assigns them."""
        steps: list[Step] = []
        first_uses: dict[str, ast.Name] = {}
        assigned: set[str] = set()
        for line in statement.body:
            if isinstance(line, ast.For):
                step = self.compile(line, {*known, *assigned})
            elif isinstance(line, ast.Assign):
                step = self.step(line)
            else:
                raise ExpressionError("a loop has lines `name = ...` and loops", line, _hint(line))
            first_uses |= {
                key: node for key, node in self.compiler.free.items() if key.partition(".")[0] not in assigned
            }
            self.compiler.free.clear()
            steps.append(step)
            assigned |= set(step[0])
        return steps, first_uses

    def check_used(self, free: Collection[str]) -> None:
        """Reject a name that only turns of a loop have.

        Raises:
            ExpressionError: There is one.
        """
        for name in sorted(self.inner.intersection(free)):
            raise ExpressionError(
                f"{name!r} has no value if the list of the loop is empty",
                self.compiler.free[name],
                "assign it before the loop",
            )


def _hint(line: ast.stmt) -> str | None:
    if isinstance(line, ast.If):
        return "write `y = a if condition else y`"
    if isinstance(line, ast.Break | ast.Continue):
        return "leave the elements out of the list: `for d in [d for d in dims if ...]`"
    return None


def _loop_names(target: ast.expr, known: Collection[str]) -> list[str]:
    parts = [target] if isinstance(target, ast.Name) else list(getattr(target, "elts", []))
    keys = [part.id for part in parts if isinstance(part, ast.Name)]
    if not keys or len(keys) != len(parts):
        raise ExpressionError("the variable of a loop is a name, or several", target)
    for key in keys:
        if key in known:
            raise ExpressionError(f"{key!r} has a value before the loop", target, "choose another name")
    return keys


@dataclass(frozen=True)
class _Run:
    """A compiled loop."""

    loop: Loop
    node: ast.For
    source: Compiled
    keys: Sequence[str]
    is_single: bool
    steps: tuple[Step, ...]
    carried: tuple[str, ...]

    def __call__(self, names: Names) -> list[Any]:
        """Return the values of the carried names after the last turn."""
        inner = OwnNames(names)
        turns = names.get(_TURNS) or _Turns()
        inner.own[_TURNS] = turns
        inner.own.update({name: names[name] for name in self.carried})
        kinds = {name: _kind(inner.own[name]) for name in self.carried}
        for item in self._items(names):
            turns.left -= 1
            if turns.left < 0:
                raise ExpressionError(f"a loop of more than {MAX_TURNS:,} turns", self.node)
            self._turn(item, inner)
            for name, kind in kinds.items():
                self._check_kind(name, kind, _kind(inner.own[name]))
        return [inner.own[name] for name in self.carried]

    def _items(self, names: Names) -> list[Any]:
        found = self.source(names)
        if isinstance(found, torch.Tensor | Node | str) or not isinstance(found, Sequence):
            raise ExpressionError(f"a loop needs a list, not {_article(_kind(found))}", self.node.iter)
        items = list(found)
        probe: LoopProbe | None = names.get(PROBE)
        return items if probe is None else probe.items(self.loop, items)

    def _turn(self, item: Any, inner: OwnNames) -> None:
        values = (item,) if self.is_single else tuple(item)
        if len(values) != len(self.keys):
            raise ExpressionError(f"{len(values)} values for {len(self.keys)} names", self.node.target)
        inner.own.update(zip(self.keys, values, strict=True))
        for assigned, compute in self.steps:
            value = compute(inner)
            parts = [value] if len(assigned) == 1 else list(value)
            if len(parts) != len(assigned):
                raise ExpressionError(f"{len(parts)} values for the names {', '.join(assigned)}", self.node)
            inner.own.update(zip(assigned, parts, strict=True))

    def _check_kind(self, name: str, before: str, after: str) -> None:
        if before != after:
            raise ExpressionError(
                f"the loop makes {_article(after)} of {name!r}, which is {_article(before)} before it; the result of an"
                " empty list would have another type",
                self.node,
            )


def _kind(value: Any) -> str:
    """Return the type of a value as far as a loop must not change it: tensors with their dtype, numbers, lists."""
    found = value_of(value)
    if isinstance(found, torch.Tensor):
        return f"tensor of {str(found.dtype).removeprefix('torch.')}"
    if isinstance(found, Sequence) and not isinstance(found, str):
        return "list"
    names = {torch.SymInt: "int", torch.SymFloat: "float", torch.SymBool: "bool", type(None): "none"}
    return names.get(type(found), type(found).__name__)


def _article(kind: str) -> str:
    return kind if kind == "none" else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
