"""What a search for a match knows, and the conditions that it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from exirkit.patterns.functions.graph import GraphFacts
from exirkit.patterns.syntax.expressions import Compiled
from exirkit.patterns.syntax.program_compiler import FACTS
from exirkit.patterns.syntax.undecided import SYMBOLIC

Then = Callable[["State"], bool]
Matcher = Callable[[Any, "State"], bool]
Trace = Callable[[int, str, Any, Any], None]


@dataclass(frozen=True)
class CompiledGuard:
    """A condition, ready to be asked as soon as its names are bound."""

    text: str
    compiled: Compiled
    needs: frozenset[str]
    kind: str = "sound"
    assume: bool = False
    opaque: tuple[str, ...] = ()


@dataclass(slots=True)
class State:
    """What a search knows so far.

    Attributes:
        facts: What guards may ask about the graph.
        names: Variables, sizes and named terms that are bound.
        nodes: Matched calls, roots first.
        terms: Node of each call term, by the identity of the term.
        roots: Nodes of the roots; None for a result that nothing uses.
        trace: Called with depth, reason, value and perhaps the term where the search fails.
        beside: Arguments of the call among which a value is being matched.
        sees_through: Calls that give back what they were given may be looked through: nothing writes to a tensor.
    """

    facts: GraphFacts
    names: dict[str, Any]
    nodes: list[Node] = field(default_factory=list)
    terms: dict[int, Node] = field(default_factory=dict)
    roots: list[Node | None] = field(default_factory=list)
    trace: Trace | None = None
    beside: Any = None
    sees_through: bool = False

    def fail(self, reason: str, value: Any = None, term: Any = None) -> bool:
        """Say why, if somebody listens; `term` if it is not the one that is being matched."""
        if self.trace is not None:
            self.trace(len(self.nodes), reason, value, term)
        return False


def numbers_read(value: Any) -> Any:
    """Return a list with the sizes in the place of the nodes that compute them; anything else as it is."""
    if not isinstance(value, list | tuple) or not any(isinstance(one, Node) for one in value):
        return value
    return [
        one.meta.get("val") if isinstance(one, Node) and isinstance(one.meta.get("val"), SYMBOLIC) else one
        for one in value
    ]


class MatchedNames(Mapping[str, Any]):
    """Names of a state, and the facts of the graph under their key."""

    def __init__(self, state: State) -> None:
        self.state = state

    def __getitem__(self, key: str) -> Any:
        return self.state.facts if key == FACTS else numbers_read(self.state.names[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self.state.names)

    def __len__(self) -> int:
        return len(self.state.names)
