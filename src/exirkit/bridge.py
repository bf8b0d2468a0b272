"""The bridge to the official package: its partitioners and backends, unmodified, in our chain.

`import exirkit.bridge` needs the extra `executorch`; nothing else in exirkit imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from executorch.exir import EdgeCompileConfig as OfficialCompileConfig
from executorch.exir.backend.backend_details import BackendDetails as OfficialBackendDetails
from executorch.exir.backend.compile_spec_schema import CompileSpec as OfficialCompileSpec
from executorch.exir.backend.partitioner import Partitioner as AnyOfficialPartitioner
from executorch.exir.dialects._ops import ops as official_ops
from executorch.exir.verification.verifier import EXIREdgeDialectVerifier
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import (
    CompileSpec,
    Diagnostic,
    EdgeOpOverload,
    ModelError,
    UsageError,
    called_graphs,
    copy_program,
    underlying,
)
from exirkit.passes import (
    DELEGATION_TAG,
    BackendDetails,
    DelegationSpec,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)


class OfficialPartitioner(Partitioner):
    """Asks a partitioner of the official package, which may know nothing of exirkit.

    Args:
        partitioner: The partitioner, such as `XnnpackPartitioner()`.
    """

    def __init__(self, partitioner: AnyOfficialPartitioner) -> None:
        super().__init__(getattr(partitioner, "spec", None))
        self._partitioner = partitioner

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Let it tag a copy with official operators, and take its tags over."""
        theirs = official_program(exported_program)
        result = self._partitioner.partition(theirs)
        pairs = zip(
            called_graphs(exported_program.graph_module),
            called_graphs(result.tagged_exported_program.graph_module),
            strict=True,
        )
        for mine, other in pairs:
            tags = {node.name: node.meta.get(DELEGATION_TAG) for node in other.graph.nodes}
            for node in mine.graph.nodes:
                if tags.get(node.name) is not None:
                    node.meta[DELEGATION_TAG] = tags[node.name]
        specs = {tag: _delegation_spec(spec) for tag, spec in result.partition_tags.items()}
        return PartitionResult(exported_program, specs)

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        """Return what it returns: it looks at ATen operators, which are torch's."""
        found: tuple[list[OpOverload], Callable[[Node], bool] | None] = self._partitioner.ops_to_not_decompose(ep)
        return found


def _delegation_spec(spec: Any) -> DelegationSpec:
    official_backend(spec.backend_id)
    return DelegationSpec(spec.backend_id, [CompileSpec(one.key, bytes(one.value)) for one in spec.compile_specs])


def official_backend(backend_id: str) -> type[BackendDetails]:
    """Return a backend of the official package as one of ours; from then on it is known by its name.

    Raises:
        UsageError: EK751, the module that defines it has not been imported.
    """
    known = BackendDetails.defined.get(backend_id)
    if known is not None:
        return known
    theirs = next((one for one in OfficialBackendDetails.__subclasses__() if one.__name__ == backend_id), None)
    if theirs is None:
        raise UsageError(
            Diagnostic(
                code="EK751",
                message=f"the official package knows no backend {backend_id!r}",
                expected=", ".join(sorted(one.__name__ for one in OfficialBackendDetails.__subclasses__())),
                hint="import the module that defines it",
            )
        )

    def preprocess_multimethod(
        cls: type[BackendDetails],
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        del cls
        given = {
            name: [[OfficialCompileSpec(spec.key, spec.value) for spec in specs] for specs in lists]
            for name, lists in compile_specs.items()
        }
        made = theirs.preprocess_multimethod(edge_programs, given)
        return {name: [_result(one) for one in results] for name, results in made.items()}

    def copy_exported_program_for_preprocess(exported_program: ExportedProgram) -> ExportedProgram:
        return official_program(exported_program)

    return type(
        backend_id,
        (BackendDetails,),
        {
            "preprocess_multimethod": classmethod(preprocess_multimethod),
            "copy_exported_program_for_preprocess": staticmethod(copy_exported_program_for_preprocess),
        },
    )


def _result(made: Any) -> PreprocessResult:
    data: dict[str, bytes] = {}
    store = made.data_store_output
    if store is not None:
        if store.external_data:
            raise ModelError(Diagnostic(code="EK752", message="the backend wants data in files of their own"))
        data = {key: bytes(store.buffers[entry.buffer_index]) for key, entry in store.pte_data.items()}
    return PreprocessResult(bytes(made.processed_bytes), made.debug_handle_map, data)


def official_program(program: ExportedProgram) -> ExportedProgram:
    """Return an Edge program of ours with the operators of the official package; graphs are copied, weights shared."""
    made = copy_program(
        program, verifier=EXIREdgeDialectVerifier(OfficialCompileConfig(_check_ir_validity=False), class_only=True)
    )
    for module in called_graphs(made.graph_module):
        for node in module.graph.nodes:
            if node.op == "call_function":
                node.target = _official_operator(node)
        module.recompile()
    return made


def _official_operator(node: Node) -> Any:
    target = node.target
    op = underlying(target)
    if op is target and not hasattr(target, "_schema"):
        return target
    namespace, name = op._schema.name.split("::")
    overload = op._schema.overload_name or "default"
    if not isinstance(target, EdgeOpOverload) and isinstance(op, OpOverload):
        return op
    return getattr(getattr(getattr(official_ops.edge, namespace), name), overload)
