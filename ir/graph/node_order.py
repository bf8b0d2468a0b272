"""Names and order of the nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph, Node

from exirkit.ir.diagnostics import Diagnostic, UsageError
from exirkit.ir.provenance import locate, target_name
from exirkit.ir.torch_internals import illegal_in_name, numbered_name


@dataclass(frozen=True, slots=True)
class Numbering:
    """How far the numbers of names with one stem had come at some moment; None if the stem was new."""

    stem: str
    reached: int | None


def numbering_of(graph: Graph, candidate: str) -> Numbering:
    """Return the numbering from which the next name like `candidate` is made."""
    match = numbered_name.match(candidate)
    if match is None:
        candidate = illegal_in_name.sub("_", candidate) or "_unnamed"
        match = numbered_name.match(f"_{candidate}" if candidate[0].isdigit() else candidate)
    assert match is not None, candidate
    stem = match.group(1)
    return Numbering(stem, graph._graph_namespace._base_count.get(stem))


def register_names(graph: Graph) -> None:
    """Tell the namespace of a graph all names in it; `torch.export` names placeholders behind its back."""
    names = {node: node.name for node in graph.nodes}
    graph._graph_namespace._obj_to_name.update(names)
    graph._graph_namespace._used_names.update(names.values())


def claim_names(graph: Graph) -> None:
    """Make a new graph's namespace that of its nodes alone: numbers go on behind the highest that is in use."""
    register_names(graph)
    counts = graph._graph_namespace._base_count
    for node in graph.nodes:
        match = numbered_name.match(node.name)
        if match is not None and match.group(2) is not None:
            stem = match.group(1)
            counts[stem] = max(counts.get(stem, 0), int(match.group(2)))


def rename(node: Node, candidate: str) -> None:
    """Give a node a name like `candidate`; its old name is free again."""
    old = node.name
    node._rename(candidate)
    node.graph._graph_namespace._used_names.discard(old)


def restore_name(node: Node, name: str, numbering: Numbering) -> None:
    """Undo a `rename`."""
    namespace = node.graph._graph_namespace
    namespace._used_names.discard(node.name)
    namespace._used_names.add(name)
    namespace._obj_to_name[node] = name
    node.name = name
    _restore_numbering(node.graph, numbering)


def forget_name(node: Node, numbering: Numbering) -> None:
    """Undo the naming of a node that is no longer in its graph."""
    node.graph._graph_namespace._used_names.discard(node.name)
    release(node)
    _restore_numbering(node.graph, numbering)


def release(node: Node) -> None:
    """Let go of a node that is gone for good; its name stays taken."""
    node.graph._graph_namespace._obj_to_name.pop(node, None)


def _restore_numbering(graph: Graph, numbering: Numbering) -> None:
    counts = graph._graph_namespace._base_count
    if numbering.reached is None:
        counts.pop(numbering.stem, None)
    else:
        counts[numbering.stem] = numbering.reached


def misplaced_argument(node: Node) -> Node | None:
    """Return the first argument of a node that does not stand in front of it in the same graph."""
    graph = node.graph
    for argument in node._input_nodes:
        # Nodes of one graph compare by place; an erased node keeps the place that it had.
        if argument.graph is not graph or argument._erased or not argument < node:
            return argument
    return None


def misordered(graph: Graph) -> tuple[Node, Node] | None:
    """Return the first node of a graph that uses something which does not stand in front of it, and what it uses."""
    for node in graph.nodes:
        argument = misplaced_argument(node)
        if argument is not None:
            return node, argument
    return None


def order_error(user: str, argument: Node, place: Node, hint: str | None = None) -> UsageError:
    """Describe an edit that would place a user in front of what it uses.

    Args:
        user: The user, as the message names it.
        argument: What it uses.
        place: Node in front of which the user would stand, or the user itself.
        hint: What to do.
    """
    if argument.graph is not place.graph or argument._erased:
        gone = "is no longer" if argument.graph is place.graph else "is not"
        return UsageError(Diagnostic.of("EK114", f"%{argument.name} {gone} in the graph that is edited"))
    where = "is not in front of" if argument is place else "stands behind"
    return UsageError(
        Diagnostic.of(
            "EK122",
            f"{user} uses %{argument.name}, which {where} %{place.name}",
            location=locate(place),
            expected="nodes that stand in front of what uses them",
            hint=hint,
        )
    )


def input_in_the_way(name: str, before: Node) -> UsageError:
    """Describe a call that would stand in front of an input of the graph."""
    return UsageError(
        Diagnostic.of(
            "EK122",
            f"a call of {name} would stand in front of %{before.name}, which is an input of the graph",
            expected="inputs in front of all calls",
            hint="name the first node that is not an input, or a later one",
        )
    )


def argument_tuple(target: Any, args: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments of a call as a tuple.

    Raises:
        UsageError: EK111, they are one argument, which stands in no sequence.
    """
    if isinstance(args, list | tuple):
        return tuple(args)
    shown = f"%{args.name}" if isinstance(args, Node) else repr(args)
    raise UsageError(
        Diagnostic.of(
            "EK111",
            f"the arguments of {target_name(target)} are given as {shown}, which is not a sequence",
            expected="a tuple of all positional arguments",
            hint=f"write ({shown},) for one argument",
        )
    )


def check_move(node: Node, before: Node) -> None:
    """Raise if a node in front of `before` would stand in front of what it uses, or behind what uses it.

    Raises:
        UsageError: EK122.
    """
    if before.op == "placeholder":
        raise input_in_the_way(target_name(node.target), before)
    for argument in node.all_input_nodes:
        if argument is before or before < argument:
            raise order_error(f"%{node.name}", argument, before)
    _check_users(node, (user for user in node.users if user is not before and user < before), before)


def users_to_replace(old: Node, new: Node) -> list[Node]:
    """Return the users of a node that another one can stand for: all but those that the other is computed from.

    Raises:
        UsageError: EK122, a user stands in front of `new`, which is not computed from it.
    """
    early = [user for user in old.users if user is new or user < new]
    if not early:
        return list(old.users)
    kept = {new, *_producers(new, since=min(early))}
    for user in early:
        if user not in kept:
            raise replacement_error(user, new)
    return [user for user in old.users if user not in kept]


def replacement_error(user: Node, new: Node) -> UsageError:
    """Describe a user that would get an argument which does not stand in front of it."""
    hint = f"make %{new.name} in front of %{user.name}, or replace in later users only, with `replace_in`"
    return order_error(f"%{user.name}", new, user, hint)


def _producers(node: Node, since: Node) -> set[Node]:
    """Return the nodes that a node is computed from, without those in front of `since`."""
    found: set[Node] = set()
    pending = [node]
    while pending:
        for argument in pending.pop().all_input_nodes:
            if argument not in found and not argument < since:
                found.add(argument)
                pending.append(argument)
    return found


def _check_users(node: Node, users: Iterable[Node], before: Node) -> None:
    for user in users:
        raise UsageError(
            Diagnostic.of(
                "EK122",
                f"%{node.name} in front of %{before.name} would stand behind %{user.name}, which uses it",
                location=locate(user),
                expected="nodes that stand in front of what uses them",
                hint="move the users first, the last one first of all",
            )
        )
