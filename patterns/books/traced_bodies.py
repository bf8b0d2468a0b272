"""Control flow in traces: what stands for bodies among examples, and calls with bodies as rules have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.fx import Node

from exirkit.ir import Diagnostic, UsageError, control_flow_call, results_of_graph, underlying
from exirkit.patterns.operators.arguments import behind
from exirkit.patterns.operators.control_flow import CONTROL_FLOW, ControlFlow
from exirkit.patterns.types.bodies import BodyVariable, OperandsVariable
from exirkit.patterns.types.parser import parse_variable
from exirkit.patterns.types.scanner import VariableSyntaxError

if TYPE_CHECKING:
    from exirkit.patterns.books.traces import Writer

_NAMESPACE = "exirkit_traced"
_SIZES: tuple[tuple[int, ...], ...] = ((2,), (3, 2))


@dataclass(frozen=True)
class BodyExample:
    """An example of what is neither a tensor nor a number: a body, the condition of a loop, or any number of operands.

    The traced functions get a function that they may call in bodies, or a list of tensors.

    Attributes:
        type: Its type in rules: `body`, `body like x`, `condition` or `operands`.
    """

    type: str


@dataclass(frozen=True)
class Spread:
    """One of several values that a rule writes together.

    Attributes:
        text: What stands for all of them behind `*`.
        index: Which one.
        count: How many the trace has.
    """

    text: str
    index: int
    count: int


def called_with(examples: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the functions of a trace are called with.

    Raises:
        UsageError: EK256, an example of a body is none, or is like something that is not there.
    """
    kinds = {name: _parsed(name, one.type) for name, one in examples.items() if isinstance(one, BodyExample)}
    given: dict[str, Any] = {}
    for name, kind in kinds.items():
        if isinstance(kind, OperandsVariable):
            given[name] = [torch.ones(sizes) for sizes in _SIZES]
    for name, kind in kinds.items():
        if isinstance(kind, BodyVariable):
            given[name] = _function(name, kind, {**examples, **given}, kinds)
    return {name: given.get(name, example) for name, example in examples.items()}


def only_said(examples: Mapping[str, Any]) -> set[str]:
    """Return the examples that say what the results of bodies are like, which a pattern need not use itself."""
    types = [one.type for one in examples.values() if isinstance(one, BodyExample)]
    return {one.removeprefix("body like ") for one in types if one.startswith("body like ")}


def _parsed(name: str, text: str) -> BodyVariable | OperandsVariable:
    try:
        kind = parse_variable(name, text)
    except VariableSyntaxError as error:
        raise _wrong(name, f"{text!r} is not a type: {error.message}") from None
    if not isinstance(kind, BodyVariable | OperandsVariable):
        raise _wrong(name, f"{text!r} is not the type of a body")
    return kind


def _function(
    name: str, kind: BodyVariable, examples: Mapping[str, Any], kinds: Mapping[str, Any]
) -> Callable[..., Any]:
    found = torch.tensor(True) if kind.decides else torch.ones(()) if kind.like is None else examples.get(kind.like)
    is_list = isinstance(kinds.get(kind.like or ""), OperandsVariable)
    if not is_list and not isinstance(found, torch.Tensor):
        raise _wrong(name, f"it is like {kind.like}, which is not among the examples as a tensor or operands")
    like: Sequence[torch.Tensor] = found if is_list else [found]  # type: ignore[assignment, list-item]
    is_free = kind.like is None and not kind.decides
    applied = _applied()

    count = len(like) if is_list or is_free else 0
    # Torch would take tensors that the function reads for operands.
    specs = [(list(one.shape), one.dtype, index, count) for index, one in enumerate(like)]

    def function(*args: Any) -> Any:
        # Each result is a call of its own: several results of one call could not be told apart in a program.
        made = [applied(name, list(args), *spec) for spec in specs]
        return made if is_list else made[0]

    return function


@cache
def _applied() -> Any:
    """Return the operator that stands in traces for a body that is given values."""
    library = torch.library.Library(_NAMESPACE, "DEF")
    library.define("body(str name, Tensor[] given, int[] sizes, ScalarType dtype, int index, int count) -> Tensor")

    def made(name: str, given: Any, sizes: Sequence[int], dtype: torch.dtype, index: int, count: int) -> torch.Tensor:
        return torch.empty(sizes, dtype=dtype)

    torch.library.register_fake(f"{_NAMESPACE}::body", made, lib=library)
    _KEPT.append(library)
    return torch.ops.exirkit_traced.body.default


