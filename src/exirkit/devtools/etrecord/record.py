"""A record of a lowering: nodes of the Edge programs with their sources, and the debug handles of instructions.

A saved record is a zip archive. A part of our own has the nodes and no weights. The other part holds the Edge programs
as the official package stores them, so that its Inspector takes the file; it can be left out, and its weights can.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import IO, Any, Final

import torch
from pydantic import TypeAdapter
from torch.export import ExportedProgram
from torch.fx import GraphModule

from exirkit.devtools.bundled_program.core import BundledProgram
from exirkit.emit import replaced_file
from exirkit.ir import Diagnostic, Location, ModelError, UsageError, module_paths, module_types

from .official_form import restored_program, stored_program

_IDENTIFIER: Final = "ETRECORD_V0"
_EDGE: Final = "edge_dialect_exported_program"
_EXPORTED: Final = "exported_program"
_GRAPH_ID: Final = "export_graph_id"
_HANDLES: Final = "debug_handle_map"
_DELEGATES: Final = "delegate_map"
_COUNTS: Final = "instruction_id_to_num_outs_map"
_OUTPUTS: Final = "reference_outputs"
_INPUTS: Final = "representative_inputs"
# The official reader takes every name that it does not know for a program, unless it ends like this.
_NODES: Final = "exirkit_nodes_constants"
_EXACT_HANDLES: Final = "exirkit_handles_constants"
_COMPANIONS: Final = ("_state_dict", "_constants", "_example_inputs")
_RESERVED: Final = (_IDENTIFIER, _EDGE, _EXPORTED, _GRAPH_ID, _HANDLES, _DELEGATES, _COUNTS, _OUTPUTS, _INPUTS)
_MOST_NBYTES: Final = 1 << 34

Handles = int | Sequence[int]
Programs = ExportedProgram | Mapping[str, ExportedProgram]


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
        within: Of a node in a body of control flow, the name of the call in the graph of the method.
    """

    name: str
    op: str
    handles: tuple[int, ...]
    stack_trace: str | None = None
    module: str | None = None
    module_type: str | None = None
    within: str | None = None


_NodeLists = TypeAdapter(dict[str, list[RecordedNode]])
_HandleMaps = TypeAdapter(dict[str, dict[int, int | tuple[int, ...]]])
_DelegateMaps = TypeAdapter(dict[str, dict[int, Any]])
_CountMaps = TypeAdapter(dict[str, dict[int, int]])


