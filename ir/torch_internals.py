"""All that exirkit uses of torch and that torch does not promise to keep.

That is: private modules and names, modules that torch calls experimental, and private attributes of torch's own
objects. A name that moves in a new version of torch is fixed here; `tests/packaging/test_torch_internals.py` rejects
such imports in all other modules, and checks that the attributes are there.

Seen to work: torch 2.13.0 with all tests. torch 2.15.0 on a processor with the tests of `exirkit.ir`, but for two that
name nodes as 2.13 does, and with a recurrent model, `cond`, a convolution and a dynamic batch from export to results
of the reference interpreter.
"""

from __future__ import annotations

import importlib
import os
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch

# Decompositions: the table of core ATen that `run_decompositions` starts with, and torch's others by operator.
from torch._decomp import _core_aten_decompositions_post_autograd as core_aten_decompositions
from torch._decomp import get_decompositions

# Lets composite operators run as their parts under fake tensors.
from torch._dispatch.python import enable_python_dispatcher
from torch._export.utils import _is_preservable_cia_op, _special_op_to_preserve_cia

# What checks a program of a dialect; the metaclass registers each by its dialect.
from torch._export.verifier import SpecViolationError, Verifier
from torch._export.verifier import _VerifierMeta as VerifierMeta
from torch._higher_order_ops.executorch_call_delegate import executorch_call_delegate

# Whether a call has an effect besides its result.
from torch._library.utils import is_impure

# The classes of what `torch.ops` returns.
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

# Values of nodes: tensors without data, the mode that makes them, and what it raises.
from torch._subclasses import FakeTensor, FakeTensorMode
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    disable_fake_tensor_cache,
)
from torch.export import ExportedProgram
from torch.export.exported_program import _override_composite_implicit_decomp
from torch.fx import Graph, GraphModule, Node

# Modules whose code is generated when they are called or printed, not whenever a graph changes.
from torch.fx._lazy_graph_module import _LazyGraphModule as LazyGraphModule
from torch.fx._lazy_graph_module import _make_graph_module
from torch.fx._lazy_graph_module import _use_lazy_graph_module as use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.sym_node import SymNode

# Symbolic sizes: the environment that knows their ranges, where unbacked ones come from, and what is raised.
from torch.fx.experimental.symbolic_shapes import (
    CallMethodKey,
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StrictMinMaxConstraint,
    compute_unbacked_bindings,
    free_symbols,
    statically_known_true,
)
from torch.fx.experimental.symbolic_shapes import _ShapeEnvGuardError as ShapeEnvGuardError

# How a graph makes names: what it replaces in them, and how it splits their numbers off.
from torch.fx.graph import _illegal_char_regex as illegal_in_name
from torch.fx.graph import _name_regex as numbered_name

# The code of a graph that takes and returns nested containers.
from torch.fx.graph import _PyTreeCodeGen as PyTreeCodeGen
from torch.fx.node import _get_qualified_name as qualified_name
from torch.fx.node import _side_effectful_functions as side_effectful_functions

# Nested arguments and results.
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes

# Functions in expressions of symbolic sizes, and bounds of such expressions.
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Mod, PythonMod
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

