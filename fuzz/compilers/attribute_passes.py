"""Attributes of calls around rules under test: put where a rule asks for them, carried out where rules leave them."""

from __future__ import annotations

from collections.abc import Sequence

from exirkit.ir import GraphEditor
from exirkit.passes import Pass
from exirkit.patterns import Attribute, CompiledRule, attributed_terms, carry_out, put_attributes


class PutAttributes(Pass):
    """Give calls the attributes that patterns ask for, where their meaning is what follows.

    Args:
        attributes: Those that calls get.
    """

    name = "put-attributes"

    def __init__(self, attributes: Sequence[Attribute]) -> None:
        self.attributes = attributes

    def edit(self, editor: GraphEditor) -> None:
        """Put them."""
        put_attributes(editor, self.attributes)


class CarryOutAttributes(Pass):
    """Let calls compute what their attributes mean, as the backend would for which rules write them.

    Args:
        attributes: Those that rules write or keep.
    """

    name = "carry-out-attributes"

    def __init__(self, attributes: Sequence[Attribute]) -> None:
        self.attributes = attributes

    def edit(self, editor: GraphEditor) -> None:
        """Carry them out."""
        carry_out(editor, self.attributes)


def attributes_of(rules: Sequence[CompiledRule]) -> list[Attribute]:
    """Return the attributes with a meaning that rules match, write or keep, each once."""
    used = {(name, rule.attributes[name].key): rule.attributes[name] for rule in rules for name in rule.uses_attributes}
    return [one for one in used.values() if one.meaning is not None]


def asked_attributes(rules: Sequence[CompiledRule]) -> list[Attribute]:
    """Return the attributes that patterns ask for and no rule writes: nothing gives calls these."""
    written = {rule.attributes[name].key for rule in rules for case in rule.cases for name in case.replace.writes}
    asked = {one.attribute.key: one.attribute for rule in rules for one in attributed_terms(rule.pattern.terms)}
    return [one for key, one in asked.items() if key not in written and one.meaning is not None]
