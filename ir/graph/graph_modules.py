"""Graph modules on their own: what a pass over programs needs is put around one, and taken off again.

Tensors that hang on the module (`get_attr`) are inputs with a place in signature and tables while the pass works, and
hang on the new module afterwards. What the inputs of the graph itself stand for is unknown: they are not constants,
and each result may be one that is written back to an input when the program has run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import GraphModule, Node
from torch.fx._lazy_graph_module import _use_lazy_graph_module

from exirkit.ir.analysis.nodes import is_pure
from exirkit.ir.inference.fake import fake_like
from exirkit.ir.operators.handles import underlying

from .programs import copy_graph_module, fake_mode_of

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
    with _use_lazy_graph_module(False):
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
    pending = [one for node in module.graph.nodes for one in _written(node)]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        pending += node.all_input_nodes
        if node.op == "get_attr" and isinstance(_attribute(module, str(node.target)), torch.Tensor):
            yield node


def _written(node: Node) -> list[Node]:
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
    return tensor.untyped_storage().data_ptr()


def _free_name(module: GraphModule, wish: str) -> str:
    wish = wish.replace(".", "_")
    while hasattr(module, wish):
        wish += "_"
    return wish
