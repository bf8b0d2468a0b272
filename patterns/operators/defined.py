"""Operators that a book declares: real torch operators whose meaning is their definition."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from pydantic import ValidationError

from exirkit.ir import (
    DefinedOperator,
    Diagnostic,
    ModelError,
    SourceText,
    TensorType,
    UsageError,
    defined_operator,
    find_plugins,
    has_kernel,
    load_plugin,
    parse_schema,
    underlying,
)
from exirkit.ir import define_operator as define_handle
from exirkit.patterns.books.model import OperatorDefinition
from exirkit.patterns.operators.table import OperatorTable
from exirkit.patterns.syntax.expressions import ExpressionError
from exirkit.patterns.syntax.programs import Program, Scope, compile_program
from exirkit.patterns.syntax.terms import Operator

_KEPT: dict[str, tuple[str, Operator, Program, torch.library.Library | None]] = {}
"""By qualified name: what was defined, the operator, its program, and the library that must stay alive."""

_ADOPTED: set[str] = set()
"""Qualified names of operators that another library has registered with the schema that a book gives them."""

_FILES: dict[str, str] = {}
"""By qualified name: the book that defined it first."""

_BESIDE: dict[str, Operator] = {}
"""By qualified name of an operator in a book's own namespace: the operator of another library with the same schema."""

_is_beside_others: ContextVar[bool] = ContextVar("is_beside_others", default=False)


@contextmanager
def beside_other_libraries() -> Iterator[None]:
    """Let books define operators whose names other libraries have registered: in a namespace of their own.

    A name in such a namespace is that of the book, with `_` and ten digits behind the namespace.
    """
    token = _is_beside_others.set(True)
    try:
        yield
    finally:
        _is_beside_others.reset(token)


class TensorBuilder:
    """Runs calls of operators on tensors, real or symbolic."""

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several."""
        result = op(*args, **kwargs)
        return list(result) if isinstance(result, tuple | list) else result


def define_operator(
    name: str, definition: OperatorDefinition, text: SourceText, schema: SourceText, scope: Scope
) -> Operator | None:
    """Register an operator, or find it registered with the same meaning or, by another library, with the same schema.

    Args:
        name: `bk.add_relu`.
        definition: Schema and meaning.
        text: The definition's place.
        schema: The schema's place.
        scope: Operators that the definition may use; diagnostics go there.

    Returns:
        The operator, or None: then there are diagnostics.
    """
    arguments = _argument_names(definition.schema_, schema, scope)
    if arguments is None:
        return None
    inner = Scope(scope.table, dict.fromkeys(arguments, object()), frozenset(), scope.macros, scope.found)
    program = compile_program(text, inner)
    if program is None:
        return None
    unknown = sorted(program.uses - set(arguments))
    if unknown:
        scope.complain(
            text, "EK212", f"{unknown[0]!r} is not an argument of {name}", None, f"it has {', '.join(arguments)}"
        )
        return None
    made = _register(name, definition, program, schema, scope)
    if made is not None and schema.file is not None:
        _FILES.setdefault(underlying(made)._schema.name, schema.file)
    return made


def book_of_operator(name: str) -> str | None:
    """Return the file of the book that defined an operator in this process, or None.

    Args:
        name: `namespace::name`, with or without an overload.
    """
    return _FILES.get(name.partition(".")[0])


def definition_of(op: Operator) -> Program | None:
    """Return the program that gives an operator its meaning, or None for one that no book defines."""
    known = _KEPT.get(underlying(op).name() if hasattr(underlying(op), "name") else "")
    return known[2] if known is not None else None


def is_adopted(op: Operator) -> bool:
    """Whether another library than a book computes an operator that a book defines."""
    return getattr(underlying(op), "name", str)() in _ADOPTED


def registered_beside(op: Operator) -> Operator | None:
    """Return the operator of another library that a book's operator stands beside, if both have the same schema."""
    return _BESIDE.get(op.name())


def defined_beside(op: Operator) -> Operator | None:
    """Return the book's operator that stands beside one of another library, if both have the same schema."""
    return next((_KEPT[name][1] for name, other in _BESIDE.items() if other is op and name in _KEPT), None)


def keep_definition(
    qualified: str, definition: OperatorDefinition, op: Operator, program: Program, library: torch.library.Library
) -> None:
    """Let an operator registered elsewhere count as one that a book defines.

    Args:
        qualified: `namespace::name`.
        definition: Schema and meaning.
        op: The operator.
        program: The compiled meaning.
        library: Library that must stay alive.
    """
    _KEPT[qualified] = (f"{definition.schema_}\n{definition.define}", op, program, library)


