"""The verifiers under the documented names give the verdicts of the official ones on the same programs."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._export.verifier import SpecViolationError
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit import EdgeCompileConfig, to_edge
from exirkit.ir import ops
from exirkit.verifiers import (
    EXIRATenDialectVerifier,
    EXIRBackendDialectVerifier,
    EXIREdgeDialectVerifier,
    check_edge_program,
    get_aten_verifier,
)


class Of(torch.nn.Module):
    def __init__(self, function: Callable[..., Any], **stored: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        for name, tensor in stored.items():
            self.register_buffer(name, tensor)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def exported(function: Callable[..., Any], *inputs: torch.Tensor) -> ExportedProgram:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(Of(function), inputs)


def official_module(name: str) -> Any:
    """Import a module of the official package, whose warnings are its own business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def verdict(verifier: Any, program: Any) -> bool:
    """Return whether a verifier accepts; the official ones fail in other ways, too, which is not acceptance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            verifier(program)
        except Exception:
            return False
    return True


X, Y = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.int64)
ATEN: dict[str, tuple[bool, Callable[..., Any]]] = {
    "core": (True, lambda x, y: torch.relu(x) + y),
    "view": (True, lambda x, y: x.view(3, 2).permute(1, 0)),
    "not core": (False, lambda x, y: torch.nn.functional.silu(x)),
    "not core either": (False, lambda x, y: torch.special.i0(x)),
    "writes": (False, lambda x, y: x.clone().add_(1)),
    "branch": (True, lambda x, y: torch.cond(x.amax() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))),
    "not core in a branch": (
        False,
        lambda x, y: torch.cond(x.amax() > 0, torch.nn.functional.silu, lambda a: a.cos(), (x,)),
    ),
    "accepted": (True, lambda x, y: (torch.max(x), torch.full_like(x, 2.0))),
}


@pytest.mark.parametrize("name", ATEN)
def test_aten_verdicts(name: str) -> None:
    wanted, function = ATEN[name]
    program = exported(function, X, Y)
    assert verdict(EXIRATenDialectVerifier(), program.graph_module) is wanted
    assert EXIRATenDialectVerifier().is_valid(program) is wanted


@pytest.mark.executorch
@pytest.mark.parametrize("name", ATEN)
def test_aten_verdicts_are_those_of_the_official_verifier(name: str) -> None:
    official = official_module("executorch.exir.verification.verifier")
    program = exported(ATEN[name][1], X, Y)
    assert verdict(official.EXIRATenDialectVerifier(), program.graph_module) is ATEN[name][0]


def test_exceptions_and_preserved_operators() -> None:
    program = exported(ATEN["not core"][1], X, Y)
    silu = torch.ops.aten.silu.default
    assert EXIRATenDialectVerifier(core_aten_ops_exception_list=[silu]).is_valid(program)
    assert EXIRATenDialectVerifier(preserve_ops=[silu]).is_valid(program)
    config = EdgeCompileConfig(_core_aten_ops_exception_list=[silu])
    get_aten_verifier(config)().check(program)
    with pytest.raises(SpecViolationError, match="EK301"):
        get_aten_verifier(EdgeCompileConfig())().check(program)
    get_aten_verifier(EdgeCompileConfig(_check_ir_validity=False))().check(program)
    assert config._core_aten_ops_exception_list == [silu], "the list of the caller does not grow"


def test_a_preserved_view_is_rejected() -> None:
    verifier = EXIRATenDialectVerifier(preserve_ops=[torch.ops.aten.t.default])
    with pytest.raises(RuntimeError, match="view"):
        verifier(exported(lambda x, y: x.t(), X, Y))


def _call(program: ExportedProgram, name: str) -> Node:
    return next(node for node in program.graph.nodes if node.op == "call_function" and name in str(node.target))


def _retarget(program: ExportedProgram, target: Any) -> None:
    _call(program, "relu").target = target


def _remove_value(program: ExportedProgram) -> None:
    del _call(program, "relu").meta["val"]


def _wrong_dtype(program: ExportedProgram) -> None:
    node = _call(program, "relu")
    with node.meta["val"].fake_mode:
        node.meta["val"] = torch.empty(2, 3, dtype=torch.int32)


EDGE: dict[str, tuple[bool, Callable[[ExportedProgram, Any], None]]] = {
    "as it is": (True, lambda program, edge: None),
    "torch operator": (False, lambda program, edge: _retarget(program, torch.ops.aten.relu.default)),
    "assertion": (True, lambda program, edge: _retarget(program, edge.aten.abs.default)),
    "not core": (False, lambda program, edge: _retarget(program, edge.aten.silu.default)),
    "memory format": (False, lambda program, edge: _retarget(program, edge.aten.clone.default)),
    "python function": (False, lambda program, edge: _retarget(program, torch.nn.functional.relu)),
    "no value": (False, lambda program, edge: _remove_value(program)),
    "dtype": (False, lambda program, edge: _wrong_dtype(program)),
    "illegal dtype": (False, lambda program, edge: _retarget(program, edge.aten.bitwise_not.default)),
}


@pytest.mark.parametrize("name", EDGE)
def test_edge_verdicts(name: str) -> None:
    wanted, change = EDGE[name]
    program = to_edge(exported(lambda x, y: torch.relu(x) * x, X, Y)).exported_program()
    change(program, ops.edge)
    assert verdict(EXIREdgeDialectVerifier(), program) is wanted


@pytest.mark.executorch
@pytest.mark.parametrize("name", EDGE)
def test_edge_verdicts_are_those_of_the_official_verifier(name: str) -> None:
    exir = official_module("executorch.exir")
    official = official_module("executorch.exir.verification.verifier")
    wanted, change = EDGE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = exir.to_edge(exported(lambda x, y: torch.relu(x) * x, X, Y)).exported_program()
    change(program, official_module("executorch.exir.dialects._ops").ops.edge)
    assert verdict(official.EXIREdgeDialectVerifier(), program) is wanted
    assert verdict(EXIREdgeDialectVerifier(), program) is wanted, "programs of the official package are read as well"


def test_checks_can_be_switched_off() -> None:
    program = to_edge(exported(lambda x, y: torch.relu(x) * x, X, Y)).exported_program()
    _retarget(program, torch.ops.aten.relu.default)
    assert EXIREdgeDialectVerifier(EdgeCompileConfig(_check_ir_validity=False)).is_valid(program)
    verifier = EXIREdgeDialectVerifier(class_only=True)
    assert isinstance(verifier, type)
    with pytest.raises(SpecViolationError, match="EK303"):
        verifier().check(program)


def test_dim_orders_or_memory_formats() -> None:
    plain = EdgeCompileConfig(_skip_dim_order=True)
    program = to_edge(exported(lambda x, y: y.to(torch.float32), X, Y)).exported_program()
    assert EXIREdgeDialectVerifier().is_valid(program)
    assert not EXIREdgeDialectVerifier(plain).is_valid(program)
    program = to_edge(exported(lambda x, y: y.to(torch.float32), X, Y), compile_config=plain).exported_program()
    assert EXIREdgeDialectVerifier(plain).is_valid(program)
    assert not EXIREdgeDialectVerifier().is_valid(program)


def test_operators_of_backends() -> None:
    program = to_edge(exported(lambda x, y: torch.relu(x) * x, X, Y)).exported_program()
    _retarget(program, ops.backend.aten.relu.default)
    assert EXIRBackendDialectVerifier().is_valid(program)
    assert not EXIREdgeDialectVerifier().is_valid(program)


def test_stored_tensors_are_contiguous() -> None:
    module = to_edge(exported(lambda x, y: torch.relu(x) * x, X, Y)).exported_program().graph_module
    module.register_buffer("slanted", torch.ones(2, 3).t())
    with pytest.raises(SpecViolationError, match="slanted"):
        EXIREdgeDialectVerifier()(module)


def test_torch_reads_programs_as_before() -> None:
    from torch._export.verifier import load_verifier

    before = load_verifier("EDGE")
    EXIREdgeDialectVerifier()
    assert load_verifier("EDGE") is before


@pytest.mark.parametrize(
    ("target", "args", "meant"),
    [
        (torch.ops.aten.sigmoid_.default, (), "aten.sigmoid.default"),
        (torch.ops.aten.add_.Tensor, (1.0,), "aten.add.Tensor"),
        (torch.ops.aten.permute.default, ([1, 0],), "aten.permute_copy.default"),
        (torch.ops.aten.neg.default, (), "aten.neg.default"),
    ],
)
def test_the_handle_that_is_named_is_legal(target: Any, args: tuple[Any, ...], meant: str) -> None:
    program = to_edge(exported(lambda x, y: torch.relu(x) * x, X, Y)).exported_program()
    node = next(iter(program.graph.find_nodes(op="call_function", target=ops.edge.aten.relu.default)))
    node.target, node.args = target, (node.args[0], *args)
    (named,) = {one.expected for one in check_edge_program(program) if one.code == "EK303"}
    assert named == f"the handle `exirkit.ops.edge.{meant}`"
    handle: Any = ops.edge
    for part in meant.split("."):
        handle = getattr(handle, part)
    node.target = handle
    assert not [one for one in check_edge_program(program) if one.code in ("EK302", "EK303", "EK314")]


def test_a_packet_of_overloads_is_told_from_a_function() -> None:
    program = to_edge(exported(lambda x, y: torch.relu(x) * x, X, Y)).exported_program()
    node = next(iter(program.graph.find_nodes(op="call_function", target=ops.edge.aten.relu.default)))
    node.target = torch.ops.aten.relu
    (found,) = [one for one in check_edge_program(program) if one.code == "EK312"]
    assert found.hint is not None
    assert "`exirkit.ops.edge.aten.relu` has default" in found.hint
