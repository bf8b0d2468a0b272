"""Programs: signatures in line with graphs, copies that share tensors, graph modules as programs, foreign handles."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, TypeVar

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate, map_arg

from exirkit.ir.analysis import called_graphs, is_pure, same_argument
from exirkit.ir.deferred_tensors import memory_key
from exirkit.ir.diagnostics import ContractError, Diagnostic
from exirkit.ir.inference import fake_like
from exirkit.ir.operators.handles import (
    REGISTRIES,
    DefinedOperator,
    EdgeOpOverload,
    alloc,
    edge_operator,
    free,
    operator_behind,
    underlying,
    view,
)
from exirkit.ir.tensor_spec import TensorSpec
from exirkit.ir.torch_internals import FakeTensor, FakeTensorMode, Verifier, lazy_graph_module, use_lazy_graph_module

from .node_order import claim_names

TO_USER_INPUT = frozenset({OutputKind.USER_INPUT_MUTATION, OutputKind.GRADIENT_TO_USER_INPUT})

_ARGUMENT_OF: tuple[tuple[type, Any], ...] = (
    (torch.Tensor, TensorArgument),
    (torch.SymInt, SymIntArgument),
    (torch.SymFloat, SymFloatArgument),
    (torch.SymBool, SymBoolArgument),
)

_Spec = TypeVar("_Spec", InputSpec, OutputSpec)


def input_specs_by_node(graph: Graph, specs: Sequence[InputSpec]) -> dict[Node, InputSpec]:
    """Return the spec of each placeholder.

    Raises:
        ContractError: EK113, there are more of one than of the other.
    """
    placeholders = graph.find_nodes(op="placeholder")
    _check_number("inputs", len(placeholders), len(specs))
    return dict(zip(placeholders, specs, strict=True))


def agreed_inputs(graph: Graph, specs: Sequence[InputSpec]) -> list[InputSpec]:
    """Return input specs with the names of the placeholders; a spec that agrees already is itself.

    Raises:
        ContractError: EK113, there are more or fewer placeholders.
    """
    nodes = input_specs_by_node(graph, specs)
    return [
        spec if spec.arg.name == node.name else replace(spec, arg=replace(spec.arg, name=node.name))
        for node, spec in nodes.items()
    ]


def agreed_outputs(graph: Graph, specs: Sequence[OutputSpec], renamed: Mapping[str, str]) -> list[OutputSpec]:
    """Return output specs that say what the graph returns; a spec that agrees already is itself.

    Args:
        graph: The graph.
        specs: Output specs as they were.
        renamed: New names of renamed inputs, by old name.

    Raises:
        ContractError: EK113, the graph returns more or fewer values.
    """
    results: Any = graph.output_node().args[0]
    if not isinstance(results, list | tuple):
        results = (results,)
    _check_number("outputs", len(results), len(specs))
    agreed = []
    for spec, result in zip(specs, results, strict=True):
        target = spec.target
        if target is not None and spec.kind in TO_USER_INPUT:
            target = renamed.get(target, target)
        arg = _agreed_argument(spec.arg, result)
        agreed.append(spec if arg is spec.arg and target == spec.target else replace(spec, arg=arg, target=target))
    return agreed


def _agreed_argument(arg: ArgumentSpec, result: Any) -> ArgumentSpec:
    if not isinstance(result, Node):
        if isinstance(arg, ConstantArgument) and same_argument(arg.value, result):
            return arg
        return ConstantArgument(name="", value=result)
    value = result.meta.get("val")
    wanted = next((kind for type_, kind in _ARGUMENT_OF if isinstance(value, type_)), None)
    if wanted is not None and not isinstance(arg, wanted):
        return wanted(name=result.name)  # type: ignore[no-any-return]
    return arg if arg.name == result.name else replace(arg, name=result.name)


def _check_number(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise ContractError(
            Diagnostic.of("EK113", f"the graph has {found} {what}, the signature of its program {wanted}")
        )


def scalar_key(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """Return a key that is equal for one-element tensors of equal dtype, shape and bytes; None for other tensors."""
    if tensor.numel() != 1 or type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return None
    if tensor.is_quantized or tensor.device.type != "cpu":
        return None
    # A single element is contiguous with any stride, but seen as bytes only with stride 1.
    data = tensor.resolve_conj().resolve_neg().contiguous().reshape(1).as_strided((1,), (1,)).view(torch.uint8)
    return (tensor.dtype, tuple(tensor.shape), bytes(data.tolist()))


def as_stored(old: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as the program stores it for an old one: a parameter stays a parameter."""
    if not isinstance(old, torch.nn.Parameter) or isinstance(tensor, torch.nn.Parameter):
        return tensor
    has_gradient = old.requires_grad and (tensor.is_floating_point() or tensor.is_complex())
    return torch.nn.Parameter(tensor.detach(), requires_grad=has_gradient)


