"""Attributes of calls and what they mean: the one turned into the other, so that such programs can be run and made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import ATTRIBUTE_KEYS, GraphEditor, copy_program, underlying
from exirkit.patterns.engine.graph_builder import GraphBuilder, dialect_of
from exirkit.patterns.operators.arguments import canonical_arguments, default_of
from exirkit.patterns.operators.in_place import calls_by_target
from exirkit.patterns.syntax.attributes import RESULT, Attribute, of_kind
from exirkit.patterns.syntax.expressions import ExpressionError


def with_meanings(program: ExportedProgram, attributes: Iterable[Attribute]) -> ExportedProgram:
    """Return a copy of a program in which operators do what attributes of calls mean, so that it can be run.

    An attribute of an input says what has been done to it already, and stays.

    Args:
        program: A program, for example one that rules with attributes have rewritten.
        attributes: Those that are carried out; `load_book(...).attributes.values()` are those of a book.
    """
    editor = GraphEditor(copy_program(program))
    carry_out(editor, attributes)
    return editor.program


def carry_out(editor: GraphEditor, attributes: Iterable[Attribute]) -> None:
    """Replace calls that have attributes by what these mean.

    Args:
        editor: Of the program.
        attributes: Those that are carried out.
    """
    wrap, is_edge = dialect_of(calls_by_target(editor.graph))
    by_key = {one.key: one for one in attributes if one.meaning is not None}
    for node in list(editor.graph.nodes):
        held = [by_key[key] for key in by_key if key in node.meta] if node.op == "call_function" else []
        if held:
            with editor.transaction("meanings of attributes"):
                for attribute in held:
                    _carry_out(editor, node, attribute, wrap, lifts_numbers=is_edge)


def _carry_out(editor: GraphEditor, node: Node, attribute: Attribute, wrap: object, *, lifts_numbers: bool) -> None:
    fields = attribute.read(node)
    if fields is None or attribute.meaning is None:
        return
    builder = GraphBuilder(
        editor, node.next, (node,), wrap=wrap, lifts_numbers=lifts_numbers, name="_meaning_constant", sizes=(node,)
    )
    (result,) = attribute.meaning.run({RESULT: node, **fields}, builder)
    editor.replace(node, builder.node_of(result))
    editor.remove_meta(node, attribute.key)
    editor.remove_meta(node, ATTRIBUTE_KEYS)


def put_attributes(editor: GraphEditor, attributes: Iterable[Attribute]) -> int:
    """Give calls the attributes whose meaning follows them: the other direction of `with_meanings`.

    Only a meaning that is one call can be found in a program, and only where nothing else uses what it is called on.

    Args:
        editor: Of the program.
        attributes: Those that calls get.

    Returns:
        How many calls have got one.
    """
    found = [(attribute, call) for attribute in attributes if (call := _call_of_meaning(attribute)) is not None]
    count = 0
    for node in [one for one in editor.graph.nodes if one.op == "call_function"]:
        for attribute, call in found:
            fields = _fields_at(node, attribute, call) if underlying(node.target) is call.op else None
            before = fields.pop(RESULT, None) if fields is not None else None
            if fields is None or not isinstance(before, Node) or not _may_carry(before, attribute, fields):
                continue
            with editor.transaction(f"attribute {attribute.name}"):
                attribute.write(before, fields, editor.set_meta)
                editor.replace(node, before)
            count += 1
            break
    return count


def _may_carry(node: Node, attribute: Attribute, fields: Mapping[str, Any]) -> bool:
    """Whether a call may have an attribute for what its only user computes; it has one attribute at most."""
    if node.op != "call_function" or len(node.users) > 1 or node.meta.get(ATTRIBUTE_KEYS):
        return False
    read = {name: of_kind(kind, fields[name]) for name, kind in attribute.fields.items()}
    # Limits of integers that are read back as floats would make floats of the integers.
    is_same = all(type(read[name]) is type(value) for name, value in fields.items())
    return is_same or node.meta["val"].dtype.is_floating_point


class _Named:
    """Stands for a field of an attribute, or for the value that has it, while its meaning is read."""

    def __init__(self, name: str) -> None:
        self.name = name


class _OneCall:
    """A builder that notes the only call of a meaning."""

    def __init__(self) -> None:
        self.op: Any = None
        self.arguments: dict[str, Any] = {}

    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the call.

        Raises:
            ExpressionError: It is not the first one.
        """
        if self.op is not None:
            raise ExpressionError("the meaning is more than one call")
        self.op = underlying(op)
        schema = self.op._schema.arguments
        given = dict(zip((one.name for one in schema), args, strict=False)) | kwargs
        self.arguments = {one.name: given.get(one.name, default_of(one)) for one in schema}
        return _Named("")


def _call_of_meaning(attribute: Attribute) -> _OneCall | None:
    if attribute.meaning is None:
        return None
    call = _OneCall()
    try:
        attribute.meaning.run({RESULT: _Named(RESULT), **{name: _Named(name) for name in attribute.fields}}, call)
    except (ExpressionError, TypeError, AttributeError):
        # Fields that are computed with cannot be read back from a call.
        return None
    named = {one.name for one in call.arguments.values() if isinstance(one, _Named)}
    return call if named == {RESULT, *attribute.fields} else None


def _fields_at(node: Node, attribute: Attribute, call: _OneCall) -> dict[str, Any] | None:
    """Return the fields that a call is the meaning of, and under `result` what it is called on."""
    arguments: Mapping[str, Any] = canonical_arguments(node)
    fields: dict[str, Any] = {}
    for name, wanted in call.arguments.items():
        value = arguments.get(name)
        if not isinstance(wanted, _Named):
            if wanted != value:
                return None
        elif (wanted.name != RESULT and isinstance(value, Node)) or fields.setdefault(wanted.name, value) is not value:
            return None
    return fields
