"""What rules may use beyond their language: Python predicates and builders, each registered under a name.

They are the exception: a rule that uses one is opaque to static analysis, which the checks say, and is tried like any
other. Installed distributions offer them under the entry points `exirkit.predicates` and `exirkit.builders`.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.fx import Node

from exirkit.ir import (
    Diagnostic,
    ShapeEnvGuardError,
    UsageError,
    find_plugins,
    in_memory,
    load_plugin,
    pytree,
    underlying,
    value_of,
)
from exirkit.patterns.operators.table import OperatorTable, UnknownNameError
from exirkit.patterns.syntax.expressions import SYMBOLIC, UNKNOWN, ExpressionError

from .tensors import known
from .words import WORDS, Word, dtype_of, shape

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

PREDICATES = "exirkit.predicates"
BUILDERS = "exirkit.builders"


@dataclass(frozen=True)
class RegisteredBuilder:
    """A function that makes a replacement.

    Attributes:
        name: As rules write it after `build.`.
        function: Takes `BuilderTools` and the arguments that the rule hands over.
        doc: One line about it.
    """

    name: str
    function: Callable[..., Any]
    doc: str = ""


_BUILDERS: dict[str, RegisteredBuilder] = {}


def predicate(name: str, *, pure: bool, reads_values: bool = False) -> Callable[[Decorated], Decorated]:
    """Make a Python function a word of conditions.

    The function is called with what the rule writes: numbers, lists, and tensors, of which dtype and sizes are known.
    A condition that the sizes do not decide is not a match: none is ever fixed.

    Args:
        name: As rules write it.
        pure: The author's word that the result follows from the arguments alone; nothing else can be a condition,
            since rules are asked in any order, and again.
        reads_values: Tensors are handed over with their elements. They must be constants then.

    Raises:
        UsageError: EK254, the name cannot be used, or the function is not pure.
    """
    if not pure:
        raise _invalid(f"the predicate {name!r} is not pure", "let it depend on its arguments only, and say pure=True")

    def register(function: Decorated) -> Decorated:
        taken = WORDS.get(name)
        _check_name(name, function, None if taken is None else inspect.unwrap(taken.compute))
        compute = _asked(name, function, reads_values)
        WORDS[name] = Word(name, compute, reads_values, _first_line(function), is_opaque=True)
        return function

    return register


def builder(name: str) -> Callable[[Decorated], Decorated]:
    """Make a Python function a replacement: `replace: return build.NAME(x, 2)`.

    The function is called with `BuilderTools` and the arguments, which are tensors of the program, numbers and lists.
    It returns a tensor, or several, that the tools made or that it was given. They are checked like any result.

    Raises:
        UsageError: EK254, the name cannot be used.
    """

    def register(function: Decorated) -> Decorated:
        taken = _BUILDERS.get(name)
        _check_name(name, function, None if taken is None else taken.function)
        _BUILDERS[name] = RegisteredBuilder(name, function, _first_line(function))
        return function

    return register


def word_named(name: str) -> Word | None:
    """Return a word of the language, or a predicate that was registered or that a distribution offers."""
    if name not in WORDS and name.isidentifier() and name in find_plugins(PREDICATES):
        offered = load_plugin(PREDICATES, name)
        # A module that decorates its functions has registered them while it was loaded.
        if name not in WORDS:
            predicate(name, pure=True)(offered)
    return WORDS.get(name)


def builder_named(name: str) -> RegisteredBuilder | None:
    """Return a builder that was registered or that a distribution offers."""
    if name not in _BUILDERS and name in find_plugins(BUILDERS):
        offered = load_plugin(BUILDERS, name)
        if name not in _BUILDERS:
            builder(name)(offered)
    return _BUILDERS.get(name)


def builder_names() -> list[str]:
    """Return the names of all builders, those on offer included."""
    return sorted({*_BUILDERS, *find_plugins(BUILDERS)})


class BuilderTools:
    """What a builder makes its results with.

    Args:
        make: Meaning of calls: nodes of a program in the engine, results on tensors in trials.
        facts: Facts of the graph.
    """

    def __init__(self, make: Any, facts: Any) -> None:
        self._make = make
        self._facts = facts

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        """Call an operator; return its result, or a list of several.

        Args:
            op: Operator, or its name `aten.add.Tensor`.
            args: Arguments; real tensors become constants of the program.
            kwargs: Keyword arguments.

        Raises:
            ExpressionError: There is no such operator, or it does not take the arguments.
        """
        if isinstance(op, str):
            try:
                op = OperatorTable().find(op)
            except UnknownNameError as error:
                raise ExpressionError(error.message, None, error.hint) from None
        return self._make.call(underlying(op), args, kwargs)

    def value(self, x: Any) -> torch.Tensor | None:
        """Return the tensor behind a constant, not to be written to; None if it is not known."""
        if isinstance(x, Node):
            x = self._facts.value(x)
        return in_memory(x) if isinstance(x, torch.Tensor) else None

    def shape(self, x: Any) -> list[Any]:
        """Return the sizes of a tensor, some of which may vary."""
        return list(shape(x))

    def dtype(self, x: Any) -> torch.dtype:
        """Return the dtype of a tensor."""
        found: torch.dtype = dtype_of(x)
        return found

    def reject(self, reason: str) -> None:
        """Leave the match as it is.

        Raises:
            ExpressionError: Always.
        """
        raise ExpressionError(reason)

    def refuse(self, reason: str) -> None:
        """Former name of `reject`.

        Raises:
            ExpressionError: Always.
        """
        warnings.warn("make.refuse is now called make.reject", DeprecationWarning, stacklevel=2)
        self.reject(reason)


def run_builder(found: RegisteredBuilder, make: Any, facts: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return what a builder makes.

    Raises:
        ExpressionError: It rejects, or raises anything at all.
    """
    try:
        args, kwargs = pytree.tree_map_only(torch.Tensor, in_memory, (list(args), kwargs))
        return found.function(BuilderTools(make, facts), *args, **kwargs)
    except ExpressionError:
        raise
    # Anything can go wrong in the code of others.
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else ""
        raise ExpressionError(f"build.{found.name}: {type(error).__name__}: {text}") from error


