"""Other calls that mean what a rule writes: `aten.permute` in an exported program is `aten.permute_copy` in Edge.

A form reads a call of one operator as a call of another one: it gives the arguments that the other operator would have
been called with to compute the same value. Each form is tried against torch in
tests/patterns/matching/test_operator_forms.py.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch.fx import Node

from exirkit.patterns.operators.arguments import Arguments
from exirkit.patterns.operators.table import OperatorTable, name_of, traits_of
from exirkit.patterns.syntax.terms import Operator

from .composites import Composite, FoundComposites, composites_of
from .layers import matrix_forms, norm_forms, pooling_forms
from .movement import moving_forms, splitting_forms, swapped
from .numbers import choice_forms, further_limits, limit_forms, number_forms
from .readers import FormReader, Operand, Reader, Screen, Values, same


@dataclass(frozen=True)
class Reading:
    """A call read as one of another operator.

    Attributes:
        arguments: The arguments that the other operator would have.
        inner: Further calls that it takes the place of.
    """

    arguments: Arguments
    inner: tuple[Node, ...] = ()


class Forms:
    """The other forms of one written operator.

    Attributes:
        op: The operator as written.
        readers: By operator of the call that is met.
        composites: Ways in which the operator is decomposed.
        operators: Operators of the calls that may be met.
        composed: Those that may be the last one of its parts.
        variants: Those that take the same arguments by the same names.
        same: The operator and its variants.
        others: The other operators that may be met.
        met: Identities of `operators`.
        alike: Identities of the variants whose calls have the same view of their arguments.
        names: Arguments of the operator.
    """

    def __init__(self, op: Operator, readers: Mapping[Operator, Reader], composites: Sequence[Composite] = ()) -> None:
        self.op = op
        self.readers = dict(readers)
        self.composites = tuple(composites)
        self.composed = frozenset().union(*(one.met for one in self.composites))
        self.operators = self.composed | self.readers.keys()
        self.variants = frozenset(met for met, reader in self.readers.items() if reader is same)
        self.same = self.variants | {op}
        self.others = self.operators - self.same
        # By identity, since torch computes the hash of an operator in Python.
        self.met = frozenset(map(id, self.operators))
        self.alike = frozenset(id(met) for met in self.variants if _counts_alike(met, op))
        self._composed = frozenset(map(id, self.composed))
        self._by_identity = {id(key): reader for key, reader in self.readers.items()}
        self.names = tuple(argument.name for argument in op._schema.arguments)

    def screen(self, met: Operator) -> Screen | None:
        """Return a quick look that states which calls of an operator its reader may read; None if all."""
        reader = self.readers[met]
        return reader.screen if isinstance(reader, FormReader) else None

    @property
    def chosen_from(self) -> frozenset[Operator]:
        """Operators of calls of whose results one is read as a call of the written operator."""
        named = (one.of for one in self.readers.values() if isinstance(one, FormReader))
        return frozenset(_find(name) for name in named if name is not None)

    def without(self, made: Collection[Operator]) -> Forms | None:
        """Return the forms that a rule may meet whose replacements call certain operators; None if there are none.

        A rule that leads from one form of an operator to another is about the form, and one that decomposes an
        operator must not find it again in its own results.
        """
        readers = {} if (self.readers.keys() | self.chosen_from) - {self.op} & set(made) else self.readers
        parts = [one for one in self.composites if not all(_may_be_met(part, frozenset(made)) for part in one.parts)]
        if len(readers) == len(self.readers) and len(parts) == len(self.composites):
            return self
        return Forms(self.op, readers, parts) if readers or parts else None

    def kept(self, met: Operator) -> frozenset[str]:
        """Return the arguments of the same names that the reader of calls of an operator takes over as they are."""
        reader = self.readers[met]
        return reader.keeps if isinstance(reader, FormReader) else frozenset()

    def operands(self, met: Operator) -> Mapping[str, Operand]:
        """Return where the reader of calls of an operator finds other arguments, by name."""
        reader = self.readers[met]
        return reader.operands if isinstance(reader, FormReader) else {}

    def readings(self, node: Node, target: Operator, composites: FoundComposites | None = None) -> Iterator[Reading]:
        """Yield how a call can be read as one of the written operator.

        Args:
            node: The call.
            target: Its operator, without the handle of a dialect.
            composites: What is recognized in its parts in the program; without it, operators are not.
        """
        yield from self.as_read(node, target, composites)
        yield from self.of_parts(node, target, composites)

    def as_read(self, node: Node, target: Operator, composites: FoundComposites | None) -> Iterator[Reading]:
        """Yield how a reader reads a call as one of the operator."""
        reader = self._by_identity.get(id(target))
        if reader is not None:
            for values, inner in reader(node) if composites is None else composites.form_of(node, reader):
                yield Reading(Arguments(values, self._ranks(values)), inner)

    def of_parts(self, node: Node, target: Operator, composites: FoundComposites | None) -> Iterator[Reading]:
        """Yield how a call can be read as the last one of the parts of the operator."""
        if composites is not None and id(target) in self._composed:
            for one in composites.at(node, self.op):
                if one.way in self.composites:
                    yield Reading(Arguments(one.values, self._ranks(one.values)), one.inner)

    def _ranks(self, values: Values) -> dict[str, int]:
        traits = traits_of(self.op)
        if not traits.dims:
            return {}
        first = values.get(self.names[0])
        first = first[0] if isinstance(first, list | tuple) and first else first
        recorded = first.meta.get("val") if isinstance(first, Node) else None
        if not isinstance(recorded, torch.Tensor):
            return {}
        return dict.fromkeys(traits.dims, recorded.dim() + traits.new_dims)


def _counts_alike(one: Operator, other: Operator) -> bool:
    """Whether two operators count the same dims."""
    traits, others = traits_of(one), traits_of(other)
    return (traits.dims, traits.new_dims) == (others.dims, others.new_dims)


def _may_be_met(op: Operator, made: frozenset[Operator], above: frozenset[Operator] = frozenset()) -> bool:
    """Return whether an operator may be read from calls of some operators: of a form of it, or of its parts."""
    forms = None if op in above else forms_of(op)
    if op in made or forms is None:
        return op in made
    return bool(forms.readers.keys() & made) or any(
        all(_may_be_met(part, made, above | {op}) for part in one.parts) for one in forms.composites
    )


@cache
def forms_of(op: Operator) -> Forms | None:
    """Return the other forms of an operator, or None if it has none."""
    if not hasattr(op, "_schema"):
        return None
    name = name_of(op)
    readers: dict[Operator, Reader] = {}
    for other in _variants(name):
        readers[other] = same
    for met, read in READERS.get(name, {}).items():
        readers[_find(met)] = read
    readers.pop(op, None)
    # A call of the operator itself may be read in a second way.
    if name in _SECOND_WAYS:
        readers[op] = _SECOND_WAYS[name]
    composites = composites_of(op, name)
    return Forms(op, readers, composites) if readers or composites else None


@cache
def copying(op: Operator) -> Operator:
    """Return the operator that copies what an operator views, which is what Edge has instead."""
    schema = getattr(op, "_schema", None)
    if schema is None or schema.is_mutable or not schema.name.startswith("aten::"):
        return op
    if all(one.alias_info is None for one in schema.returns):
        return op
    return next((other for other in _variants(name_of(op)) if "_copy" in other._schema.name), op)


def _find(name: str) -> Operator:
    return operator.getitem if name == "getitem" else OperatorTable().find(name)


def _variants(name: str) -> Iterator[Operator]:
    """Yield the operators that differ in name only: the one that copies what the other one views."""
    namespace, base, overload = name.split(".")
    if namespace != "aten":
        return
    others = [base.removesuffix("_copy")] if base.endswith("_copy") else [f"{base}_copy"]
    packets = [getattr(torch.ops.aten, other, None) for other in others]
    own = getattr(getattr(torch.ops.aten, base), overload)
    for packet in packets:
        other = getattr(packet, overload, None) if packet is not None else None
        if other is not None and _has_names_of(other, own):
            yield other
    for family in _FAMILIES:
        if name in family:
            yield from (_find(other) for other in family if other != name)


def _has_names_of(one: Operator, other: Operator) -> bool:
    """Whether two operators have the same arguments, but for those that make no difference."""
    left, right = ({each.name for each in op._schema.arguments} - {"implicit"} for op in (one, other))
    return left == right


_FAMILIES = (("aten.view.default", "aten.view_copy.default", "aten._unsafe_view.default"),)


def _readers() -> dict[str, dict[str, Reader]]:
    """Return the readers: by the operator that is written, then by the operator that is met."""
    parts = (
        moving_forms(), splitting_forms(), number_forms(), limit_forms(), choice_forms(), norm_forms(), pooling_forms(),
        matrix_forms(),
    )  # fmt: skip
    return {written: readers for part in parts for written, readers in part.items()}


READERS: dict[str, dict[str, Reader]] = _readers()
_SECOND_WAYS: dict[str, Reader] = {
    "aten.transpose.int": FormReader(swapped, keeps=frozenset({"self"})),
    "aten.transpose_copy.int": FormReader(swapped, keeps=frozenset({"self"})),
    "aten.clamp.default": further_limits,
}