class EdgeProgramVerifier(Verifier):
    """What `torch.export` itself asks of an Edge program: the usual structure, with edge handles as call targets.

    The rules of the dialect are checked by `exirkit.verifiers`; this class only gives the program its dialect name.
    """

    dialect = "EDGE"

    def allowed_op_types(self) -> tuple[type[Any], ...]:
        """Return the types that call targets may have."""
        return (*super().allowed_op_types(), EdgeOpOverload, DefinedOperator)

    def check_valid_op(self, op: Any) -> None:
        """Accept every operator: legality is the business of the dialect verifiers."""


class ExecutorchProgramVerifier(EdgeProgramVerifier):
    """Names the dialect in which operators write into planned memory."""

    dialect = "EXECUTORCH"


def copy_program(program: ExportedProgram, *, verifier: type[Verifier] | None = None) -> ExportedProgram:
    """Copy a program so that edits of the copy never reach the original.

    Args:
        program: Any program; it is not changed.
        verifier: Dialect tag of the copy; the original's when absent.

    Returns:
        A program that has its own graphs, signature, tables and tensor specs, and shares every tensor.
    """
    result = copy.copy(program)
    result._graph_module = copy_graph_module(program.graph_module)
    result._graph_signature = copy_signature(program.graph_signature)
    result._state_dict = dict(program._state_dict)
    result._constants = dict(program._constants)
    result._range_constraints = dict(program._range_constraints)
    result._module_call_graph = list(program._module_call_graph)
    result._guards_code = list(program._guards_code)
    result._verifiers = list(program._verifiers) if verifier is None else [verifier]
    return result


def copy_graph_module(module: GraphModule) -> GraphModule:
    """Copy a graph module with its nested graphs and its tensor specs.

    Tensors and other submodules are shared. Nodes keep their names; nodes that share a spec share its copy.
    """
    return _copy_module(module, {})


_SpecCopies = dict[TensorSpec, TensorSpec]


def _copy_module(module: GraphModule, specs: _SpecCopies) -> GraphModule:
    # Code is generated when the module is called or printed, not once per copy.
    result = lazy_graph_module(module, _copy_graph(module.graph, specs), type(module).__name__)
    result.meta.update(module.meta)
    for name, nested in module.named_children():
        if isinstance(nested, GraphModule):
            setattr(result, name, _copy_module(nested, specs))
    return result


def _copy_graph(graph: Graph, specs: _SpecCopies) -> Graph:
    result = Graph(tracer_cls=graph._tracer_cls)
    result._codegen = copy.copy(graph._codegen)
    copies: dict[Node, Node] = {}
    for node in graph.nodes:
        args = map_arg(node._args, copies.__getitem__)
        kwargs = map_arg(node._kwargs, copies.__getitem__)
        if node.target is free:
            args = map_aggregate(args, lambda argument: _copy_specs(argument, specs))
        # Not `Graph.node_copy`, which cannot keep names that torch gives to inputs only, such as `input` or `max`.
        copied = Node(result, node.name, node.op, node.target, args, kwargs, node.type)
        copied.meta = node.meta.copy()
        if "spec" in copied.meta:
            copied.meta["spec"] = _copy_specs(copied.meta["spec"], specs)
        result._insert(copied)
        result._find_nodes_lookup_table.insert(copied)
        result._len += 1
        copies[node] = copied
    claim_names(result)
    return result


def _copy_specs(value: Any, specs: _SpecCopies) -> Any:
    """Copy a spec once, and the specs in lists; views follow the copy of what they are views of."""
    if isinstance(value, list | tuple):
        return type(value)(_copy_specs(one, specs) for one in value)
    if not isinstance(value, TensorSpec):
        return value
    if value not in specs:
        specs[value] = copy.copy(value)
        specs[value].storage_base = _copy_specs(value.storage_base, specs)
    return specs[value]


def copy_signature(signature: ExportGraphSignature) -> ExportGraphSignature:
    """Copy a signature down to the specs and their arguments, which editors change in place."""
    return ExportGraphSignature(
        input_specs=[copy_input_spec(spec) for spec in signature.input_specs],
        output_specs=[copy_output_spec(spec) for spec in signature.output_specs],
    )


