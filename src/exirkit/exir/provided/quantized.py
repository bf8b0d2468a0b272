"""Quantised programs: inputs and outputs that are quantised themselves, and quantisation that is undone at once."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import UsageError, module_of_program, ops, program_of_module, results_of_graph, underlying
from exirkit.passes import ExportPass, PassResult, Pipeline
from exirkit.program import EdgeProgramManager

from .passes import dead_code_elimination_pass
from .shapes import scalar_type_enum

# Registers the operators.
importlib.import_module("torch.ao.quantization.fx._decomposed")

_QUANTIZE = ("quantize_per_tensor", "quantize_per_channel")
_DEQUANT_OPS = tuple(
    getattr(library.quantized_decomposed, name).default
    for library in (torch.ops, ops.edge)
    for name in ("dequantize_per_tensor", "dequantize_per_channel")
)
"""Operators that dequantise, as overloads of torch and as Edge handles."""
_PARAMETERS = ("scale", "zp", "quant_min", "quant_max", "dtype")
_NARROW = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.bool)


def eliminate_dq_q(graph_module: GraphModule, dequant_nodes: Sequence[Node]) -> None:
    """Let the users of what is dequantised and quantised with the same parameters use the quantised value instead.

    Args:
        graph_module: The graph; nodes without users stay in it.
        dequant_nodes: Calls that dequantise.
    """
    del graph_module
    for node in dequant_nodes:
        for user in list(node.users):
            if _is_call(user, *_QUANTIZE) and user.args[1:] == node.args[1:] and user.args[0] is node:
                user.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]


class FoldRedundantDequantizeQuantizePass(ExportPass):
    """Remove what dequantises a value and quantises it again with the same parameters."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Remove such pairs."""
        nodes = [node for node in graph_module.graph.nodes if node.target in _DEQUANT_OPS]
        eliminate_dq_q(graph_module, nodes)
        return dead_code_elimination_pass(graph_module)