__all__ = [
    "PREDISPATCH_MODULE",
    "PRIVATE_ATTRIBUTES",
    "TORCH_LOGGERS",
    "CallMethodKey",
    "CleanDiv",
    "DataDependentOutputException",
    "DimDynamic",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "FloorDiv",
    "GuardOnDataDependentSymNode",
    "HigherOrderOperator",
    "LazyGraphModule",
    "Mod",
    "OpOverload",
    "OpOverloadPacket",
    "PyTreeCodeGen",
    "PythonMod",
    "ShapeEnv",
    "ShapeEnvGuardError",
    "SpecViolationError",
    "StrictMinMaxConstraint",
    "TensorType",
    "TorchDispatchMode",
    "UnsupportedOperatorException",
    "ValueRanges",
    "Verifier",
    "VerifierMeta",
    "bound_sympy",
    "compute_unbacked_bindings",
    "core_aten_decompositions",
    "disable_current_modes",
    "disable_fake_tensor_cache",
    "disable_torch_dispatch",
    "enable_python_dispatcher",
    "executorch_call_delegate",
    "fields_known_once",
    "find_schema",
    "forget_traces",
    "free_symbols",
    "get_decompositions",
    "has_kernel",
    "illegal_in_name",
    "is_composite",
    "is_impure",
    "keep_composites",
    "lazy_graph_module",
    "load_pt2",
    "make_fake_tensor",
    "make_fx",
    "make_wrapper_tensor",
    "numbered_name",
    "parse_schema",
    "payloads_from",
    "pytree",
    "qualified_name",
    "register_quantized_decomposed",
    "registered_operator_names",
    "shape_source",
    "side_effectful_functions",
    "sizes_are_not_one",
    "statically_known_true",
    "use_lazy_graph_module",
    "without_machine_libraries",
]

PRIVATE_ATTRIBUTES: Mapping[type, frozenset[str]] = {
    # `copy_program` and the editor change programs without running the constructor, which verifies and copies all.
    ExportedProgram: frozenset({
        "_constants", "_example_inputs", "_graph_module", "_graph_signature", "_guards_code", "_module_call_graph",
        "_range_constraints", "_state_dict", "_verifiers",
    }),
    # Nodes are inserted as torch inserts them; namespaces are kept right when names change or nodes come back.
    Graph: frozenset({
        "_codegen", "_find_nodes_lookup_table", "_graph_namespace", "_insert", "_len", "_target_to_str", "_tracer_cls",
    }),
    type(Graph()._graph_namespace): frozenset({"_base_count", "_obj_to_name", "_used_names"}),
    # Reading these does not copy; writing them does not print the module's code again.
    Node: frozenset({"_args", "_erased", "_input_nodes", "_kwargs", "_rename", "_update_args_kwargs"}),
    OpOverload: frozenset({"_can_decompose", "_op", "_overloadname", "_overloadpacket", "_schema"}),
    torch.Tensor: frozenset({"_has_symbolic_sizes_strides", "_version"}),
    SymNode: frozenset({"_expr"}),
    ShapeEnv: frozenset({"_rename_unbacked_to"}),
    VerifierMeta: frozenset({"_registry"}),
}  # fmt: skip
"""Private attributes of torch's objects that are read or written, here and elsewhere."""

PREDISPATCH_MODULE = "torch._functorch.predispatch"
"""Where `torch.vmap` and associative scans define what they leave in programs: where a batched dim begins and ends."""

TORCH_LOGGERS = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")
"""Loggers that report a failure of an operator before it is raised."""

TensorType = torch._C.TensorType
"""Class of the type `Tensor` in schemas of operators."""

disable_torch_dispatch: Callable[[], AbstractContextManager[None]] = torch._C._DisableTorchDispatch
"""Context manager under which no dispatch mode is asked."""


@contextmanager
def without_machine_libraries() -> Iterator[None]:
    """Keep torch from kernels of oneDNN: they are not core operators, and what they take depends on the processor."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextmanager
def sizes_are_not_one() -> Iterator[None]:
    """Have torch take it that a size is not 1 that may be, where only how a result lies in memory depends on that."""
    config: Any = importlib.import_module("torch.fx.experimental._config")
    with config.patch(backed_size_oblivious=True):
        yield


def registered_operator_names() -> list[str]:
    """Return the qualified names of all registered operators, such as `aten::add.Tensor`."""
    return torch._C._dispatch_get_all_op_names()


def has_kernel(qualified: str, key: str | None = None) -> bool:
    """Whether an operator has a kernel for a dispatch key, or for any.

    Args:
        qualified: Its name, such as `aten::add.Tensor`.
        key: Name of the dispatch key.
    """
    if key is None:
        return torch._C._dispatch_has_kernel(qualified)
    return torch._C._dispatch_has_kernel_for_dispatch_key(qualified, key)


def is_composite(op: OpOverload) -> bool:
    """Whether torch defines an operator by calls of others, for all devices."""
    return has_kernel(op.name(), "CompositeImplicitAutograd")


def parse_schema(text: str) -> torch.FunctionSchema:
    """Parse a schema such as `library::name(Tensor x) -> Tensor`.

    Raises:
        RuntimeError: It is not a schema.
    """
    return torch._C.parse_schema(text)


def find_schema(qualified: str, overload: str) -> torch.FunctionSchema | None:
    """Return the schema of a registered operator, or None; unlike `torch.ops`, it does not remember the name."""
    try:
        return torch._C._get_schema(qualified, overload)
    except RuntimeError:
        return None


@cache
def register_quantized_decomposed() -> None:
    """Import the module in which torch registers the quantize and dequantize operators."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")


