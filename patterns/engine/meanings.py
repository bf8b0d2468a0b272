"""Programs whose attributes are carried out: every call computes what its attributes mean."""

from __future__ import annotations

from collections.abc import Iterable

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import ATTRIBUTE_KEYS, GraphEditor, copy_program
from exirkit.patterns.engine.application import GraphBuilder, dialect_of
from exirkit.patterns.operators.in_place import calls_by_target
from exirkit.patterns.syntax.attributes import RESULT, Attribute


def with_meanings(program: ExportedProgram, attributes: Iterable[Attribute]) -> ExportedProgram:
    """Return a copy of a program in which operators do what attributes of calls mean, so that it can be run.

    An attribute of an input says what has been done to it already, and stays.

    Args:
        program: A program, for example one that rules with attributes have rewritten.
        attributes: Those that are carried out; `load_book(...).attributes.values()` are those of a book.
    """
    editor = GraphEditor(copy_program(program))
    wrap, is_edge = dialect_of(calls_by_target(editor.graph))
    by_key = {one.key: one for one in attributes if one.meaning is not None}
    for node in list(editor.graph.nodes):
        held = [by_key[key] for key in by_key if key in node.meta] if node.op == "call_function" else []
        if held:
            with editor.transaction("meanings of attributes"):
                for attribute in held:
                    _carry_out(editor, node, attribute, wrap, lifts_numbers=is_edge)
    return editor.program


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