def _asked(name: str, function: Callable[..., Any], reads_values: bool) -> Callable[..., Any]:
    def answer(args: Sequence[Any], named: dict[str, Any]) -> Any:
        with _no_guards([*args, *named.values()]):
            try:
                result = function(*args, **named)
            except ShapeEnvGuardError:
                return UNKNOWN
            # Anything can go wrong in the code of others.
            except Exception as error:
                raise RuntimeError(f"{type(error).__name__}: {error}") from error
        if not isinstance(result, bool | torch.SymBool):
            raise TypeError(f"{name} gives a {type(result).__name__}, not a truth")
        return result

    if not reads_values:

        @functools.wraps(function)
        def compute(*args: Any, **named: Any) -> Any:
            return answer([_facts_of(one) for one in args], {key: _facts_of(one) for key, one in named.items()})

        return compute

    @functools.wraps(function)
    def look(facts: Any, *args: Any, **named: Any) -> Any:
        real = [_value_of(facts, one) for one in args]
        return answer(real, {key: _value_of(facts, one) for key, one in named.items()})

    signature = inspect.signature(function)
    first = inspect.Parameter("_facts", inspect.Parameter.POSITIONAL_ONLY)
    look.__signature__ = signature.replace(parameters=[first, *signature.parameters.values()])  # type: ignore[attr-defined]
    return look


def _facts_of(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_facts_of(one) for one in value]
    return value_of(value)


def _value_of(facts: Any, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_value_of(facts, one) for one in value]
    return in_memory(known(facts, value)) if isinstance(value, Node | torch.Tensor) else value


def _no_guards(values: Sequence[Any]) -> AbstractContextManager[Any]:
    for one in _leaves(values):
        sizes = one.shape if isinstance(one, torch.Tensor) else (one,)
        for size in sizes:
            if isinstance(size, SYMBOLIC):
                context: AbstractContextManager[Any] = size.node.shape_env.error_on_new_guards()
                return context
    return nullcontext()


def _leaves(values: Sequence[Any]) -> Iterator[Any]:
    for one in values:
        if isinstance(one, list | tuple):
            yield from _leaves(one)
        else:
            yield one


def _check_name(name: str, function: Callable[..., Any], taken: Callable[..., Any] | None) -> None:
    if not name.isidentifier():
        raise _invalid(f"{name!r} is not a name", "use letters, digits and _")
    if taken is not None and _place(taken) != _place(function):
        raise _invalid(f"the name {name!r} is taken", "choose another name; the words of the language are fixed")


def _place(function: Callable[..., Any]) -> tuple[Any, Any]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", id(function))


def _first_line(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0]


def _invalid(message: str, hint: str) -> UsageError:
    return UsageError(Diagnostic(code="EK254", message=message, hint=hint))