def _argument_names(text: str, place: SourceText, scope: Scope) -> list[str] | None:
    try:
        return [argument.name for argument in parse_schema(f"exirkit::op{text}").arguments]
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        hint = "a schema is written (Tensor x, int a) -> Tensor"
        scope.complain(place, "EK230", f"torch does not take this schema: {reason}", None, hint)
        return None


def _register(
    name: str, definition: OperatorDefinition, program: Program, place: SourceText, scope: Scope
) -> Operator | None:
    namespace, _, base = name.partition(".")
    base = base.replace(".", "_") if base.endswith(".default") else base
    meaning = f"{definition.schema_}\n{definition.define}"
    qualified = f"{namespace}::{base.removesuffix('_default')}"
    known = _KEPT.get(qualified)
    if known is not None and known[0] != meaning:
        # Another book of this process means something else by the name; both must go on meaning what they said.
        digest = hashlib.sha256(meaning.encode()).hexdigest()[:10]
        qualified = f"{namespace}_{digest}::{base}"
        known = _KEPT.get(qualified)
    if known is not None:
        return known[1]
    namespace, _, base = qualified.partition("::")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    if packet is not None and _is_beside_others.get():
        digest = hashlib.sha256(meaning.encode()).hexdigest()[:10]
        namespace = f"{namespace}_{digest}"
        qualified = f"{namespace}::{base}"
        if qualified in _KEPT:
            return _KEPT[qualified][1]
        # The package may have the operator with these arguments under another overload, such as `per_tensor`.
        outline = _outline(parse_schema(f"{qualified}{definition.schema_}"))
        overloads = (getattr(packet, name) for name in packet.overloads())
        other = next((one for one in overloads if _outline(one._schema) == outline), None)
        if other is not None:
            _BESIDE[qualified] = other
        packet = None
    registered = getattr(packet, "default", None)
    if registered is not None:
        return _adopted(qualified, registered, meaning, definition, program, place, scope)
    return _made(namespace, base, qualified, meaning, definition, program, place, scope)


# PyTorch's own operators mean what PyTorch says; no book gives them another meaning.
_OF_TORCH = frozenset({"aten", "prim", "prims", "quantized", "quantized_decomposed"})
_COMPUTING_KEYS = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


def _adopted(
    qualified: str,
    op: Operator,
    meaning: str,
    definition: OperatorDefinition,
    program: Program,
    place: SourceText,
    scope: Scope,
) -> Operator | None:
    """Return an operator that another library has registered, if its schema is that of the book."""
    namespace, _, base = qualified.partition("::")
    if namespace in _OF_TORCH:
        message = f"{qualified} is an operator of PyTorch, which a book cannot define"
        scope.complain(place, "EK231", message, None, "choose another namespace")
        return None
    if _outline(op._schema) != _outline(parse_schema(f"{qualified}{definition.schema_}")):
        text = str(op._schema)
        message = f"another library has registered {qualified} with another schema, {text[text.index('(') :]}"
        hint = "write that schema and its meaning, or choose another namespace"
        scope.complain(place, "EK231", message, None, hint)
        return None
    library = None
    if not any(has_kernel(qualified, key) for key in _COMPUTING_KEYS):
        # Only a schema, as packages give operators that run on their device alone.
        library = torch.library.Library(namespace, "FRAGMENT")
        library.impl(base, _computation(qualified, op._schema, program), "CompositeExplicitAutograd")
    _KEPT[qualified] = (meaning, op, program, library)
    _ADOPTED.add(qualified)
    return op


def _outline(schema: Any) -> list[tuple[Any, ...]]:
    """Return what calls depend on: names, types and defaults of arguments, and types of results."""
    arguments = [(one.name, str(one.type), one.kwarg_only, one.default_value, _alias(one)) for one in schema.arguments]
    return [*arguments, *((str(one.type), _alias(one)) for one in schema.returns)]


def _alias(one: Any) -> tuple[frozenset[str], bool] | None:
    info = one.alias_info
    return None if info is None else (frozenset(info.before_set), info.is_write)


def _computation(qualified: str, schema: Any, program: Program) -> Callable[..., Any]:
    """Return a function that runs the definition of an operator."""
    names = [argument.name for argument in schema.arguments]
    defaults = {one.name: one.default_value for one in schema.arguments if one.has_default_value()}
    count = len(schema.returns)

    def compute(*args: Any, **kwargs: Any) -> Any:
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        try:
            results = program.run(given, TensorBuilder())
        except ExpressionError as error:
            raise RuntimeError(f"{qualified}: {error}") from error
        return results[0] if count == 1 else tuple(results)

    return compute


