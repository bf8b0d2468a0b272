"""A program, or a part of one, in the notation of rules: what is printed can be copied into `vars` and `match`."""

from __future__ import annotations

import keyword
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from exirkit.ir import same_argument, stored_tensor, underlying
from exirkit.patterns.books.traced_literals import literal_text, size_names, unused
from exirkit.patterns.matching.arguments import shortest_number
from exirkit.patterns.operators.arguments import default_of
from exirkit.patterns.operators.table import CONSTANTS, name_of

from .value_descriptions import shown

Comment: TypeAlias = Callable[[Node], str | None]
"""Returns what is to be said above a node, or None."""

_STORED = {InputKind.PARAMETER: "param", InputKind.BUFFER: "buffer", InputKind.CONSTANT_TENSOR: "const"}


@dataclass(frozen=True)
class ProgramNotation:
    """A program in the notation of rules.

    Attributes:
        variables: Types of the values that come from outside, by name: what stands under `vars`.
        lines: The program, `return` last.
        unsaid: Names of nodes that the language cannot say, with the reason; they are variables, or comments.
    """

    variables: dict[str, str]
    lines: tuple[str, ...]
    unsaid: dict[str, str]

    @property
    def match(self) -> str:
        """The text of a pattern."""
        return "".join(f"{line}\n" for line in self.lines)

    def text(self) -> str:
        """Return the keys `vars` and `match` of a rule as YAML."""
        variables = "".join(f"  {name}: {_quoted(kind)}\n" for name, kind in self.variables.items())
        head = f"vars:\n{variables}" if variables else ""
        return f"{head}match: |\n" + "".join(f"  {line}\n" for line in self.lines)


def notation_of(
    program: ExportedProgram,
    nodes: Collection[Node] | None = None,
    *,
    comment: Comment | None = None,
    sizes: bool = True,
) -> ProgramNotation:
    """Write a program, or some nodes of it, in the notation of rules.

    Args:
        program: A program of any dialect. Programs of the ExecuTorch dialect are written alike, but rules do not
            match there.
        nodes: The calls to write; all of the main graph if absent. What they use from elsewhere becomes a variable, and
            what is used elsewhere is returned.
        comment: What is to be said above nodes.
        sizes: Whether equal sizes of variables get one name; otherwise types have the numbers.
    """
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    if nodes is None:
        chosen = calls
    else:
        wanted = set(nodes)
        # The results of a call belong to it.
        chosen = [one for one in calls if one in wanted or (_is_result(one) and one.args[0] in wanted)]
    return _Writer(program, chosen, comment, named_sizes=sizes, is_whole=nodes is None).notation()


def surrounding(node: Node, distance: int) -> list[Node]:
    """Return the calls at most so many steps before or after a call, and those between them, in graph order."""
    found = {node}
    border = [node]
    for _ in range(distance):
        near = [one for each in border for one in (*each.all_input_nodes, *each.users)]
        border = [one for one in dict.fromkeys(near) if one.op == "call_function" and one not in found]
        found.update(border)
    return with_between(found)


def with_between(nodes: Collection[Node]) -> list[Node]:
    """Return nodes and those on the ways between them, in graph order: a pattern can only stand for all of them."""
    chosen = set(nodes)
    if not chosen:
        return []
    ordered = [one for one in next(iter(chosen)).graph.nodes if one.op == "call_function"]
    behind, before = set(chosen), set(chosen)
    for one in ordered:
        if any(source in behind for source in one.all_input_nodes):
            behind.add(one)
    for one in reversed(ordered):
        if any(user in before for user in one.users):
            before.add(one)
    return [one for one in ordered if one in behind and one in before]


def _is_result(node: Node) -> bool:
    return node.target is operator.getitem


