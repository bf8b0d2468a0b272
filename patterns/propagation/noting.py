"""What an analysis knows, noted on calls as an attribute: for backends that read it there, and for rules."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import ATTRIBUTE_KEYS, Diagnostic, GraphEditor, ModelError, YamlSource
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import ExpressionError

from .compilation import DeclarationCompiler, Expression, is_covered_kind, is_plain
from .draws import SIZES
from .fixpoint import InferredValues
from .inference import Answers, Inference
from .model import NoteModel

_TENSORS = 60


@dataclass
class Notes:
    """What is noted on calls, whose expressions are compiled.

    Attributes:
        model: As it was written.
        source: The file and its places.
        uses: The analysis that knows it.
        of: Which calls.
        fields: Fields of the attribute.
        found: What is wrong.
    """

    model: NoteModel
    source: YamlSource
    uses: Inference | None = None
    of: Expression | None = None
    fields: dict[str, Expression] = field(default_factory=dict)
    found: list[Diagnostic] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Entry of `node.meta`."""
        return self.model.write.key or self.model.write.attribute

    def require_valid(self) -> Notes:
        """Return the notes themselves.

        Raises:
            ModelError: All that is wrong.
        """
        if self.found:
            raise ModelError(self.found)
        return self

    def noted(self, x: Any, known: Mapping[int, Any]) -> dict[str, Any] | None:
        """Return the fields for a tensor, or a node; None where one has no value, or the condition does not hold."""
        names = {"x": x, FACTS: Answers(known)}
        if self.of is not None and not self.of.holds(names):
            return None
        try:
            made = {name: one.value(names) for name, one in self.fields.items()}
        except (ExpressionError, TypeError):
            return None
        return {name: list(one) if isinstance(one, tuple) else one for name, one in made.items()}


def compile_notes(model: NoteModel, source: YamlSource) -> Notes:
    """Compile what is to be noted; what is wrong beyond its form is in `found`."""
    made = Notes(model, source)
    compiler = DeclarationCompiler(source, made.found)
    if model.of is not None:
        made.of = compiler.expression(("of",), model.of, {"x"})
    for name, text in model.write.fields.items():
        compiled = compiler.expression(("write", "fields", name), text, {"x"})
        if compiled is not None:
            made.fields[name] = compiled
    compiler.in_order()
    return made


def check_notes(made: Notes, seed: int) -> list[Diagnostic]:
    """Return what is wrong with the fields: EK259, one is not plain data; EK293, none has a value for any tensor.

    What is known of a tensor is tried where the analysis says it, not here.
    """
    assert made.uses is not None
    rng = random.Random(f"{seed}:{made.model.id}")
    domain, is_noted = made.uses.domain, False
    for _ in range(_TENSORS):
        shape = [rng.choice(SIZES) for _ in range(rng.randint(1, 4))]
        tensor = domain.drawn(torch.rand(shape), rng)
        fields = made.noted(tensor, {id(tensor): domain.of_tensor(tensor)})
        for name, value in (fields or {}).items():
            is_noted = True
            if not is_plain(value):
                text = made.fields[name].text
                message = f"field {name} is a {type(value).__name__}, which is not plain data"
                hint = "name its parts, such as grid(x).scale"
                return [text.diagnostic("EK259", message, length=len(text.value), hint=hint)]
    if is_noted:
        return []
    message = f"no tensor was found of which {made.uses.model.id} knows what all fields ask"
    return [made.source.key(("write",)).diagnostic("EK293", message)]


def write_notes(editor: GraphEditor, made: Notes, values: InferredValues) -> int:
    """Note what is known on the calls of a graph; return on how many.

    Args:
        editor: Editor of the graph, inside a transaction.
        made: What is to be noted.
        values: What is known of the graph.
    """
    count = 0
    for node in list(editor.graph.nodes):
        if not _is_call(node):
            continue
        fields = made.noted(node, {id(node): values.of(node)})
        if fields is None or node.meta.get(made.key) == fields:
            continue
        write_attribute(editor, node, made.key, fields)
        count += 1
    return count


def write_attribute(editor: GraphEditor, node: Node, key: str, fields: dict[str, Any]) -> None:
    """Give a node an attribute, in place of one with that key which it has.

    Args:
        editor: Editor of the graph, inside a transaction.
        node: A call, or an input.
        key: Entry of `node.meta`.
        fields: Its fields.
    """
    editor.set_meta(node, key, fields)
    keys = node.meta.get(ATTRIBUTE_KEYS, ())
    if key not in keys:
        editor.set_meta(node, ATTRIBUTE_KEYS, (*keys, key))


def remove_attribute(editor: GraphEditor, node: Node, key: str) -> None:
    """Take an attribute from a node.

    Args:
        editor: Editor of the graph, inside a transaction.
        node: A call, or an input, that has it.
        key: Entry of `node.meta`.
    """
    editor.remove_meta(node, key)
    keys = node.meta.get(ATTRIBUTE_KEYS, ())
    if key in keys:
        editor.set_meta(node, ATTRIBUTE_KEYS, tuple(one for one in keys if one != key))


def _is_call(node: Node) -> bool:
    return node.op == "call_function" and is_covered_kind(node.meta.get("val"))