def _made(
    namespace: str,
    base: str,
    qualified: str,
    meaning: str,
    definition: OperatorDefinition,
    program: Program,
    place: SourceText,
    scope: Scope,
) -> Operator | None:
    if definition.registered_by is not None:
        return _handle(qualified, meaning, definition, program)
    library = torch.library.Library(namespace, "FRAGMENT")
    try:
        library.define(f"{base}{definition.schema_}", tags=(torch.Tag.pt2_compliant_tag,))
    except RuntimeError as error:
        message = str(error).strip().splitlines()[0]
        scope.complain(place, "EK230", f"torch does not take this schema: {message}", None)
        return None
    op = getattr(getattr(torch.ops, namespace), base).default
    compute = _computation(qualified, op._schema, program)
    library.impl(base, compute, "CompositeExplicitAutograd")
    library.impl(base, compute, "Meta")
    if definition.out_variant:
        _define_out_variant(library, base, definition, op, compute)
    _KEPT[qualified] = (meaning, op, program, library)
    return op


def _handle(qualified: str, meaning: str, definition: OperatorDefinition, program: Program) -> Operator:
    """Return an operator that torch does not know, so that the package that registers it can be imported later."""
    found = defined_operator(qualified)
    if found is None:
        schema = f"{qualified}{definition.schema_}"
        parsed = parse_schema(schema)
        compute = _computation(qualified, parsed, program)
        has_out = definition.out_variant and all(isinstance(one.type, TensorType) for one in parsed.returns)
        written = f"{qualified}.out{_out_schema(definition, len(parsed.returns))}" if has_out else None
        found = DefinedOperator(schema, compute, out_schema=written)
        define_handle(found)
    _KEPT[qualified] = (meaning, found, program, None)
    return found


def _define_out_variant(
    library: torch.library.Library, base: str, definition: OperatorDefinition, op: Operator, compute: Any
) -> None:
    returns = op._schema.returns
    if not all(isinstance(one.type, TensorType) for one in returns):
        return
    outs = _outs(len(returns))
    library.define(f"{base}.out{_out_schema(definition, len(returns))}")

    def write(*args: Any, **kwargs: Any) -> Any:
        targets = [kwargs.pop(out) for out in outs]
        values: Sequence[Any] = (compute(*args, **kwargs),) if len(outs) == 1 else compute(*args, **kwargs)
        for target, value in zip(targets, values, strict=True):
            target.resize_(value.shape).copy_(value)
        return targets[0] if len(outs) == 1 else tuple(targets)

    library.impl(f"{base}.out", write, "CompositeExplicitAutograd")


def _outs(count: int) -> list[str]:
    return ["out"] if count == 1 else [f"out{index}" for index in range(count)]


def _out_schema(definition: OperatorDefinition, count: int) -> str:
    """Return arguments and results of an out variant.

    Args:
        definition: Of the operator.
        count: How many tensors it returns.
    """
    head, _, _ = definition.schema_.strip().partition("->")
    inside = head.strip()[1:-1].strip()
    letters = [chr(ord("a") + index) for index in range(count)]
    outs = _outs(count)
    written = ", ".join(f"Tensor({letter}!) {out}" for letter, out in zip(letters, outs, strict=True))
    star = "" if re.search(r"(^|,)\s*\*\s*(,|$)", inside) else "*, "
    arguments = f"{inside}, {star}{written}" if inside else f"{star}{written}"
    results = ", ".join(f"Tensor({letter}!)" for letter in letters)
    results = results if count == 1 else f"({results})"
    return f"({arguments}) -> {results}"


# Operators that installed distributions offer

OPERATORS = "exirkit.operators"


@cache
def operators_offered(namespace: str) -> Mapping[str, Operator]:
    """Return the operators of a namespace that a distribution offers, by name; empty if none does.

    The entry point is named like the namespace and leads to a mapping from names, `acme.gelu`, to definitions: objects
    or what YAML would say of them.

    Raises:
        UsageError: The plug-in cannot be loaded; EK233, it is not a mapping.
        ModelError: Its definitions are wrong.
    """
    if namespace not in find_plugins(OPERATORS):
        return {}
    offered = load_plugin(OPERATORS, namespace)
    if not isinstance(offered, Mapping):
        kind = type(offered).__name__
        message = f"{OPERATORS} {namespace!r} is a {kind}, not a mapping of names to definitions"
        raise UsageError(Diagnostic(code="EK233", message=message))
    table = OperatorTable()
    for name, given in offered.items():
        _define(str(name), given, f"<{OPERATORS} {namespace}>", table)
    return dict(table.defined)


def _define(name: str, given: Any, file: str, table: OperatorTable) -> None:
    scope = Scope(table)
    try:
        definition = given if isinstance(given, OperatorDefinition) else OperatorDefinition.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        message = f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise ModelError(SourceText(name, file=file).diagnostic("EK202", message)) from error
    text, schema = (SourceText(one, file=file) for one in (definition.define, definition.schema_))
    made = define_operator(name, definition, text, schema, scope)
    if made is None:
        raise ModelError(scope.found)
    table.defined[name] = made
