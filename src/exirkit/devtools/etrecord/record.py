"""A record of a lowering: nodes of the Edge programs with their sources, and the debug handles of instructions.

A saved record is a zip archive. A part of our own has the nodes and no weights. The other part holds the Edge programs
as the official package stores them, so that its Inspector takes the file; it can be left out, and its weights can.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from exirkit.ir import Diagnostic, Location, ModelError, UsageError, module_paths, module_types

from .official_form import stored_program

_IDENTIFIER: Final = "ETRECORD_V0"
_EDGE: Final = "edge_dialect_exported_program"
_HANDLES: Final = "debug_handle_map"
_DELEGATES: Final = "delegate_map"
_COUNTS: Final = "instruction_id_to_num_outs_map"
_OUTPUTS: Final = "reference_outputs"
_INPUTS: Final = "representative_inputs"
# The official reader takes every name that it does not know for a program, unless it ends like this.
_NODES: Final = "exirkit_nodes_constants"
_COMPANIONS: Final = ("_state_dict", "_constants", "_example_inputs")

Handles = int | Sequence[int]


@dataclass(frozen=True)
class RecordedNode:
    """A call of an Edge program.

    Attributes:
        name: Name of the node.
        op: Its operator, such as `aten.addmm.default`.
        handles: Its debug handles.
        stack_trace: Where in the model it comes from, as Python prints it.
        module: Path of the module, such as `features.3`; empty for the model itself.
        module_type: Class of the module.
    """

    name: str
    op: str
    handles: tuple[int, ...]
    stack_trace: str | None = None
    module: str | None = None
    module_type: str | None = None


class ETRecord:
    """What a lowering did, for tools that examine runs of its program.

    `to_edge(..., generate_etrecord=True)` and `get_etrecord()` of what `to_executorch` returns give one.

    Attributes:
        programs: Edge programs by method; empty for a record that was read from a file.
        nodes: The calls of each method, in the order of their graphs.
        debug_handle_map: For each method, the debug handle or handles of its instructions by index.
        delegate_map: For each method, what delegates report about their instructions by index.
        instruction_id_to_num_outs_map: For each method, the number of results of its calls of delegates, by index.
        representative_inputs: Inputs of `forward` to which a run can be compared.
        reference_outputs: Outputs that are expected, by method, for each test case.
    """

    def __init__(
        self,
        programs: Mapping[str, ExportedProgram] | None = None,
        *,
        nodes: Mapping[str, Sequence[RecordedNode]] | None = None,
        debug_handle_map: Mapping[str, Mapping[int, Handles]] | None = None,
        delegate_map: Mapping[str, Mapping[int, Any]] | None = None,
        instruction_id_to_num_outs_map: Mapping[str, Mapping[int, int]] | None = None,
    ) -> None:
        self.programs = dict(programs or {})
        self.nodes = {name: list(each) for name, each in (nodes or {}).items()}
        for name, program in self.programs.items():
            self.nodes.setdefault(name, _nodes_of(program))
        self.debug_handle_map: dict[str, dict[int, Handles]] = {
            name: dict(each) for name, each in (debug_handle_map or {}).items()
        }
        self.delegate_map = {name: dict(each) for name, each in (delegate_map or {}).items()}
        self.instruction_id_to_num_outs_map = {
            name: dict(each) for name, each in (instruction_id_to_num_outs_map or {}).items()
        }
        self.representative_inputs: list[Any] | None = None
        self.reference_outputs: dict[str, list[Any]] | None = None

    def update_representative_inputs(self, inputs: Sequence[Any]) -> None:
        """Set inputs of `forward`, flat, to which a run can be compared."""
        self.representative_inputs = list(inputs)

    def update_reference_outputs(self, outputs: Mapping[str, Sequence[Any]] | Sequence[Any]) -> None:
        """Set the outputs that are expected, for each test case: of `forward`, or by method."""
        named = outputs if isinstance(outputs, Mapping) else {"forward": outputs}
        self.reference_outputs = {name: list(each) for name, each in named.items()}

    def nodes_of(self, method: str, instruction: int) -> list[RecordedNode]:
        """Return the nodes behind an instruction, in the order of the graph."""
        return self.nodes_with(method, self.debug_handle_map.get(method, {}).get(instruction))

    def nodes_with(self, method: str, handle: Handles | None) -> list[RecordedNode]:
        """Return the nodes that have one of some debug handles, in the order of the graph."""
        wanted = set(_listed(handle))
        return [node for node in self.nodes.get(method, ()) if not wanted.isdisjoint(node.handles)]

    def save(self, path: str | PathLike[str], *, official: bool = True, weights: bool = True) -> None:
        """Write the record.

        Args:
            path: The file (`.etrecord`).
            official: Whether to store the Edge programs for the official Inspector; a record that was read from a file
                does not have them. A program that torch does not serialise is left out with a warning (EK740).
            weights: Whether these have the values of weights, which only the official numeric gap needs.

        Raises:
            UsageError: EK739, there is nothing in the record that a reader could use.
            OSError: The file cannot be written.
        """
        if not self.nodes or not self.debug_handle_map:
            raise UsageError(Diagnostic.of("EK739", "the record has no programs or no debug handles"))
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in self._members(official, weights):
                # Equal records give equal files: no member has a date.
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)

    def _members(self, official: bool, weights: bool) -> list[tuple[str, bytes]]:
        nodes = {name: [asdict(node) for node in each] for name, each in self.nodes.items()}
        found = [(_IDENTIFIER, b""), (_NODES, json.dumps(nodes).encode())]
        expanded: dict[str, dict[int, list[int]]] = {}
        for name, program in self.programs.items() if official else ():
            single, expanded[name] = _single_handles(self.nodes[name])
            try:
                members = stored_program(program, single, weights=weights)
            except Exception as error:  # whatever torch does not serialise
                finding = Diagnostic.of("EK740", f"{name} is not in the record for the official Inspector: {error}")
                warnings.warn(finding.headline(), stacklevel=3)
                continue
            found += [(f"{_EDGE}/{name}{suffix}", data) for suffix, data in members.items()]
        handles = {
            name: {at: _expanded(handle, expanded.get(name, {})) for at, handle in each.items()}
            for name, each in self.debug_handle_map.items()
        }
        for name, document in (
            (_HANDLES, handles),
            (_DELEGATES, self.delegate_map),
            (_COUNTS, self.instruction_id_to_num_outs_map),
        ):
            found.append((name, json.dumps(document).encode()))
        for name, value in ((_OUTPUTS, self.reference_outputs), (_INPUTS, self.representative_inputs)):
            if value is not None:
                buffer = io.BytesIO()
                torch.save(value, buffer)
                found.append((name, buffer.getvalue()))
        return found


def parse_etrecord(etrecord_path: str | PathLike[str]) -> ETRecord:
    """Read a record of exirkit or of the official package; of its programs only the nodes are read.

    Raises:
        ModelError: EK745, the file is not a record, or is damaged.
        OSError: The file cannot be opened.
    """
    try:
        with zipfile.ZipFile(etrecord_path) as archive:
            members = set(archive.namelist())
            record = _read(archive, members) if _IDENTIFIER in members else None
    except OSError:
        raise
    except Exception as error:  # three libraries, each with errors of its own for what is damaged
        raise _not_a_record(etrecord_path, f"{type(error).__name__}: {error}") from error
    if record is None:
        raise _not_a_record(etrecord_path, f"it has no member {_IDENTIFIER}")
    return record


def _not_a_record(path: str | PathLike[str], why: str) -> ModelError:
    return ModelError(Diagnostic.of("EK745", f"the file is not a record: {why}", location=Location(file=str(path))))


def _read(archive: zipfile.ZipFile, members: set[str]) -> ETRecord:
    def document(name: str) -> dict[str, Any]:
        found = json.loads(archive.read(name)) if name in members else {}
        return {method: {int(at): _tupled(one) for at, one in each.items()} for method, each in (found or {}).items()}

    def saved(name: str) -> Any:
        if name not in members:
            return None
        return torch.load(io.BytesIO(archive.read(name)), map_location="cpu", weights_only=True)

    record = ETRecord(
        nodes=_read_nodes(archive, members),
        debug_handle_map=document(_HANDLES),
        delegate_map=document(_DELEGATES),
        instruction_id_to_num_outs_map=document(_COUNTS),
    )
    record.representative_inputs, record.reference_outputs = saved(_INPUTS), saved(_OUTPUTS)
    return record


def _read_nodes(archive: zipfile.ZipFile, members: set[str]) -> dict[str, list[RecordedNode]]:
    if _NODES in members:
        return {
            name: [RecordedNode(**{**node, "handles": tuple(node["handles"])}) for node in each]
            for name, each in json.loads(archive.read(_NODES)).items()
        }
    found = {}
    for name in sorted(members):
        if name.startswith(f"{_EDGE}/") and not name.endswith(_COMPANIONS):
            graph = json.loads(archive.read(name))["graph_module"]["graph"]
            found[name.removeprefix(f"{_EDGE}/")] = [_official_node(one) for one in graph["nodes"]]
    return found


def _official_node(stored: Mapping[str, Any]) -> RecordedNode:
    metadata = stored.get("metadata", {})
    handle = metadata.get("debug_handle")
    # Entries of the stack are separated by semicolons, its parts by commas: id, path, class.
    innermost = (metadata.get("nn_module_stack") or "").rpartition(";")[2].split(",")
    _, module, kind = innermost if len(innermost) == 3 else ("", None, None)
    return RecordedNode(
        name=str(stored.get("name", "")),
        op=str(stored.get("target", "")).rpartition(".ops.")[2],
        handles=() if handle is None else (int(handle),),
        stack_trace=metadata.get("stack_trace"),
        module=None if module is None else module.removeprefix("L['self']").removeprefix("."),
        module_type=kind,
    )


def _tupled(stored: Any) -> Any:
    return tuple(stored) if isinstance(stored, list) else stored


def _listed(handle: Handles | None) -> tuple[int, ...]:
    if handle is None:
        return ()
    return (handle,) if isinstance(handle, int) else tuple(handle)


def _nodes_of(program: ExportedProgram) -> list[RecordedNode]:
    found: list[RecordedNode] = []
    _add_nodes(found, program.graph_module, (None, None))
    return found


def _add_nodes(found: list[RecordedNode], module: GraphModule, outer: tuple[str | None, str | None]) -> None:
    """Add the calls of a graph; torch forgets the modules of bodies of control flow, which are those of the call."""
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        paths, types = module_paths(node), module_types(node)
        place = (paths[-1], types[-1]) if paths else outer
        found.append(
            RecordedNode(
                name=node.name,
                op=str(getattr(node.target, "__name__", node.target)),
                handles=_listed(node.meta.get("debug_handle")),
                stack_trace=node.meta.get("stack_trace"),
                module=place[0],
                module_type=place[1],
            )
        )
        for argument in node.all_input_nodes:
            body = getattr(module, str(argument.target), None) if argument.op == "get_attr" else None
            if isinstance(body, GraphModule):
                _add_nodes(found, body, place)


def _single_handles(nodes: Sequence[RecordedNode]) -> tuple[dict[str, int], dict[int, list[int]]]:
    """Return one handle for each node, since the official form takes no more, and what handles stand for then."""
    last = max((handle for node in nodes for handle in node.handles), default=0)
    single: dict[str, int] = {}
    expanded: dict[int, list[int]] = {}
    for node in nodes:
        if len(node.handles) == 1:
            single[node.name] = node.handles[0]
        elif node.handles:
            last += 1
            single[node.name] = last
            for handle in node.handles:
                expanded.setdefault(handle, []).append(last)
    return single, expanded


def _expanded(handle: Handles, expanded: Mapping[int, Sequence[int]]) -> Handles:
    listed = _listed(handle)
    more = [new for one in listed for new in expanded.get(one, ())]
    return handle if not more else [*listed, *dict.fromkeys(more)]