def shape_source(name: str, *, is_constant: bool = False) -> Any:
    """Return the source of a symbol for `ShapeEnv.create_symbol`: a local variable, or a constant.

    The module takes half a second to import, so it is not imported before it is needed.
    """
    source = importlib.import_module("torch._dynamo.source")
    return source.ConstantSource(name) if is_constant else source.LocalSource(name)


def forget_traces() -> None:
    """Let torch trace bodies of control flow again, whatever it has traced before."""
    importlib.import_module("torch._dynamo").reset()


def lazy_graph_module(root: Any, graph: Graph, class_name: str) -> GraphModule:
    """Return a graph as a module; its code is generated when something calls or prints it."""
    with use_lazy_graph_module(True):
        made: GraphModule = _make_graph_module(root, graph, class_name=class_name)
    return made


def keep_composites(operators: Iterable[OpOverload]) -> AbstractContextManager[None]:
    """Return a context manager under which torch does not decompose those composite operators that it can keep."""
    kept = {op: _special_op_to_preserve_cia for op in operators if _is_preservable_cia_op(op)}
    made: AbstractContextManager[None] = _override_composite_implicit_decomp(kept)
    return made


def serialized_graph(signature: Any, module_call_graph: Any, module: GraphModule) -> Any:
    """Return a graph as the dataclasses that `torch.export.save` writes; the module takes long to import."""
    form = importlib.import_module("torch._export.serde.serialize")
    return form.GraphModuleSerializer(signature, module_call_graph).serialize(module)


def serialized_ranges(constraints: Any) -> Any:
    """Return ranges of symbols as `torch.export.save` writes them."""
    return importlib.import_module("torch._export.serde.serialize").serialize_range_constraints(constraints)


def serialized_expression_text(stored: str) -> str:
    """Return an expression of sizes that torch serialized as people write it: `2*s0`, not the calls that build it."""
    functions = importlib.import_module("torch.utils._sympy.functions")
    return str(importlib.import_module("sympy").sympify(stored, locals=vars(functions)))


def serialized_version() -> dict[str, int]:
    """Return the version of the form that `program_as_json` writes."""
    major, minor = importlib.import_module("torch._export.serde.schema").SCHEMA_VERSION
    return {"major": major, "minor": minor}


def program_as_json(program: ExportedProgram) -> bytes:
    """Return a program without its tensors and example inputs, in the JSON form of `torch.export.save`."""
    serde = importlib.import_module("torch._export.serde.serialize")
    made = serde.ExportedProgramSerializer().serialize(
        program, serialize_state_dict=False, serialize_constants=False, serialize_example_inputs=False
    )
    text: bytes = serde._to_json_bytes(made.exported_program)
    return text


def program_from_json(
    text: bytes, state: dict[str, Any], constants: dict[str, Any], example_inputs: Any
) -> ExportedProgram:
    """Return the program that `program_as_json` wrote, with tensors from elsewhere; nothing is unpickled.

    Operators are looked up by name and sizes are parsed as expressions: a text from elsewhere has to be checked first.
    """
    serde = importlib.import_module("torch._export.serde.serialize")
    with fields_known_once():
        document = serde._bytes_to_dataclass(serde.ExportedProgram, text)
    # A text that is empty stands for bytes that are unpickled.
    program: ExportedProgram = serde.ExportedProgramDeserializer().deserialize(
        document, state, constants, example_inputs
    )
    return program