_KEPT: list[Any] = []


def write_applied(writer: Writer, node: Node) -> bool:
    """Write `f(x, *rest)`, if a node stands for it."""
    if getattr(underlying(node.target), "namespace", None) != _NAMESPACE:
        return False
    name, given, _, _, index, count = cast("tuple[str, list[Node], Any, Any, int, int]", node.args)
    if writer.part == "match" and writer.around is None:
        raise writer.unusable(f"{name} is applied outside of bodies", "a pattern describes what is in bodies")
    text = f"{name}({', '.join(items_of(writer, given))})"
    if count:
        writer.spreads[node] = Spread(text, index, count)
    else:
        writer.nodes[node] = text
    return True


def items_of(writer: Writer, values: Sequence[Any]) -> list[str]:
    """Return the texts of values, those together that are one list of the rule.

    Raises:
        UsageError: EK266, of several values that a rule writes together not all are there, in their order.
    """
    texts: list[str] = []
    pending = list(values)
    while pending:
        first = writer.spreads.get(pending[0]) if isinstance(pending[0], Node) else None
        if first is None:
            texts.append(writer.text_of(pending.pop(0)))
            continue
        run = [writer.spreads.get(one) for one in pending[: first.count] if isinstance(one, Node)]
        if run != [Spread(first.text, index, first.count) for index in range(first.count)]:
            raise writer.unusable(
                f"it takes {first.text} apart, which is any number of values", "use all of them, in their order"
            )
        texts.append(f"*{first.text}")
        del pending[: first.count]
    return texts


def list_of(writer: Writer, values: Sequence[Any]) -> str:
    """Return the text of a list: the name alone, if it is all that stands behind one `*`."""
    texts = items_of(writer, values)
    return texts[0][1:] if len(texts) == 1 and texts[0].startswith("*") else f"[{', '.join(texts)}]"


def write_control_flow(writer: Writer, node: Node) -> bool:
    """Write a call of control flow, and note how its results are decomposed; False for other nodes."""
    call = control_flow_call(node)
    if call is None:
        return False
    op = CONTROL_FLOW[f"higher_order.{call.kind}"]
    roles = {"operands": call.shared, "shared": call.shared, "carried": call.carried, "sliced": call.sliced}
    lists = {name: list(roles[name]) for name in op.lists}
    handed = [one for listed in lists.values() for one in listed]
    # What all bodies are handed has no order: lists stay together, beside the lists in front of it.
    order = sorted(lists[op.lists[-1]], key=lambda one: _place(writer, one, is_first=len(lists) > 1))
    fixed = [one for name in op.lists[:-1] for one in lists[name]]
    lists[op.lists[-1]] = [one for one in order if not writer.is_number(one)]
    texts: dict[str, str] = {}
    results: list[list[Spread | None]] = []
    for name, module in zip(op.bodies, call.subgraphs, strict=True):
        inner = writer.inside(module, handed, [*fixed, *order])
        texts[name], parts = _body(inner, is_single=name == op.single)
        results += [] if name == op.single else [parts]
    texts |= {name: list_of(writer, listed) for name, listed in lists.items()}
    if op.kind == "cond":
        texts["pred"] = writer.text_of(call.predicate)
    text = f"{op}({', '.join(texts[one.name] for one in op._schema.arguments)})"
    _write_results(writer, node, text, _parts_of_results(writer, op, lists, results))
    return True


def _place(writer: Writer, operand: Any, *, is_first: bool) -> tuple[bool, int]:
    part = writer.spreads.get(operand) if isinstance(operand, Node) else None
    return (part is None) is is_first, 0 if part is None else part.index


def _parts_of_results(
    writer: Writer, op: ControlFlow, lists: Mapping[str, Sequence[Node]], results: Sequence[Sequence[Spread | None]]
) -> list[Spread | None]:
    """Return of each result whether it is one of several: as what is carried, and as all bodies say."""
    carried = [writer.spreads.get(one) for one in lists[op.lists[0]]] if op.carried else []
    found = [None if None in places else places[0] for places in zip(*results, strict=True)]
    return [*carried, *found[len(carried) :]]


