"""Our chain under the names of the official one, for tests that were written for the official one.

`to_edge` and `to_edge_transform_and_lower` of `executorch.exir` are replaced before a test module imports them. What
they return is an `EdgeProgramManager` of the official class, because tests ask for it, and shows its programs with
official operators; every step that it takes is a step of ours.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import reduce
from types import SimpleNamespace
from typing import Any

import executorch.exir
import executorch.exir.program
import executorch.exir.program._program as official_module
import torch
from executorch.exir._serialize import _deserialize_pte_binary
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.passes import MemoryPlanningPass as OfficialPlanningPass
from torch.export import ExportedProgram

import exirkit
from exirkit.bridge import OfficialPartitioner, edge_from_official, official_planning_pass, official_program

_LISTS = ("_core_aten_ops_exception_list", "preserve_ops")
# Copies that passes under test look for, which our Edge leaves out where they change nothing.
_PRESERVED = [
    reduce(getattr, name.split("."), torch.ops) for name in json.loads(os.environ.get("UPSTREAM_PRESERVE", "[]"))
]


class Steps:
    """How many steps of the chain were taken, so that a test that takes none is known for one."""

    taken = 0


def install() -> None:
    """Replace the official functions."""
    for module in (executorch.exir, executorch.exir.program, official_module):
        for name, made in (("to_edge", to_edge), ("to_edge_transform_and_lower", to_edge_transform_and_lower)):
            setattr(module, name, made)


def to_edge(
    programs: Any,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: Any = None,
    generate_etrecord: bool = False,
) -> EdgeManager:
    """Lower to Edge; records for developer tools are left out."""
    del generate_etrecord
    return EdgeManager(exirkit.to_edge(programs, constant_methods, _edge_config(compile_config)))


def to_edge_transform_and_lower(
    programs: Any,
    transform_passes: Any = None,
    partitioner: Any = None,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: Any = None,
    generate_etrecord: bool = False,
) -> EdgeManager:
    """Lower to Edge, with operators whole for the partitioners, and to delegates."""
    del generate_etrecord
    chosen = _each(partitioner, lambda given: [OfficialPartitioner(one) for one in _several(given)])
    config = _edge_config(compile_config)
    return EdgeManager(
        exirkit.to_edge_transform_and_lower(programs, transform_passes, chosen or None, constant_methods, config)
    )


class EdgeManager(executorch.exir.EdgeProgramManager):  # type: ignore[misc]
    """A manager of ours that passes for an official one."""

    def __init__(self, ours: exirkit.EdgeProgramManager) -> None:
        self._ours = ours
        Steps.taken += 1

    @property
    def _edge_programs(self) -> MutableMapping[str, ExportedProgram]:
        return _Programs(self)

    @property
    def methods(self) -> set[str]:
        return self._ours.methods

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        program = official_program(self._ours.exported_program(method_name))
        if any(node.target is executorch_call_delegate for node in program.graph.nodes):
            # What the official chain happens to call the outputs of a graph that it has made again.
            program.graph.output_node().name = "output_1"
        return program

    def transform(self, passes: Any, compile_config: Any = None) -> EdgeManager:
        del compile_config
        return EdgeManager(self._ours.transform(passes))

    def to_backend(self, partitioner: Any) -> EdgeManager:
        return EdgeManager(self._ours.to_backend(_each(partitioner, OfficialPartitioner)))

    def to_executorch(self, config: Any = None) -> Any:
        passes = getattr(config, "passes", None) or []
        options = replace(_ours(exirkit.ExecutorchBackendConfig, config), passes=passes)
        planner = getattr(config, "memory_planning_pass", None)
        if planner is not None and type(planner) is not OfficialPlanningPass:
            # Default planners of both chains are compared elsewhere; others are what a test is about.
            options = replace(options, memory_planning_pass=official_planning_pass(planner))
        return ExecutorchManager(self._ours.to_executorch(options))


class ExecutorchManager:
    """A manager of ours that has the private fields of an official one that tests read."""

    def __init__(self, ours: exirkit.ExecutorchProgramManager) -> None:
        self._ours = ours

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ours, name)

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """The planned program, with official operators and specs."""
        return official_program(self._ours.exported_program(method_name))

    @property
    def executorch_program(self) -> Any:
        """What the official reader finds in the file."""
        return _deserialize_pte_binary(self._ours.buffer).program

    @property
    def _tensor_data(self) -> Mapping[str, bytes]:
        return self._ours.tensor_data

    @property
    def _named_data(self) -> SimpleNamespace:
        data = self._ours._output.named_data or {}
        stored = {bytes(blob.data) for blob in data.values()}
        return SimpleNamespace(pte_data=data, buffers=stored, external_data=self._ours.tensor_data)

    @property
    def _emitter_output(self) -> SimpleNamespace:
        return SimpleNamespace(program=self._ours.executorch_program)


class _Programs(MutableMapping[str, ExportedProgram]):
    """The programs of a manager, which some tests replace."""

    def __init__(self, manager: EdgeManager) -> None:
        self._manager = manager

    def __getitem__(self, name: str) -> ExportedProgram:
        return self._manager.exported_program(name)

    def __setitem__(self, name: str, program: ExportedProgram) -> None:
        others = {one: self._manager._ours.exported_program(one) for one in self if one != name}
        made = edge_from_official(program).exported_program()
        config = exirkit.EdgeCompileConfig(_check_ir_validity=False)
        self._manager._ours = exirkit.EdgeProgramManager({**others, name: made}, None, config)

    def __delitem__(self, name: str) -> None:
        raise NotImplementedError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._manager.methods))

    def __len__(self) -> int:
        return len(self._manager.methods)


def _each(given: Any, made: Callable[[Any], Any]) -> Any:
    """Make something of what is given for all methods, or for each."""
    return {name: made(one) for name, one in given.items()} if isinstance(given, Mapping) else made(given)


def _several(given: Any) -> Sequence[Any]:
    if given is None:
        return []
    return given if isinstance(given, Sequence) else [given]


def _edge_config(theirs: Any) -> exirkit.EdgeCompileConfig:
    config = _ours(exirkit.EdgeCompileConfig, theirs)
    return replace(config, preserve_ops=[*config.preserve_ops, *_PRESERVED])


def _ours(kind: Any, theirs: Any) -> Any:
    """Return our options with those of theirs that are plain values and that we have too."""
    if theirs is None:
        return kind()
    names = {field.name for field in dataclasses.fields(kind)} & {field.name for field in dataclasses.fields(theirs)}
    values = {name: getattr(theirs, name) for name in sorted(names)}
    # What is left are planners and the like, which are objects of their package.
    plain = {name: value for name, value in values.items() if isinstance(value, bool | int) or name in _LISTS}
    return kind(**plain)