def load_pt2(path: str | os.PathLike[str]) -> Any:
    """Return the contents of an archive of several programs; the module takes half a second to import."""
    return importlib.import_module("torch.export.pt2_archive._package").load_pt2(path)


@contextmanager
def fields_known_once() -> Iterator[None]:
    """Have torch work out the fields of its stored form once for each class, and not for each object that it reads."""
    form: Any = importlib.import_module("torch._export.serde.serialize")
    known: dict[type, dict[str, Any]] = {}

    def hints(kind: type, **scopes: Any) -> dict[str, Any]:
        if kind not in known:
            known[kind] = typing.get_type_hints(kind, **scopes)
        return known[kind]

    form.typing = SimpleNamespace(**{**vars(typing), "get_type_hints": hints})
    try:
        yield
    finally:
        form.typing = typing


@contextmanager
def payloads_from(records: Mapping[str, memoryview]) -> Iterator[None]:
    """Have torch use memory for the tensors of an archive that it loads, where it would read a record.

    Args:
        records: Memory by the names of records, such as `data/weights/weight_0`.
    """
    package: Any = importlib.import_module("torch.export.pt2_archive._package")
    build = package._build_file_map

    def build_from(reader: Any, config: Any, folder: str) -> Any:
        made: dict[str, torch.Tensor] = {}
        for one in config.config.values():
            memory = records.get(f"{folder}{one.path_name}")
            if memory is None or one.use_pickle or one.tensor_meta.device.type != "cpu":
                continue
            dtype = package.deserialize_scalar_type(one.tensor_meta.dtype)
            tensor = torch.frombuffer(memory, dtype=torch.uint8)
            if memory.nbytes % dtype.itemsize == 0 and tensor.data_ptr() % dtype.itemsize == 0:
                made[one.path_name] = tensor.view(dtype).requires_grad_(one.tensor_meta.requires_grad)
        rest = {name: one for name, one in config.config.items() if one.path_name not in made}
        return {**build(reader, replace(config, config=rest), folder), **made}

    package._build_file_map = build_from
    try:
        yield
    finally:
        package._build_file_map = build


def make_wrapper_tensor(kind: type[torch.Tensor], like: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """Return an object of a subclass of tensors that has dtype and shape of another tensor and no memory."""
    made: torch.Tensor = torch.Tensor._make_wrapper_subclass(kind, tuple(like.shape), strides=strides, dtype=like.dtype)
    return made


def make_fake_tensor(mode: FakeTensorMode, empty: torch.Tensor, device: torch.device) -> FakeTensor:
    """Return a fake tensor of a mode, in a third of the time of its constructor.

    Args:
        mode: The mode.
        empty: A tensor on the meta device, whose dtype, sizes and strides it has.
        device: The device that it names.
    """
    if device.type != "cpu":
        return FakeTensor(mode, empty, device)
    made: FakeTensor = torch.Tensor._make_subclass(
        FakeTensor, empty, False, dispatch_device=True, device_for_backend_keys=device
    )
    if mode._allow_unsafe_data_ptr_access:
        torch._C._set_warn_deprecated_on_mutable_data_ptr(made)
    else:
        torch._C._set_throw_on_mutable_data_ptr(made)
    made.__dict__.update(_attributes_of_fakes(), fake_mode=mode)
    return made


@cache
def _attributes_of_fakes() -> dict[str, Any]:
    """Return what torch sets on every new fake tensor on a processor, most of it that nothing is known of elements."""
    mode = FakeTensorMode()
    with disable_torch_dispatch():
        empty = torch.empty(0, device="meta")
    return dict(FakeTensor(mode, empty, torch.device("cpu")).__dict__)
