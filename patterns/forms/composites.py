"""Operators that lowering decomposes, recognized in their parts: `aten.silu` in a product with a sigmoid.

Each definition is a pattern over the arguments of the operator. It is matched with the forms of the operators in it, so
that one text covers exported programs, Edge, and the official exporter's Edge. That every reading computes the same is
tried in tests/patterns/matching/test_composites.py.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from exirkit.ir import OpOverload, SourceText
from exirkit.patterns.operators.table import OperatorTable
from exirkit.patterns.syntax.terms import Call, Operator, Term, walk

from .readers import Found, Reader, Screen, Values, recorded

if TYPE_CHECKING:
    from exirkit.patterns.functions.graph import GraphFacts
    from exirkit.patterns.matching.predicate_tree import PredicateTree

    from .catalogue import Forms

Names = Mapping[str, Any]
Derive = Callable[[Names], Iterable[Names]]


@dataclass(frozen=True)
class Composite:
    """One way in which an operator is written in its parts.

    Attributes:
        operator: Name of the operator.
        text: The parts, as a pattern whose variables have the names of the operator's arguments.
        types: Types of the variables; any tensor where they are not given.
        derive: Yields the arguments from what the variables are bound to; nothing where the parts are not the operator.
            Arguments that it does not give have their defaults.
    """

    operator: str
    text: str
    types: tuple[tuple[str, str], ...] = ()
    derive: Derive | None = None

    @cached_property
    def op(self) -> Operator:
        """The operator."""
        return OperatorTable().find(self.operator)

    @cached_property
    def root(self) -> Term:
        """Term of the last one of the parts."""
        root: Term = _parsed(self)[0].roots[0]
        return root

    @cached_property
    def parts(self) -> frozenset[Operator]:
        """Operators of the parts, as they are written."""
        return frozenset(term.op for term in walk(self.root) if isinstance(term, Call))

    @cached_property
    def forms(self) -> Mapping[Operator, Forms]:
        """Other forms of the operators of the parts."""
        from .catalogue import forms_of

        return {op: forms for op in self.parts if (forms := forms_of(op)) is not None}

    @cached_property
    def met(self) -> frozenset[Operator]:
        """Operators that the last one of the parts may have."""
        from exirkit.patterns.matching.matcher import anchors

        return anchors(self.root, _parsed(self)[1], self.forms)

    @cached_property
    def match(self) -> Callable[[Node, Any], bool]:
        """Matches the parts from their last call."""
        from exirkit.patterns.matching.matcher import PatternCompiler

        pattern, types = _parsed(self)
        return PatternCompiler(pattern, types, (), self.forms).compile()

    def read(self, node: Node, found: FoundComposites) -> Found:
        """Read a call as one of the operator.

        Args:
            node: The last call of the parts.
            found: What else is recognized in the program.
        """
        from exirkit.patterns.matching.state import State

        state = State(found.facts, {}, sees_through=found.sees_through, composites=found)
        if not self.match(node, state):
            return
        names = {name: state.names.get(name) for name, _ in _variables(self)}
        inner = tuple(one for one in dict.fromkeys(state.nodes) if one is not node)
        schema = self.op._schema.arguments
        for given in (names,) if self.derive is None else self.derive(names):
            yield {one.name: given.get(one.name, one.default_value) for one in schema}, inner


class FoundComposites:
    """The operators that are recognized in their parts in one program; what was found is kept until that changes.

    Args:
        facts: What is known of constants.
        sees_through: Whether calls that give back what they were given may stand between parts.
        knows_stored: Whether the program says which of its inputs are stored tensors; a graph module does not.
    """

    def __init__(self, facts: GraphFacts, *, sees_through: bool, knows_stored: bool = True) -> None:
        self.facts = facts
        self.sees_through = sees_through
        self.knows_stored = knows_stored
        self._possible: dict[Node, Mapping[int, Sequence[Composite]]] = {}
        self._read: dict[tuple[Node, int], tuple[CompositeReading, ...]] = {}
        self._forms: dict[tuple[Node, int], tuple[tuple[Values, tuple[Node, ...]], ...]] = {}

    def forget(self) -> None:
        """Take the program for another one."""
        self._possible.clear()
        self._read.clear()
        self._forms.clear()

    def form_of(self, node: Node, reader: Reader) -> Sequence[tuple[Values, tuple[Node, ...]]]:
        """Return what a reader finds at a call; several rules ask the same one."""
        key = (node, id(reader))
        known = self._forms.get(key)
        if known is None:
            known = self._forms[key] = tuple(reader(node))
        return known

    def at(self, node: Node, op: Operator) -> Sequence[CompositeReading]:
        """Return how a call can be read as one of an operator, of which it is the last one of the parts."""
        ways = self.possible(node).get(id(op))
        if ways is None:
            return ()
        key = (node, id(op))
        known = self._read.get(key)
        if known is None:
            known = tuple(
                CompositeReading(way, values, inner) for way in ways for values, inner in way.read(node, self)
            )
            self._read[key] = known
        return known

    def possible(self, node: Node, passed: dict[Screen, bool] | None = None) -> Mapping[int, Sequence[Composite]]:
        """Return the definitions whose parts are there as far as operators go, by the identity of the operator.

        Args:
            node: The last call of the parts.
            passed: Results of quick checks of it so far.
        """
        if node not in self._possible:
            self._possible[node] = self._possible_at(node, passed)
        return self._possible[node]

    def _possible_at(self, node: Node, passed: dict[Screen, bool] | None) -> Mapping[int, Sequence[Composite]]:
        ordered, tree = _index()
        root = tree.root_of(node.target)
        possible: dict[int, list[Composite]] = {}
        for rank in () if root is None else tree.candidates(node, root, self, passed):
            possible.setdefault(id(ordered[rank].op), []).append(ordered[rank])
        return possible


@dataclass(frozen=True, slots=True)
class CompositeReading:
    """A call read as one of an operator.

    Attributes:
        way: The definition.
        values: Arguments of the operator.
        inner: Further calls that are read.
    """

    way: Composite
    values: dict[str, Any]
    inner: tuple[Node, ...]


@cache
def _index() -> tuple[tuple[Composite, ...], PredicateTree]:
    """Return all definitions, and the tree that states which of them can match at a call."""
    from exirkit.patterns.matching.pattern_questions import Anchored
    from exirkit.patterns.matching.predicate_tree import PredicateTree

    ordered = tuple(one for ones in composites().values() for one in ones)
    return ordered, PredicateTree([Anchored(one.met, one.root, one.forms or {}) for one in ordered])


def _variables(composite: Composite) -> tuple[tuple[str, str], ...]:
    """Return the variables of a definition and their types."""
    arguments = {argument.name: "any" for argument in composite.op._schema.arguments}
    types = {**arguments, **dict(composite.types)}
    used = {one.id for one in ast.walk(ast.parse(composite.text)) if isinstance(one, ast.Name)}
    return tuple((name, written) for name, written in types.items() if name in used)


@cache
def _parsed(composite: Composite) -> Any:
    from exirkit.patterns.matching.compiled_rule import variables_of
    from exirkit.patterns.syntax.pattern_parser import PatternParser
    from exirkit.patterns.syntax.programs import Scope

    whole = SourceText(composite.text, file=f"<parts of {composite.operator}>")
    written = dict(_variables(composite))
    texts = {name: SourceText(text, file=whole.file) for name, text in written.items()}
    scope = Scope(OperatorTable())
    types, symbols = variables_of(written, texts, whole, scope)
    scope = Scope(scope.table, types, symbols, scope.macros, scope.found)
    pattern = PatternParser(whole, scope).parse()
    assert pattern is not None, [one.render() for one in scope.found]
    return pattern, types


# Definitions


_FLOAT = (("self", "f* [*S]"),)
_Types = tuple[tuple[str, str], ...]


def _pointwise(operator: str, *parts: str, types: _Types = (), **fixed: Any) -> Iterator[Composite]:
    derive = _with(tuple(fixed.items())) if fixed else None
    for text in parts:
        yield Composite(operator, f"return {text}", (*_FLOAT, *types), derive)


def _with(fixed: tuple[tuple[str, Any], ...]) -> Derive:
    return lambda names: ({**names, **dict(fixed)},)


_LINE = "aten.clamp.default(aten.add.Tensor(self, 3), 0, 6)"
_SIXTH: _Types = (("sixth", "scalar in [0.1666, 0.16668]"),)


def _activations() -> Iterator[Composite]:
    yield from _pointwise("aten.silu.default", "aten.mul.Tensor(self, aten.sigmoid.default(self))")
    yield from _pointwise("aten.hardsigmoid.default", f"aten.div.Tensor({_LINE}, 6)")
    yield from _pointwise("aten.hardsigmoid.default", f"aten.mul.Tensor({_LINE}, sixth)", types=_SIXTH)
    yield from _pointwise(
        "aten.hardswish.default",
        "aten.mul.Tensor(self, aten.hardsigmoid.default(self))",
        f"aten.div.Tensor(aten.mul.Tensor(self, {_LINE}), 6)",
    )
    yield from _pointwise(
        "aten.hardswish.default", f"aten.mul.Tensor(aten.mul.Tensor(self, {_LINE}), sixth)", types=_SIXTH
    )
    yield from _pointwise("aten.mish.default", "aten.mul.Tensor(self, aten.tanh.default(aten.softplus.default(self)))")
    positive = "aten.where.self(aten.gt.Scalar(self, 0), self, {})"
    yield from _pointwise(
        "aten.leaky_relu.default",
        positive.format("aten.mul.Tensor(self, negative_slope)"),
        types=(("negative_slope", "scalar"),),
    )
    yield from _pointwise("aten.celu.default", positive.format("aten.expm1.default(self)"))
    yield from _pointwise(
        "aten.log_sigmoid.default",
        "aten.sub.Tensor(aten.minimum.default(self, 0), "
        "aten.log1p.default(aten.exp.default(aten.neg.default(aten.abs.default(self)))))",
    )
    yield from _pointwise(
        "aten.hardshrink.default",
        "aten.where.self(aten.le.Scalar(aten.abs.default(self), lambd), 0, self)",
        types=(("lambd", "scalar"),),
    )
    yield Composite(
        "aten.prelu.default",
        f"return {positive.format('aten.mul.Tensor(aten.view_copy.default(weight, sizes), self)')}",
        (*_FLOAT, ("weight", "f* [C]"), ("sizes", "shape")),
        _with_slopes,
    )


def _with_slopes(names: Names) -> Iterator[Names]:
    """Yield the arguments where there is one slope for each channel, or one for all."""
    value, slopes = recorded(names["self"]), list(names["sizes"])
    if value is not None and slopes == [1, *slopes[1:2], *[1] * (len(slopes) - 2)] and len(slopes) == value.dim():
        yield names


def _softplus() -> Iterator[Composite]:
    yield from _pointwise(
        "aten.softplus.default",
        "aten.where.self(aten.gt.Scalar(self, threshold), self, aten.log1p.default(aten.exp.default(self)))",
        types=(("threshold", "scalar"),),
    )
    yield Composite(
        "aten.softplus.default",
        "scaled = aten.mul.Tensor(self, beta)\n"
        "soft = aten.div.Tensor(aten.log1p.default(aten.exp.default(scaled)), beta)\n"
        "return aten.where.self(aten.gt.Scalar(scaled, threshold), self, soft)",
        (*_FLOAT, ("beta", "scalar"), ("threshold", "scalar")),
    )


def _halves(factor: str) -> tuple[str, ...]:
    """Return the ways to multiply a value by a half and by a factor."""
    return (
        f"aten.mul.Tensor(aten.mul.Tensor(self, 0.5), {factor})",
        f"aten.mul.Tensor(aten.mul.Tensor(self, {factor}), 0.5)",
        f"aten.mul.Tensor(self, aten.mul.Tensor({factor}, 0.5))",
        f"aten.div.Tensor(aten.mul.Tensor(self, {factor}), 2)",
    )


def _close_to(name: str, value: float) -> tuple[str, str]:
    """Return a variable for a number that models write with more or fewer digits."""
    return name, f"scalar in [{value - 1e-6!r}, {value + 1e-6!r}]"


def _gelus() -> Iterator[Composite]:
    root = "aten.div.Tensor(self, root)", (_close_to("root", math.sqrt(2)),)
    for inner, types in (("aten.mul.Tensor(self, root)", (_close_to("root", math.sqrt(0.5)),)), root):
        factor = f"aten.add.Tensor(aten.erf.default({inner}), 1)"
        yield from _pointwise("aten.gelu.default", *_halves(factor), types=types, approximate="none")
    cubed = "aten.mul.Tensor(aten.mul.Tensor({}, self), {})"
    cubes = (
        "aten.mul.Tensor(aten.pow.Tensor_Scalar(self, 3), 0.044715)",
        f"aten.mul.Tensor({cubed.format('self', 'self')}, 0.044715)",
        cubed.format("aten.mul.Tensor(self, 0.044715)", "self"),
    )
    inners = [f"aten.mul.Tensor(aten.add.Tensor(self, {one}), root)" for one in cubes]
    # The square root may be factored out first.
    square = "aten.add.Tensor(aten.mul.Tensor(aten.mul.Tensor(self, 0.044715), self), 1)"
    inners.append(f"aten.mul.Tensor(aten.mul.Tensor(self, root), {square})")
    types = (_close_to("root", math.sqrt(2 / math.pi)),)
    for inner in inners:
        factor = f"aten.add.Tensor(aten.tanh.default({inner}), 1)"
        yield from _pointwise("aten.gelu.default", *_halves(factor), types=types, approximate="tanh")


def _of_parts() -> Iterator[Composite]:
    """Yield operators of several tensors."""
    sums = {
        "aten.addcmul.default": "aten.mul.Tensor(tensor1, tensor2)",
        "aten.addcdiv.default": "aten.div.Tensor(tensor1, tensor2)",
        "aten.baddbmm.default": "aten.bmm.default(batch1, batch2)",
        "aten.addmm.default": "aten.mm.default(mat1, mat2)",
    }
    for operator, part in sums.items():
        yield Composite(operator, f"return aten.add.Tensor(self, {part})")
        if "tensor1" in part:
            scaled = part.replace("tensor1", "aten.mul.Tensor(tensor1, value)")
            yield Composite(operator, f"return aten.add.Tensor(self, {scaled})", (("value", "scalar"),))
    kinds = (("input", "f* [*B, K]"), ("weight", "f* [N, K]"), ("bias", "f* [N]"))
    product = "aten.matmul.default(input, aten.t.default(weight))"
    yield Composite("aten.linear.default", f"return {product}", kinds[:2])
    yield Composite("aten.linear.default", f"return aten.add.Tensor({product}, bias)", kinds)


def _gates() -> Iterator[Composite]:
    types = (*_FLOAT, ("dim", "int"), ("middle", "int >= 0"), ("end", "int >= 0"))
    yield Composite(
        "aten.glu.default",
        "first = aten.slice_copy.Tensor(self, dim, 0, middle, 1)\n"
        "second = aten.slice_copy.Tensor(self, dim, middle, end, 1)\n"
        "return aten.mul.Tensor(first, aten.sigmoid.default(second))",
        types,
        _of_halves,
    )
    yield Composite(
        "aten.glu.default",
        "first, second = aten.split_with_sizes_copy.default(self, [middle, middle], dim)\n"
        "return aten.mul.Tensor(first, aten.sigmoid.default(second))",
        types[:-1],
    )


def _of_halves(names: Names) -> Iterator[Names]:
    """Yield the arguments where the parts are the two halves of a dim."""
    value, dim, middle = recorded(names["self"]), names["dim"], names["middle"]
    if value is None or not -value.dim() <= dim < value.dim():
        return
    size = value.shape[dim]
    if type(size) is int and size == 2 * middle and names["end"] >= size:
        yield names


def _with_normalized_shape(names: Names) -> Iterator[Names]:
    """Yield the arguments with the last size of the input, and without `eps` where it is what that means."""
    value = recorded(names["input"])
    if value is None:
        return
    given = {**names, "normalized_shape": [value.shape[-1]]}
    yield given
    if names["eps"] == torch.finfo(value.dtype).eps:
        yield {**given, "eps": None}


def _norms() -> Iterator[Composite]:
    kinds = (("input", "f* [*B, D]"), ("eps", "float"))
    square = "alt(pow=aten.pow.Tensor_Scalar(input, 2), mul=aten.mul.Tensor(input, input))"
    mean = f"aten.mean.dim({square}, [-1], True)"
    plain = f"aten.mul.Tensor(input, aten.rsqrt.default(aten.add.Tensor({mean}, eps)))"
    weighted = (*kinds, ("weight", "f* [D]"))
    yield Composite("aten.rms_norm.default", f"return {plain}", kinds, _with_normalized_shape)
    yield Composite(
        "aten.rms_norm.default", f"return aten.mul.Tensor({plain}, weight)", weighted, _with_normalized_shape
    )


@cache
def composites() -> Mapping[str, tuple[Composite, ...]]:
    """Return the definitions by the name of the operator."""
    table: dict[str, list[Composite]] = {}
    for part in (_activations(), _softplus(), _gelus(), _of_parts(), _gates(), _norms()):
        for one in part:
            table.setdefault(one.operator, []).append(one)
    return {name: tuple(ones) for name, ones in table.items()}


def composites_of(op: Operator, name: str) -> tuple[Composite, ...]:
    """Return the definitions of an operator."""
    return composites().get(name, ()) if isinstance(op, OpOverload) else ()