def copy_input_spec(spec: InputSpec) -> InputSpec:
    """Copy one input spec and its argument."""
    return InputSpec(kind=spec.kind, arg=copy.copy(spec.arg), target=spec.target, persistent=spec.persistent)


def copy_output_spec(spec: OutputSpec) -> OutputSpec:
    """Copy one output spec and its argument."""
    return OutputSpec(kind=spec.kind, arg=copy.copy(spec.arg), target=spec.target)


def fake_mode_of(module: GraphModule) -> FakeTensorMode:
    """Return the fake tensor mode of a graph's metadata, or a new one where the graph has no fake tensor.

    Where a pass has brought in values of another mode, the one that knows symbolic sizes is the graph's.
    """
    found: FakeTensorMode | None = None
    for node in module.graph.nodes:
        value = node.meta.get("val")
        for leaf in value if isinstance(value, list | tuple) else (value,):
            if isinstance(leaf, FakeTensor):
                mode: FakeTensorMode = leaf.fake_mode
                if mode.shape_env is not None:
                    return mode
                found = found or mode
    return found or FakeTensorMode(allow_non_fake_inputs=True)


_UNKNOWN_TARGET = "?"
"""What the results of a graph on its own are written back to, if to anything; no input has this name."""


def program_of_module(module: GraphModule) -> ExportedProgram:
    """Return a copy of a graph module as a program that passes can edit; it cannot be run, saved or lowered.

    Args:
        module: Any graph module whose calls have a recorded value (`meta["val"]`); it is not changed.
    """
    copied = copy_graph_module(module)
    graph = copied.graph
    inputs = graph.find_nodes(op="placeholder")
    lifted, tensors = _lift_attributes(copied)
    results: Any = graph.output_node().args[0]
    results = results if isinstance(results, list | tuple) else (results,)
    program = object.__new__(ExportedProgram)
    program._graph_module = copied
    program._graph_signature = ExportGraphSignature(
        input_specs=[*lifted, *(InputSpec(InputKind.USER_INPUT, TensorArgument(one.name), None) for one in inputs)],
        output_specs=[OutputSpec(OutputKind.BUFFER_MUTATION, _argument(one), _UNKNOWN_TARGET) for one in results],
    )
    program._state_dict = {}
    program._constants = dict(tensors)
    program._range_constraints = {}
    program._module_call_graph = []
    program._guards_code = []
    program._verifiers = []
    return program


def is_module_program(program: ExportedProgram) -> bool:
    """Return whether a program was made of a graph module on its own, and what its inputs stand for is unknown."""
    return any(spec.target == _UNKNOWN_TARGET for spec in program.graph_signature.output_specs)


def module_of_program(program: ExportedProgram, module: GraphModule) -> GraphModule:
    """Return the graph of a program made by `program_of_module` as a graph module again.

    Args:
        program: The edited program, which is used up.
        module: The module that it was made of, which gives class name and `meta`; hooks stay behind, as in a deep copy.
    """
    root, graph = program.graph_module, program.graph
    stored = zip(graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True)
    body = next((node for node in graph.nodes if node.op != "placeholder"), graph.output_node())
    for node, spec in list(stored):
        if spec.target is None:
            continue
        path, tensor = str(spec.target), program.constants[str(spec.target)]
        if _attribute(root, path) is not tensor:
            path = _free_name(root, path)
            root.register_buffer(path, tensor.detach())
        with graph.inserting_before(body):
            made = graph.create_node("get_attr", path, name=node.name)
        made.meta = node.meta
        node.replace_all_uses_with(made)
        graph.erase_node(node)
    with use_lazy_graph_module(False):
        result = GraphModule(root, graph, class_name=type(module).__name__)
    result.meta.update(module.meta)
    return result


def _lift_attributes(module: GraphModule) -> tuple[list[InputSpec], dict[str, torch.Tensor]]:
    """Make inputs of the tensors that hang on a module; those that the graph may write to are of unknown value."""
    graph, mode = module.graph, fake_mode_of(module)
    nodes: dict[str, list[Node]] = {}
    for node in graph.find_nodes(op="get_attr"):
        if isinstance(_attribute(module, str(node.target)), torch.Tensor):
            nodes.setdefault(str(node.target), []).append(node)
    written = {_storage(_attribute(module, str(node.target))) for node in _written_attributes(module)}
    specs: list[InputSpec] = []
    tensors: dict[str, torch.Tensor] = {}
    first = next(iter(graph.nodes))
    for path, readers in nodes.items():
        tensor = _attribute(module, path)
        with graph.inserting_before(first):
            made = graph.create_node("placeholder", path.replace(".", "_"))
        made.meta = {**readers[0].meta}
        if not isinstance(made.meta.get("val"), torch.Tensor):
            made.meta["val"] = fake_like(mode, tensor)
        for node in readers:
            node.replace_all_uses_with(made)
            graph.erase_node(node)
        made.target = made.name
        kind = InputKind.USER_INPUT if _storage(tensor) in written else _kind(module, path, tensor)
        specs.append(InputSpec(kind, TensorArgument(made.name), path, True if kind is InputKind.BUFFER else None))
        tensors[path] = tensor
    return specs, tensors