def _write_results(writer: Writer, node: Node, text: str, parts: Sequence[Spread | None]) -> None:
    taken = {cast("int", one.args[1]): one for one in node.users if one in writer.uses}
    is_list = len(parts) > 1 or parts[0] is not None
    returned = [one for one in writer.roots if one in taken.values()]
    if is_list and returned == [taken.get(index) for index in range(len(parts))] and _all_users(returned) == 1:
        for index, one in taken.items():
            writer.spreads[one] = Spread(text, index, len(parts))
        return
    if not is_list and (writer.around is not None or writer.uses[taken[0]] == 1):
        writer.nodes[taken[0]] = f"{text}[0]"
        return
    groups = list(_groups(parts))
    is_rest = [parts[group[0]] is not None for group in groups]
    if writer.around is not None and any(is_rest):
        raise writer.unusable("a body takes the results of a call apart", "bodies name nothing: write it by hand")
    if writer.around is not None:
        writer.nodes |= {one: f"{text}[{index}]" for index, one in taken.items()}
        return
    _unpack(writer, text, taken, list(zip(groups, is_rest, strict=True)))


def _unpack(writer: Writer, text: str, taken: Mapping[int, Node], groups: Sequence[tuple[list[int], bool]]) -> None:
    """Write a statement that names results, those together that are parts of one list."""
    names: list[str] = []
    for group, is_several in groups:
        if not is_several and group[0] not in taken:
            names.append("_")
            continue
        name = writer.new_name("others" if is_several else "result")
        names.append(f"*{name}" if is_several else name)
        for index in group:
            if index in taken and is_several:
                writer.spreads[taken[index]] = Spread(name, index - group[0], len(group))
            elif index in taken:
                writer.nodes[taken[index]] = name
    if (
        writer.part == "match"
        and any(is_several for _, is_several in groups)
        and names[:-1] != ["_"] * (len(names) - 1)
    ):
        raise writer.unusable(
            "it decomposes a list of any number of results", "return all results, or all but the first ones"
        )
    writer.lines.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {text}")


def _all_users(nodes: Sequence[Node]) -> int:
    return len({user for one in nodes for user in one.users})


def _groups(parts: Sequence[Spread | None]) -> Iterator[list[int]]:
    """Yield the places of results, those together that are parts of one list."""
    index = 0
    while index < len(parts):
        one = parts[index]
        count = 1 if one is None else one.count
        yield list(range(index, index + count))
        index += count


def bind_parameters(writer: Writer, handed: Sequence[Any], order: Sequence[Any]) -> str:
    """Name what a body is given, and return its parameters as a lambda has them.

    Args:
        writer: Writer of the body.
        handed: The operands, numbers among them, which are not parameters.
        order: The operands as the rule has them.
    """
    around = writer.around
    assert around is not None, "a body is in a graph"
    first: list[str] = []
    rest: list[Node] = []
    last: list[str] = []
    given = dict(zip(map(id, handed), writer.graph.find_nodes(op="placeholder"), strict=True))
    for operand in order:
        node = given[id(operand)]
        if around.is_number(operand):
            writer.numbers[node] = around.stored(operand)
        elif isinstance(operand, Node) and operand in around.spreads:
            if last:
                raise writer.unusable(
                    "a body is given lists with another operand between them", "hand what is not a list first or last"
                )
            rest.append(node)
        else:
            writer.nodes[node] = writer.new_name(f"in_{len(first) + len(last)}")
            (last if rest else first).append(writer.nodes[node])
    name = writer.new_name("rest")
    writer.spreads |= {node: Spread(name, index, len(rest)) for index, node in enumerate(rest)}
    return ", ".join([*first, *([f"*{name}"] if rest else []), *last])


def _body(writer: Writer, *, is_single: bool) -> tuple[str, list[Spread | None]]:
    """Return a body as text, and of each result whether it is one of several."""
    # Torch lets a body return nothing that it is given but copies.
    results = writer.roots = [_input_behind(one) for one in results_of_graph(writer.graph)]
    writer.write_all(results)
    parts = [writer.spreads.get(one) if isinstance(one, Node) else None for one in results]
    text = writer.text_of(results[0]) if is_single else list_of(writer, results)
    bare = text[1:-1] if len(results) == 1 and text.startswith("[") else text
    name, applied, given = bare.partition("(")
    if applied and given == f"{writer.parameters})" and name in writer.functions:
        return name, parts
    return f"lambda {writer.parameters}: {text}" if writer.parameters else f"lambda: {text}", parts


def _input_behind(result: Any) -> Any:
    source = behind(result) if isinstance(result, Node) else result
    return source if isinstance(source, Node) and source.op == "placeholder" else result


def _wrong(name: str, why: str) -> UsageError:
    return UsageError(
        Diagnostic(
            code="EK256",
            message=f"the example {name} cannot stand for a body: {why}",
            expected="body, body like x, condition or operands",
        )
    )
