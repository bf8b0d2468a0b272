"""What a backend and a partitioner implement: from programs to bytes, and which nodes go where."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar, Protocol

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import CompileSpec, OpOverload, UsageError, called_graphs, copy_program, load_plugins
from exirkit.passes.analysis import mark_kept_whole

DELEGATION_TAG = "delegation_tag"
"""Key of `node.meta` under which partitioners write which partition a node belongs to."""


@dataclass(frozen=True)
class DelegationSpec:
    """Where a partition goes.

    Attributes:
        backend_id: Name of the backend.
        compile_specs: What to compile for.
    """

    backend_id: str
    compile_specs: list[CompileSpec] = field(default_factory=list)


@dataclass(frozen=True)
class PartitionResult:
    """What a partitioner found.

    Attributes:
        tagged_exported_program: The program, with `delegation_tag` in the `meta` of the nodes that are taken.
        partition_tags: Where the partition of each tag goes.
    """

    tagged_exported_program: ExportedProgram
    partition_tags: Mapping[str, DelegationSpec]


class Partitioner(ABC):
    """Decides which nodes go to which backend.

    Args:
        spec: Choices of the user, by name.

    Source: `Partitioner` of the ExecuTorch documentation.
    """

    def __init__(self, spec: Mapping[str, Any] | None = None) -> None:
        self._spec = dict(spec or {})

    @property
    def spec(self) -> dict[str, Any]:
        """Choices of the user, by name."""
        return self._spec

    @abstractmethod
    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag nodes; nothing but `meta` may be changed."""

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """Return operators that the backend wants whole, and which of their calls (all of them, if None)."""
        return [], None


DebugHandleMap = Mapping[int, tuple[int, ...]] | Mapping[str, tuple[int, ...]]


@dataclass
class PreprocessResult:
    """What a backend made of a program.

    Attributes:
        processed_bytes: What its runtime is given.
        debug_handle_map: Debug handles of the operators behind each identifier of the backend; see
            `DelegateMappingBuilder`.
        data_store_output: Named data that the delegate reads at run time: bytes by name, or what a `NamedDataStore`
            returns.
        external_data: Named data that is to lie in data files beside the program: bytes by name, by the name of the
            file without its suffix `.ptd`.
        _delegate_info_meta: What the backend wants to find again in `meta` of the delegate; it is not stored.
    """

    processed_bytes: bytes = b""
    debug_handle_map: DebugHandleMap | None = None
    data_store_output: Mapping[str, bytes] | NamedDataOutput | None = field(default=None)
    external_data: Mapping[str, Mapping[str, bytes]] | None = None
    _delegate_info_meta: Any = None


class NamedDataOutput(Protocol):
    """What a `NamedDataStore` returns, of exirkit or of the official package: blobs, and entries that refer to them."""

    @property
    def buffers(self) -> Sequence[Any]:
        """The blobs."""
        ...

    @property
    def pte_data(self) -> Mapping[str, Any]:
        """Entries of the program file, by key."""
        ...

    @property
    def external_data(self) -> Mapping[str, Mapping[str, Any]]:
        """Entries of data files by key, by the name of the file."""
        ...


def stored_data(
    store: Mapping[str, bytes] | NamedDataOutput | None,
) -> tuple[dict[str, bytes], dict[str, dict[str, bytes]]]:
    """Return the named data of a backend.

    Args:
        store: Bytes by name, what a `NamedDataStore` returns, or None.

    Returns:
        What goes into the program, by key; and what goes into data files, by key, by the name of the file.
    """
    if store is None or isinstance(store, Mapping):
        return dict(store or {}), {}
    blobs = store.buffers

    def stored(entries: Mapping[str, Any]) -> dict[str, bytes]:
        return {key: bytes(blobs[entry.buffer_index]) for key, entry in entries.items()}

    return stored(store.pte_data), {file: stored(entries) for file, entries in store.external_data.items()}


class BackendDetails:
    """A backend. Subclasses are known by the name of their class, as soon as they are defined.

    Source: `BackendDetails` of the ExecuTorch documentation.
    """

    defined: ClassVar[dict[str, type[BackendDetails]]] = {}
    """Backends by name; the latest definition of a name counts."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        BackendDetails.defined[cls.__name__] = cls

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Compile a program of the Edge dialect.

        Args:
            edge_program: The program; weights that the partitioner tagged are among its state, others are its inputs.
            compile_specs: What to compile for.
        """
        raise NotImplementedError("a backend implements `preprocess`, or `preprocess_multimethod`")

    @classmethod
    def preprocess_multimethod(
        cls, edge_programs: dict[str, list[ExportedProgram]], compile_specs: dict[str, list[list[CompileSpec]]]
    ) -> dict[str, list[PreprocessResult]]:
        """Compile all programs of all methods at once, so that they may share; one after the other unless overridden.

        Args:
            edge_programs: Programs by method.
            compile_specs: What to compile each for.

        Returns:
            Results by method, in the order of the programs.
        """
        return {
            method: [
                cls.preprocess(program, specs) for program, specs in zip(programs, compile_specs[method], strict=True)
            ]
            for method, programs in edge_programs.items()
        }

    @staticmethod
    def copy_exported_program_for_preprocess(exported_program: ExportedProgram) -> ExportedProgram:
        """Return what `preprocess` is given: graphs are copied, weights are shared."""
        return copy_program(exported_program)


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
            handles: Their debug handles, instead of `nodes`.
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
    return UsageError(code="EK498", message=message, expected=expected)


ENTRY_POINTS = "exirkit.backends"
"""Group of entry points under which packages name their backends."""


def find_backend(backend_id: str) -> type[BackendDetails]:
    """Return a backend by its name.

    Args:
        backend_id: Name of a subclass of `BackendDetails` that has been imported, or of an entry point in the group
            `exirkit.backends`.

    Raises:
        UsageError: EK490, there is none.
    """
    if backend_id not in BackendDetails.defined:
        for plugin in load_plugins(ENTRY_POINTS)[0].values():
            if isinstance(plugin, type) and issubclass(plugin, BackendDetails):
                BackendDetails.defined.setdefault(plugin.__name__, plugin)
    found = BackendDetails.defined.get(backend_id)
    if found is None:
        known = sorted(BackendDetails.defined)
        close = get_close_matches(backend_id, known, n=1)
        raise UsageError(
            code="EK490",
            message=f"there is no backend {backend_id!r}",
            expected=f"one of {', '.join(known)}" if known else "a backend; none has been imported",
            hint=f"did you mean {close[0]!r}?" if close else "import the module that defines it",
        )
    return found


def keep_whole(
    program: ExportedProgram, partitioners: Sequence[Partitioner]
) -> tuple[ExportedProgram, list[OpOverload]]:
    """Mark the calls that partitioners want whole.

    Args:
        program: As torch.export made it; it is not changed.
        partitioners: Those that will be asked for the method, in order.

    Returns:
        A marked copy, or the program itself if there is nothing to mark, and the operators of the marked calls.
    """
    wanted = [partitioner.ops_to_not_decompose(program) for partitioner in partitioners]
    if not any(ops for ops, _ in wanted):
        return program, []
    copied = copy_program(program)
    kept: dict[OpOverload, None] = {}
    for module in called_graphs(copied.graph_module):
        for node in module.graph.nodes:
            op = node.target
            if isinstance(op, OpOverload) and any(op in ops and (ask is None or ask(node)) for ops, ask in wanted):
                mark_kept_whole(node)
                kept[op] = None
    return copied, list(kept)