def _kind(module: GraphModule, path: str, tensor: torch.Tensor) -> InputKind:
    if isinstance(tensor, torch.nn.Parameter):
        return InputKind.PARAMETER
    owner, _, name = path.rpartition(".")
    holder: Any = _attribute(module, owner) if owner else module
    return InputKind.BUFFER if name in getattr(holder, "_buffers", {}) else InputKind.CONSTANT_TENSOR


def _written_attributes(module: GraphModule) -> Iterator[Node]:
    """Yield attributes that a call may write to: those that what it writes to was made from, in any way."""
    pending = [one for node in module.graph.nodes for one in written_arguments(node)]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        pending += node.all_input_nodes
        if node.op == "get_attr" and isinstance(_attribute(module, str(node.target)), torch.Tensor):
            yield node


def written_arguments(node: Node) -> list[Node]:
    """Return the arguments in whose memory a call writes; control flow may write to whatever it is given."""
    if node.op not in ("call_function", "call_module", "call_method") or is_pure(node):
        return []
    schema = getattr(underlying(node.target), "_schema", None)
    if schema is None:
        return list(node.all_input_nodes)
    found: list[Node] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            found += [one for one in (given if isinstance(given, list | tuple) else (given,)) if isinstance(one, Node)]
    return found


def _argument(result: Any) -> Any:
    return TensorArgument(result.name) if isinstance(result, Node) else ConstantArgument(name="", value=result)


def _attribute(module: Any, path: str) -> Any:
    return reduce(lambda holder, name: getattr(holder, name, None), path.split("."), module)


def _storage(tensor: torch.Tensor) -> int:
    return memory_key(tensor)


def _free_name(module: GraphModule, wish: str) -> str:
    wish = wish.replace(".", "_")
    while hasattr(module, wish):
        wish += "_"
    return wish


def give_foreign_handles(module: GraphModule, library: str) -> None:
    """Let the calls of a graph, and of the graphs that it calls, name operators by the handles of another library.

    Args:
        module: A graph with handles of exirkit; it is changed.
        library: Name of the library, which has been imported; operators that it does not know keep their handles.
    """
    names = [name for name in REGISTRIES.values() if name.partition(".")[0] == library]
    registry = next((found for name in names if (found := sys.modules.get(name)) is not None), None)
    edge: Any = getattr(getattr(registry, "ops", None), "edge", None)
    functions = {ours: theirs for theirs, ours in _memory_functions(library).items()}
    for node in _operator_calls(module):
        if isinstance(node.target, EdgeOpOverload):
            node.target = _handle_of(edge, node.target) or node.target
        else:
            node.target = functions.get(node.target, node.target)


def take_foreign_handles(module: GraphModule) -> None:
    """Let the calls of a graph, and of the graphs that it calls, name operators by the handles of exirkit again."""
    libraries = {name.partition(".")[0] for name in REGISTRIES}
    functions = {theirs: ours for library in libraries for theirs, ours in _memory_functions(library).items()}
    for node in _operator_calls(module):
        op = None if isinstance(node.target, EdgeOpOverload) else operator_behind(node.target)
        node.target = functions.get(node.target, node.target) if op is None else edge_operator(op)


def _memory_functions(library: str) -> dict[Any, Any]:
    """Return the functions of another library that are `alloc`, `free` and `view` of ours, if it has been imported."""
    module = sys.modules.get(f"{library}.exir.memory")
    return {} if module is None else {getattr(module, one.__name__): one for one in (alloc, free, view)}


def _handle_of(edge: Any, target: EdgeOpOverload) -> Any:
    schema: Any = target._schema
    namespace, _, name = schema.name.partition("::")
    found = edge
    for part in (namespace, name, schema.overload_name or "default"):
        found = getattr(found, part, None)
    return found


def _operator_calls(module: GraphModule) -> list[Node]:
    return [node for one in called_graphs(module) for node in one.graph.nodes if node.op == "call_function"]
