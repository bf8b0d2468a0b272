"""Maps from a backend's identifiers to the debug handles of the operators behind them."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from exirkit.ir import Diagnostic, UsageError

Identifier = int | str


class DelegateMappingBuilder:
    """Collects a debug handle map for `PreprocessResult`.

    Args:
        generated_identifiers: Whether identifiers are made here, counted from 0; otherwise each entry brings its own.

    Source: `DelegateMappingBuilder` of the ExecuTorch documentation.
    """

    def __init__(self, generated_identifiers: bool = False) -> None:
        self._generates = generated_identifiers
        self._handles: dict[Identifier, tuple[int, ...]] = {}

    def get_delegate_mapping(self) -> dict[int, tuple[int, ...]] | dict[str, tuple[int, ...]]:
        """Return debug handles, in order, by identifier."""
        return dict(self._handles)  # type: ignore[return-value]

    def insert_delegate_mapping_entry(
        self,
        nodes: Node | Sequence[Node] | None = None,
        handles: int | Sequence[int | None] | None = None,
        identifier: Identifier | None = None,
    ) -> Identifier:
        """Add an entry.

        Args:
            nodes: The operators behind the identifier; those without a debug handle do not count.
            handles: Their debug handles, in the place of `nodes`.
            identifier: The backend's name for them, where it is not generated.

        Returns:
            The identifier.

        Raises:
            UsageError: EK498, both or none of `nodes` and `handles` are given, no handle is left, or the identifier is
                missing, given where it is generated, or there already.
        """
        if (nodes is None) == (handles is None):
            raise _wrong("an entry is about nodes or about handles", "one of `nodes` and `handles`")
        if self._generates and identifier is not None:
            raise _wrong(f"identifier {identifier!r} is given where identifiers are generated", "no `identifier`")
        if not self._generates and identifier is None:
            raise _wrong("the entry has no identifier", "an `identifier`, or a builder that generates them")
        if identifier in self._handles:
            raise _wrong(f"there is an entry {identifier!r} already", "an identifier of its own for each entry")
        chosen: Identifier = len(self._handles) if identifier is None else identifier
        if nodes is not None:
            found = [node.meta.get("debug_handle") for node in ([nodes] if isinstance(nodes, Node) else nodes)]
        else:
            found = list(handles) if isinstance(handles, Sequence) else [handles]
        known = sorted({handle for handle in found if handle is not None})
        if not known:
            raise _wrong("no node of the entry has a debug handle", "at least one")
        self._handles[chosen] = tuple(known)
        return chosen


def _wrong(message: str, expected: str) -> UsageError:
    return UsageError(Diagnostic(code="EK498", message=message, expected=expected))