class _Writer:
    """Writes nodes one after another."""

    def __init__(
        self,
        program: ExportedProgram,
        nodes: Sequence[Node],
        comment: Comment | None,
        *,
        named_sizes: bool,
        is_whole: bool,
    ) -> None:
        self.program = program
        self.nodes = list(nodes)
        self.comment = comment
        self.names: dict[Node, str] = {}
        self.variables: dict[Node, str] = {}
        self.unsaid: dict[str, str] = {}
        self.specs = {str(getattr(spec.arg, "name", "")): spec for spec in program.graph_signature.input_specs}
        self.kinds = {name: (_STORED.get(spec.kind, ""), spec.target) for name, spec in self.specs.items()}
        self.taken = {*CONSTANTS, *keyword.kwlist, "aten", "_"}
        self.named_sizes = named_sizes
        self.is_whole = is_whole
        self.said: str | None = None

    def notation(self) -> ProgramNotation:
        """Return what is written."""
        lines: list[str] = []
        for node in self.nodes:
            lines += self._lines(node)
        roots = [self.names[node] for node in (self._results() if self.is_whole else self._roots())]
        lines.append(f"return {', '.join(roots)}" if roots else "# nothing that a rule could return")
        sizes = self._size_names()
        variables = {self.names[node]: self._type(node, sizes) for node in self.variables}
        return ProgramNotation(variables, tuple(lines), self.unsaid)

    def _lines(self, node: Node) -> Iterator[str]:
        said = self.comment(node) if self.comment is not None else None
        if said is not None and said != self.said:
            yield f"# {' '.join(said.split())}"
        self.said = said
        try:
            call = self._call(node)
        except TypeError as error:
            self.unsaid[node.name] = str(error)
            yield f"# %{node.name}: {error}"
            return
        name = self._new_name(node)
        yield f"{name} = {call}{_type_comment(node)}"

    def _call(self, node: Node) -> str:
        if _is_result(node):
            base, index = node.args
            if not isinstance(base, Node) or self._is_outside(base) or type(index) is not int:
                raise TypeError("a result of a call that is not here")
            return f"{self._name(base)}[{index}]"
        op = underlying(node.target)
        schema = getattr(op, "_schema", None)
        if schema is None:
            raise TypeError(f"{getattr(node.target, '__name__', node.target)} is not an operator that rules can name")
        parts: list[str] = []
        by_name = False
        for at, argument in enumerate(schema.arguments):
            is_positional = at < len(node.args) and not argument.kwarg_only
            if not is_positional and argument.name not in node.kwargs:
                by_name = True
                continue
            value = node.args[at] if is_positional else node.kwargs[argument.name]
            if argument.has_default_value() and same_argument(value, default_of(argument)):
                by_name = True
                continue
            text = self._value(value)
            parts.append(f"{argument.name}={text}" if by_name or not is_positional else text)
        return f"{name_of(op)}({', '.join(parts)})"

    def _value(self, value: Any) -> str:
        if isinstance(value, Node):
            number = self._number(value)
            return self._name(value) if number is None else number
        if isinstance(value, list | tuple):
            return f"[{', '.join(self._value(one) for one in value)}]"
        return literal_text(value)

    def _number(self, node: Node) -> str | None:
        """Return the number in a stored tensor without dims, as a pattern asks for it."""
        stored = self._stored(node)
        if stored is None or stored.dim() or stored.dtype.is_complex or self.kinds[node.name][0] == "param":
            return None
        return literal_text(shortest_number(stored))

    def _stored(self, node: Node) -> torch.Tensor | None:
        kind, target = self.kinds.get(node.name, ("", None))
        if node.op != "placeholder" or not kind or target is None:
            return None
        if target in self.program.graph_signature.buffers_to_mutate.values():
            return None
        return stored_tensor(self.program, self.specs[node.name])

    def _name(self, node: Node) -> str:
        if node not in self.names:
            self.variables[node] = self._new_name(node)
        return self.names[node]

    def _new_name(self, node: Node) -> str:
        base = node.name if node.name.isidentifier() else f"v_{node.name}"
        self.names[node] = unused(base, {*self.taken, *self.names.values()})
        return self.names[node]

    def _is_outside(self, node: Node) -> bool:
        return node not in self.names or node in self.variables

    def _results(self) -> list[Node]:
        """Return what the program returns, each once, as far as it is computed."""
        listed = self.program.graph.output_node().all_input_nodes
        return [node for node in listed if node in self.names and node not in self.variables]

    def _roots(self) -> list[Node]:
        """Return the nodes that are written and used by others, the results of calls rather than the calls.

        Each is found from those before it, as far as that is possible: they share a value.
        """
        written = [node for node in self.nodes if node in self.names and node not in self.variables]
        inside = set(written)
        open_ = [
            node
            for node in written
            if not isinstance(node.meta.get("val"), list | tuple)
            and (not node.users or any(user not in inside for user in node.users))
        ]
        cones = {root: self._cone(root, inside) for root in open_}
        ordered: list[Node] = []
        reached: set[Node] = set()
        while open_:
            near = [one for one in open_ if cones[one] & reached]
            chosen = max(near or open_, key=lambda one: len(cones[one]))
            ordered.append(chosen)
            reached |= cones[chosen]
            open_.remove(chosen)
        return ordered

    def _cone(self, root: Node, inside: Collection[Node]) -> set[Node]:
        """Return what a root uses, directly or not, as far as it is written here."""
        found: set[Node] = set()
        pending = [root]
        while pending:
            node = pending.pop()
            if node not in found and node in self.names:
                found.add(node)
                pending += node.all_input_nodes if node in inside else []
        return found

    def _size_names(self) -> dict[int, str]:
        """Return names for the sizes of variables; a size of one stays one, since it may broadcast."""
        if not self.named_sizes:
            return {}
        shapes = [getattr(node.meta.get("val"), "shape", ()) for node in self.variables]
        return size_names(shapes, {*self.names.values(), *self.taken})

    def _type(self, node: Node, sizes: dict[int, str]) -> str:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            kind = self.kinds.get(node.name, ("", None))[0]
            dims = [sizes.get(size, str(size)) if isinstance(size, int) else _symbol(size) for size in value.shape]
            dtype = "bool" if value.dtype is torch.bool else shown(value.dtype)
            return f"{kind} {dtype} [{', '.join(dims)}]".lstrip()
        if isinstance(value, torch.SymFloat | float):
            return "float"
        if isinstance(value, torch.SymBool | bool):
            return "bool"
        return "int"


def _symbol(size: Any) -> str:
    text = str(size)
    return text if text.isidentifier() else "_"


def _type_comment(node: Node) -> str:
    value = node.meta.get("val")
    listed = value if isinstance(value, list | tuple) else [value]
    types = [shown(one) for one in listed if isinstance(one, torch.Tensor)]
    return f"  # {', '.join(types)}" if types else ""


def _quoted(kind: str) -> str:
    return f'"{kind}"'