class ETRecord:
    """What a lowering did, for tools that examine runs of its program.

    `to_edge(..., generate_etrecord=True)` and `get_etrecord()` of what `to_executorch` returns give one.

    Attributes:
        nodes: The calls of each method, in the order of their graphs.
        debug_handle_map: For each method, the debug handle or handles of its instructions by index.
        delegate_map: For each method, what delegates report about their instructions by index.
        instruction_id_to_num_outs_map: For each method, the number of results of its calls of delegates, by index.
        representative_inputs: Inputs of `forward` to which a run can be compared.
        reference_outputs: Outputs that are expected, by method, for each test case.
        unread: Of programs in the file that cannot be restored, why; complete once programs were asked for.
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
        self._programs = dict(programs or {})
        self._stored: dict[str, _StoredProgram] = {}
        self.unread: dict[str, str] = {}
        self._exported: dict[str, ExportedProgram] = {}
        self._extra: dict[str, ExportedProgram] = {}
        self.nodes = {name: list(each) for name, each in (nodes or {}).items()}
        for name, program in self._programs.items():
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

    def _restore(self) -> None:
        """Restore the programs of a file, which takes a while, when they are asked for first."""
        while self._stored:
            name, stored = self._stored.popitem()
            try:
                program = stored.restored()
            except Exception as error:  # whatever torch does not restore
                self.unread[name.removeprefix(f"{_EDGE}/")] = f"{type(error).__name__}: {error}"[:400]
                continue
            if name.startswith(f"{_EDGE}/"):
                self._programs[name.removeprefix(f"{_EDGE}/")] = program
            elif name == _EXPORTED:
                self._exported["forward"] = program
            else:
                self._extra[name] = program

    @property
    def programs(self) -> dict[str, ExportedProgram]:
        """Edge programs by method."""
        self._restore()
        return self._programs

    @property
    def exported_programs(self) -> dict[str, ExportedProgram]:
        """What `torch.export` made, by method, if that was added; a file has that of `forward`."""
        self._restore()
        return self._exported

    @property
    def graph_map(self) -> dict[str, ExportedProgram]:
        """Further programs that were added, by `NAME/METHOD`."""
        self._restore()
        return self._extra

    @property
    def edge_dialect_program(self) -> ExportedProgram | dict[str, ExportedProgram] | None:
        """The Edge program, or programs by method if there are several."""
        programs = self.programs
        return next(iter(programs.values())) if len(programs) == 1 else programs or None

    @property
    def exported_program(self) -> ExportedProgram | None:
        """What `torch.export` made for `forward`."""
        return self.exported_programs.get("forward")

    def add_exported_program(self, exported_program: Programs | None) -> None:
        """Add what `torch.export` made: one program, or programs by method; None adds nothing.

        Raises:
            UsageError: EK785, the record has one; EK787, it is something else.
        """
        _require_none(self.exported_programs, "an exported program")
        self._exported = {} if exported_program is None else _by_method(exported_program)

    def add_edge_dialect_program(self, edge_dialect_program: Any) -> None:
        """Add the Edge programs: what `to_edge` returned, or a program, or programs by method.

        Raises:
            UsageError: EK785, the record has them; EK787, it is something else.
        """
        _require_none(self.programs, "Edge programs")
        self._programs = _by_method(edge_dialect_program)
        self.nodes = {name: _nodes_of(program) for name, program in self._programs.items()}

    def add_executorch_program(self, executorch_program: Any) -> None:
        """Add the debug handles of what `to_executorch` returned.

        Of a `BundledProgram`, what its test cases expect and the inputs of the first one of `forward` are added too.

        Raises:
            UsageError: EK785, the record has debug handles, inputs or outputs; EK786, a test case lacks what it
                expects; EK787, it is something else.
        """
        _require_none(self.debug_handle_map, "a program")
        _require_none(self.representative_inputs is not None or self.reference_outputs is not None, "inputs or outputs")
        is_bundle = isinstance(executorch_program, BundledProgram)
        made = executorch_program.executorch_program if is_bundle else executorch_program
        maps = [getattr(made, name, None) for name in (_HANDLES, _DELEGATES, _COUNTS)]
        if not isinstance(maps[0], Mapping):
            expected = "what to_executorch returned, or a BundledProgram of it"
            message = f"a {type(made).__name__} has no debug handles"
            raise UsageError(Diagnostic.of("EK787", message, expected=expected))
        if is_bundle:
            self.update_reference_outputs(executorch_program)
            self.update_representative_inputs(executorch_program)
        self.debug_handle_map, self.delegate_map, self.instruction_id_to_num_outs_map = (
            {name: dict(each) for name, each in (found or {}).items()} for found in maps
        )

    def add_extra_export_modules(self, extra_recorded_export_modules: Mapping[str, Any]) -> None:
        """Add further programs to examine, by a name: a program, or what `to_edge` returned.

        Raises:
            UsageError: EK787, it is something else, or the record needs the name for itself.
        """
        for name, given in extra_recorded_export_modules.items():
            if any(one in name for one in _RESERVED):
                message = f"programs of a record cannot have the name {name!r}"
                raise UsageError(Diagnostic.of("EK787", message, expected=f"one without {', '.join(_RESERVED)}"))
            self._extra |= {f"{name}/{method}": program for method, program in _by_method(given).items()}

    def update_representative_inputs(self, inputs: Sequence[Any] | BundledProgram) -> None:
        """Set inputs of `forward`, flat, to which a run can be compared: given, or of its first bundled test case.

        Raises:
            UsageError: EK786, `forward` has a suite without a case.
        """
        if not isinstance(inputs, BundledProgram):
            self.representative_inputs = list(inputs)
            return
        suite = next((one for one in inputs.method_test_suites if one.method_name == "forward"), None)
        if suite is not None and not suite.test_cases:
            raise UsageError(Diagnostic.of("EK786", "the suite of forward has no test case"))
        self.representative_inputs = None if suite is None else list(suite.test_cases[0].inputs)

    def update_reference_outputs(self, outputs: Mapping[str, Sequence[Any]] | Sequence[Any] | BundledProgram) -> None:
        """Set the outputs that are expected, for each test case: of `forward`, by method, or those of a bundle.

        Raises:
            UsageError: EK786, a test case of the bundle expects nothing.
        """
        if isinstance(outputs, BundledProgram):
            found: dict[str, list[Any]] = {}
            for suite in outputs.method_test_suites:
                for index, case in enumerate(suite.test_cases):
                    if not case.expected_outputs:
                        message = f"test case {index} of {suite.method_name} has no expected outputs"
                        raise UsageError(Diagnostic.of("EK786", message))
                found[suite.method_name] = [case.expected_outputs for case in suite.test_cases]
            outputs = found
        named = outputs if isinstance(outputs, Mapping) else {"forward": outputs}
        self.reference_outputs = {name: list(each) for name, each in named.items()}

    def copy(self) -> ETRecord:
        """Return a record with the same programs, and nothing of what became of them."""
        made = ETRecord(self.programs, nodes=self.nodes)
        made._exported, made._extra = dict(self.exported_programs), dict(self.graph_map)
        return made

    def nodes_of(self, method: str, instruction: int) -> list[RecordedNode]:
        """Return the nodes behind an instruction, in the order of the graph."""
        return self.nodes_with(method, self.debug_handle_map.get(method, {}).get(instruction))

    def nodes_with(self, method: str, handle: Handles | None) -> list[RecordedNode]:
        """Return the nodes that have one of some debug handles, in the order of the graph."""
        wanted = set(_listed(handle))
        return [node for node in self.nodes.get(method, ()) if not wanted.isdisjoint(node.handles)]

    def save(self, path: str | PathLike[str] | IO[bytes], *, official: bool = True, weights: bool = True) -> None:
        """Write the record.

        Args:
            path: The file (`.etrecord`): a path, or a binary file to write to.
            official: Whether to store the programs, in the form that the official Inspector reads. A program that torch
                does not serialise is left out with a warning (EK740).
            weights: Whether these have the values of weights, which only a numeric gap needs.

        Raises:
            UsageError: EK739, there is nothing in the record that a reader could use.
            OSError: The file cannot be written.
        """
        if not self.nodes or not self.debug_handle_map:
            raise UsageError(Diagnostic.of("EK739", "the record has no programs or no debug handles"))
        members = self._members(official, weights)
        with replaced_file(path) if isinstance(path, str | PathLike) else nullcontext(path) as target:
            _write_archive(target, members)

    def _members(self, official: bool, weights: bool) -> list[tuple[str, bytes]]:
        nodes = {name: [asdict(node) for node in each] for name, each in self.nodes.items()}
        found = [(_IDENTIFIER, b""), (_NODES, json.dumps(nodes).encode())]
        found.append((_EXACT_HANDLES, json.dumps(self.debug_handle_map).encode()))
        expanded: dict[str, dict[int, list[int]]] = {}
        stored: list[tuple[str, ExportedProgram, Mapping[str, Sequence[int | None]]]] = []
        if official:
            for name, program in self.programs.items():
                single, expanded[name] = _single_handles(self.nodes[name])
                stored.append((f"{_EDGE}/{name}", program, single))
            if self.exported_program is not None:
                stored.append((_EXPORTED, self.exported_program, {}))
                # The official form has a number here that tells the graph apart from others in its process.
                found.append((_GRAPH_ID, b"0"))
            stored += [(name, program, {}) for name, program in self.graph_map.items()]
        for name, program, handles_of in stored:
            try:
                members = stored_program(program, handles_of, weights=weights)
            except Exception as error:  # whatever torch does not serialise
                finding = Diagnostic.of("EK740", f"{name} is not in the record for the official Inspector: {error}")
                warnings.warn(finding.headline(), stacklevel=3)
                continue
            found += [(f"{name}{suffix}", data) for suffix, data in members.items()]
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


def generate_etrecord(
    et_record: str | PathLike[str],
    edge_dialect_program: Any,
    executorch_program: Any,
    exported_program: Programs | None = None,
    extra_recorded_export_modules: Mapping[str, Any] | None = None,
) -> None:
    """Write a record of programs that were lowered without one.

    Args:
        et_record: The file.
        edge_dialect_program: What `to_edge` returned.
        executorch_program: What `to_executorch` returned, or a `BundledProgram` of it.
        exported_program: What `torch.export` made.
        extra_recorded_export_modules: Further programs by name.

    Raises:
        UsageError: EK739, EK786, EK787: something has not what a record needs.
        OSError: The file cannot be written.

    Source: `generate_etrecord` of the ExecuTorch documentation.
    """
    record = ETRecord()
    record.add_exported_program(exported_program)
    record.add_edge_dialect_program(edge_dialect_program)
    record.add_executorch_program(executorch_program)
    record.add_extra_export_modules(extra_recorded_export_modules or {})
    record.save(et_record)


def _require_none(found: object, what: str) -> None:
    if found:
        raise UsageError(Diagnostic.of("EK785", f"the record has {what} already"))


def _by_method(given: Any) -> dict[str, ExportedProgram]:
    """Return programs by method, of one program, a dict, or what `to_edge` returned."""
    if isinstance(given, ExportedProgram):
        return {"forward": given}
    if hasattr(given, "methods") and callable(getattr(given, "exported_program", None)):
        given = {name: given.exported_program(name) for name in sorted(given.methods)}
    if isinstance(given, Mapping) and all(isinstance(one, ExportedProgram) for one in given.values()):
        return dict(given)
    message = f"a {type(given).__name__} is not a program of a record"
    raise UsageError(Diagnostic.of("EK787", message, expected="an ExportedProgram, or what to_edge returned"))


def parse_etrecord(etrecord_path: str | PathLike[str]) -> ETRecord:
    """Read a record of exirkit or of the official package.

    Raises:
        ModelError: EK745, the file is not a record, or is damaged.
        OSError: The file cannot be opened.
    """
    with open(etrecord_path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = set(archive.namelist())
                nbytes = sum(one.file_size for one in archive.infolist())
                record = _read(archive, members) if _IDENTIFIER in members and nbytes <= _MOST_NBYTES else None
        except Exception as error:  # four libraries, each with errors of its own for what is damaged
            raise _not_a_record(etrecord_path, f"{type(error).__name__}: {error}"[:400]) from error
    if record is None:
        raise _not_a_record(etrecord_path, f"it has no member {_IDENTIFIER}, or unpacks to more than 16 GiB")
    return record


def _not_a_record(path: str | PathLike[str], why: str) -> ModelError:
    return ModelError(Diagnostic.of("EK745", f"the file is not a record: {why}", location=Location(file=str(path))))


def _read(archive: zipfile.ZipFile, members: set[str]) -> ETRecord:
    def document(name: str, form: TypeAdapter[Any]) -> Any:
        return form.validate_python((json.loads(archive.read(name)) if name in members else {}) or {})

    def saved(name: str, *kinds: type) -> Any:
        if name not in members:
            return None
        found = torch.load(io.BytesIO(archive.read(name)), map_location="cpu", weights_only=True)
        if not isinstance(found, kinds):
            raise TypeError(f"{name} is a {type(found).__name__}")
        return found

    record = ETRecord(
        nodes=_read_nodes(archive, members),
        debug_handle_map=document(_EXACT_HANDLES if _EXACT_HANDLES in members else _HANDLES, _HandleMaps),
        delegate_map=document(_DELEGATES, _DelegateMaps),
        instruction_id_to_num_outs_map=document(_COUNTS, _CountMaps),
    )
    record.representative_inputs, record.reference_outputs = saved(_INPUTS, list, tuple), saved(_OUTPUTS, dict)
    for name in sorted(members):
        needed = [name, *(f"{name}{suffix}" for suffix in _COMPANIONS[:2])]
        # A name that a record uses for something else has no companions.
        if members.issuperset(needed):
            record._stored[name] = _StoredProgram(*map(archive.read, needed))
    return record


@dataclass(frozen=True)
class _StoredProgram:
    """Members of an archive that hold a program."""

    document: bytes
    state: bytes
    constants: bytes

    def restored(self) -> ExportedProgram:
        state, constants = (
            torch.load(io.BytesIO(data), map_location="cpu", weights_only=True) for data in (self.state, self.constants)
        )
        return restored_program(json.loads(self.document), state, constants)


def _write_archive(target: Path | IO[bytes], members: Iterable[tuple[str, bytes]]) -> None:
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in members:
            # Equal records give equal files: no member has a date.
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def _read_nodes(archive: zipfile.ZipFile, members: set[str]) -> dict[str, list[RecordedNode]]:
    if _NODES in members:
        return _NodeLists.validate_python(json.loads(archive.read(_NODES)))
    found = {}
    for name in sorted(members):
        if name.startswith(f"{_EDGE}/") and not name.endswith(_COMPANIONS):
            graph = json.loads(archive.read(name))["graph_module"]["graph"]
            found[name.removeprefix(f"{_EDGE}/")] = list(_official_nodes(graph, None))
    return found


def _official_nodes(graph: Mapping[str, Any], within: str | None) -> Iterator[RecordedNode]:
    for stored in graph["nodes"]:
        node = _official_node(stored, within)
        yield node
        for argument in stored.get("inputs", ()):
            if "as_graph" in argument["arg"]:
                yield from _official_nodes(argument["arg"]["as_graph"]["graph"], within or node.name)


def _official_node(stored: Mapping[str, Any], within: str | None) -> RecordedNode:
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
        within=within,
    )


def _listed(handle: Handles | None) -> tuple[int, ...]:
    if handle is None:
        return ()
    return (handle,) if isinstance(handle, int) else tuple(handle)


def _nodes_of(program: ExportedProgram) -> list[RecordedNode]:
    found: list[RecordedNode] = []
    _add_nodes(found, program.graph_module, (None, None), None)
    return found


def _add_nodes(
    found: list[RecordedNode], module: GraphModule, outer: tuple[str | None, str | None], within: str | None
) -> None:
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
                within=within,
            )
        )
        for argument in node.all_input_nodes:
            body = getattr(module, str(argument.target), None) if argument.op == "get_attr" else None
            if isinstance(body, GraphModule):
                _add_nodes(found, body, place, within or node.name)


def _single_handles(nodes: Sequence[RecordedNode]) -> tuple[dict[str, list[int | None]], dict[int, list[int]]]:
    """Return one handle for each node, since the official form takes no more, and what handles stand for then.

    Bodies of control flow have names of their own: nodes of one name are in the order of the graphs. The official
    reader knows only the nodes of a method's own graph, so handles in bodies stand for the call around them too.
    """
    last = max((handle for node in nodes for handle in node.handles), default=0)
    single: dict[str, list[int | None]] = {}
    expanded: dict[int, list[int]] = {}
    calls: dict[str, int | None] = {}
    for node in nodes:
        only = node.handles[0] if node.handles else None
        if len(node.handles) > 1:
            only = last = last + 1
            for handle in node.handles:
                expanded.setdefault(handle, []).append(last)
        single.setdefault(node.name, []).append(only)
        if node.within is None:
            calls[node.name] = only
        elif (call := calls.get(node.within)) is not None:
            for handle in node.handles:
                expanded.setdefault(handle, []).append(call)
    return single, expanded


def _expanded(handle: Handles, expanded: Mapping[int, Sequence[int]]) -> Handles:
    listed = _listed(handle)
    more = [new for one in listed for new in expanded.get(one, ())]
    return handle if not more else [*listed, *dict.fromkeys(more)]