class QuantFusionPass(ExportPass):
    """Replace operators between dequantizing and quantizing by operators on integers that the runtime has.

    The rules are those of the pipeline `quant_fusion`. Tables of embeddings are left to
    `quant_fusion_and_const_prop_pass`, which knows what is stored.

    Args:
        _fix_node_meta_val: Has no effect: nodes always have a value.
        node_value_dict: Has no effect: weights are not packed here.
    """

    def __init__(self, _fix_node_meta_val: bool = False, node_value_dict: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        del _fix_node_meta_val, node_value_dict

    def call(self, graph_module: GraphModule) -> PassResult:
        """Fuse the calls of a graph."""
        program = program_of_module(graph_module)
        made = Pipeline.shipped("quant_fusion").run(program, stop_after="fuse")
        return PassResult(module_of_program(made.program, graph_module), any(one.modified for one in made.reports))


def quant_fusion_and_const_prop_pass(program: ExportedProgram) -> ExportedProgram:
    """Return a program in which quantized values are moved, joined, added and looked up as integers.

    Args:
        program: An Edge program, which is not changed.
    """
    return Pipeline.shipped("quant_fusion").run(program).program


def _is_call(node: Any, *names: str) -> bool:
    schema = getattr(underlying(node.target), "_schema", None) if isinstance(node, Node) else None
    return schema is not None and schema.name in [f"quantized_decomposed::{name}" for name in names]


def quantize_input(
    exported_program: ExportedProgram, input_index: int, qparams: Mapping[str, Any] | None = None
) -> tuple[Any, ...]:
    """Let a program take one of its inputs quantised; the program itself is edited.

    Args:
        exported_program: A program that quantises the input, and does nothing else with it.
        input_index: Number of the input, counted from 0, among those of the user.
        qparams: `scale`, `zp` and `dtype` of the values that are given, if they differ from those of the program, which
            then dequantises and quantises them again.

    Returns:
        Scale, zero point, smallest and largest value, and dtype of what the program takes.

    Raises:
        UsageError: EK764, the input is used otherwise, or the dtypes cannot be converted.
    """
    name = exported_program.graph_signature.user_inputs[input_index]
    graph = exported_program.graph
    source = next(node for node in graph.find_nodes(op="placeholder") if node.name == name)
    users = list(source.users)
    if len(users) != 1 or not _is_call(users[0], "quantize_per_tensor"):
        raise _not_quantised(f"input {input_index}, %{name},", "read by one quantize_per_tensor and nothing else")
    quantize = users[0]
    taken = tuple(quantize.args[1:])
    if qparams is not None and not _agree(qparams, taken):
        taken = _requantised(graph, source, quantize, qparams)
    else:
        source.meta["val"] = quantize.meta["val"]
        quantize.replace_all_uses_with(source)
        graph.erase_node(quantize)
    exported_program.graph_module.recompile()
    return taken


def _agree(given: Mapping[str, Any], taken: tuple[Any, ...]) -> bool:
    scale, zero_point, *_, dtype = taken
    same = given["dtype"] == dtype and given["zp"] == zero_point
    return bool(same and math.isclose(given["scale"], scale, rel_tol=1e-5, abs_tol=1e-8))


def _requantised(graph: Any, source: Node, quantize: Node, given: Mapping[str, Any]) -> tuple[Any, ...]:
    dtype, wanted = given["dtype"], quantize.args[-1]
    if dtype != wanted and not (dtype in _NARROW and wanted in _NARROW):
        raise _not_quantised(f"an input of {dtype}, for {wanted},", "of 8 or 16 bits, as the values of the program")
    limits = torch.iinfo(dtype)
    taken = (given["scale"], given["zp"], limits.min, limits.max, dtype)
    is_edge = quantize.target is not underlying(quantize.target)
    library = ops.edge if is_edge else torch.ops
    with graph.inserting_before(quantize):
        made = graph.call_function(library.quantized_decomposed.dequantize_per_tensor.default, (source, *taken))
    names = ("scale", "zero_point", "qmin", "qmax", "dtype")
    made.meta.update(val=source.meta["val"], input_qparams=[dict(zip(names, taken, strict=True))])
    source.meta["val"] = source.meta["val"].to(dtype)
    quantize.replace_input_with(source, made)
    return taken


def quantize_output(exported_program: ExportedProgram, output_index: int) -> tuple[Any, ...]:
    """Let a program return one of its outputs quantised; the program itself is edited.

    Args:
        exported_program: A program that dequantises the output last.
        output_index: Number of the output, counted from 0, among all that the graph returns.

    Returns:
        Scale, zero point, smallest and largest value, and dtype of what the program returns.

    Raises:
        UsageError: EK764, there is no such output, or it is not dequantised.
    """
    graph = exported_program.graph
    results = list(results_of_graph(graph))
    found = results[output_index] if output_index < len(results) else None
    if not isinstance(found, Node) or not _is_call(found, "dequantize_per_tensor"):
        raise _not_quantised(f"output {output_index} of {len(results)}", "the result of dequantize_per_tensor")
    results[output_index] = found.args[0]
    graph.output_node().args = (tuple(results),)
    spec = exported_program.graph_signature.output_specs[output_index]
    spec.arg.name = str(found.args[0])
    if not found.users:
        graph.erase_node(found)
    exported_program.graph_module.recompile()
    return tuple(found.args[1:])


def _not_quantised(what: str, wanted: str) -> UsageError:
    return UsageError(code="EK764", message=f"{what} is not {wanted}")


def get_config_method_name(
    prefix: str | None = "forward", arg_type: str = "input", index: int = 0, key: str = "scale"
) -> str:
    """Return the name of the constant method that tells a parameter of an input or output: `forward_input0_scale`.

    Args:
        prefix: Name of the method that has the input; None for a name without it.
        arg_type: `input` or `output`.
        index: Number of the input or output, counted from 0.
        key: `scale`, `zp`, `quant_min`, `quant_max` or `dtype`.

    Raises:
        UsageError: EK764, one of them is something else.
    """
    if arg_type not in ("input", "output") or index < 0 or key not in _PARAMETERS:
        raise _not_quantised(f"{arg_type}{index}_{key}", f"input or output, a number, and one of {_PARAMETERS}")
    return f"{'' if prefix is None else f'{prefix}_'}{arg_type}{index}_{key}"


class _QuantizedInterface(ExportPass):
    """Changes inputs or outputs, and lets a manager tell by constant methods how they are quantised."""

    changes_outputs = True
    _kind = ""

    def __init__(
        self,
        edge_program_manager: EdgeProgramManager | None,
        method_name: str | None = None,
        exported_program: ExportedProgram | None = None,
    ) -> None:
        super().__init__()
        self.edge_program_manager = edge_program_manager
        self.exported_program = exported_program
        self.param_prefix_name = method_name

    def _tell(self, index: int, parameters: Sequence[Any]) -> None:
        if self.edge_program_manager is None:
            return
        *numbers, dtype = parameters
        values = (*numbers, int(scalar_type_enum(dtype)))
        for key, value in zip(_PARAMETERS, values, strict=True):
            name = get_config_method_name(self.param_prefix_name, self._kind, index, key)
            self.edge_program_manager._config_methods[name] = value

    def _program(self, graph_module: GraphModule) -> ExportedProgram:
        """Return the program that the graph is of: what the pass is run on is a copy of the manager's."""
        manager, given = self.edge_program_manager, self.exported_program
        program = manager.exported_program(self.param_prefix_name or "forward") if manager is not None else given
        if program is None:
            raise _not_quantised("the pass was given no manager and no program, so the signature", "known")
        made = ExportedProgram.__new__(ExportedProgram)
        made.__dict__.update(program.__dict__)
        made._graph_module = graph_module
        return made


class QuantizeInputs(_QuantizedInterface):
    """Let programs take inputs quantised.

    Args:
        edge_program_manager: The manager that transforms its programs with this pass; it is told the parameters, which
            become constant methods such as `input0_scale`. May be None.
        quantized_inputs_idx: Numbers of the inputs; or, by number, the parameters of what is given, see
            `quantize_input`.
        method_name: Method that the inputs belong to, which the names of constant methods start with.
        exported_program: The program, if there is no manager.

    Attributes:
        quant_args: Parameters of each input, once the pass has run.
    """

    _kind = "input"

    def __init__(
        self,
        edge_program_manager: EdgeProgramManager | None,
        quantized_inputs_idx: Mapping[int, Mapping[str, Any]] | Sequence[int],
        method_name: str | None = None,
        exported_program: ExportedProgram | None = None,
    ) -> None:
        super().__init__(edge_program_manager, method_name, exported_program)
        chosen = quantized_inputs_idx
        self.quantized_inputs_idx_dict: dict[int, Any] = (
            dict(chosen) if isinstance(chosen, Mapping) else dict.fromkeys(chosen)
        )
        self.quant_args: dict[int, tuple[Any, ...]] = {}

    def call(self, graph_module: GraphModule) -> PassResult:
        """Change the inputs."""
        program = self._program(graph_module)
        for index, parameters in self.quantized_inputs_idx_dict.items():
            self.quant_args[index] = quantize_input(program, index, parameters)
            self._tell(index, self.quant_args[index])
        return PassResult(graph_module, True)


class QuantizeOutputs(_QuantizedInterface):
    """Let programs return outputs quantised.

    Args:
        edge_program_manager: The manager that transforms its programs with this pass; it is told the parameters, which
            become constant methods such as `output0_scale`. May be None.
        quantized_outputs_idx_list: Numbers of the outputs.
        method_name: Method that the outputs belong to, which the names of constant methods start with.
        exported_program: The program, if there is no manager.

    Attributes:
        dequant_args: Parameters of each output, once the pass has run.
    """

    _kind = "output"

    def __init__(
        self,
        edge_program_manager: EdgeProgramManager | None,
        quantized_outputs_idx_list: Sequence[int],
        method_name: str | None = None,
        exported_program: ExportedProgram | None = None,
    ) -> None:
        super().__init__(edge_program_manager, method_name, exported_program)
        self.quantized_outputs_idx_list = list(quantized_outputs_idx_list)
        self.dequant_args: dict[int, tuple[Any, ...]] = {}

    def call(self, graph_module: GraphModule) -> PassResult:
        """Change the outputs."""
        program = self._program(graph_module)
        for index in self.quantized_outputs_idx_list:
            self.dequant_args[index] = quantize_output(program, index)
            self._tell(index, self.dequant_args[index])
        return PassResult(graph_module, True)


def extract_io_quant_params(
    edge_prog: EdgeProgramManager, *, input_idxs: Sequence[int] = (0,), output_idxs: Sequence[int] = (0,)
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return how inputs and outputs of the method `forward` are quantised.

    Args:
        edge_prog: A manager, which stays as it is.
        input_idxs: Numbers of inputs, each quantised by the program first of all.
        output_idxs: Numbers of outputs, each dequantised by the program last of all.

    Returns:
        Under `inputs` and `outputs`, for each name in the graph: `scale`, `zero_point`, `quant_min`, `quant_max` and
        `dtype`, the last as the number that it has in program files.
    """
    inputs = QuantizeInputs(edge_prog, list(input_idxs))
    outputs = QuantizeOutputs(edge_prog, list(output_idxs))
    known = dict(edge_prog._config_methods)
    changed = edge_prog.transform([inputs, outputs]).exported_program()
    edge_prog._config_methods = known
    placeholders = [node.name for node in changed.graph.find_nodes(op="placeholder")]
    results = [str(one) for one in results_of_graph(changed.graph)]
    return {
        "inputs": {placeholders[index]: _named(found) for index, found in inputs.quant_args.items()},
        "outputs": {results[index]: _named(found) for index, found in outputs.dequant_args.items()},
    }


def _named(parameters: Sequence[Any]) -> dict[str, Any]:
    scale, zero_point, smallest, largest, dtype = parameters
    numbers = {"scale": scale, "zero_point": zero_point, "quant_min": smallest, "quant_max": largest}
    return {**numbers, "dtype": int(scalar_type_enum(dtype))}
