"""What a program stores, under an editor: parameters, buffers, constants, and the signature that lists them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.fx import Node

from exirkit.ir.diagnostics import Diagnostic, UsageError
from exirkit.ir.inference.fake import fake_like
from exirkit.ir.provenance import inherited, locate

from .editor_state import EditorState
from .journal import MISSING, Rewired, SignatureSet, TableReordered, TableSet
from .metadata import is_static
from .signatures import TO_USER_INPUT, agreed_inputs, agreed_outputs, input_specs_by_node

_MUTATION_OF = {
    InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
}
_MUTATIONS = frozenset(_MUTATION_OF.values())
_STORED = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ})
# What stands behind a new input of a kind: parameters, then buffers, then constants, then what the user passes.
_FOLLOWERS = {
    InputKind.PARAMETER: _STORED - {InputKind.PARAMETER} | {InputKind.USER_INPUT},
    InputKind.BUFFER: frozenset({InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ, InputKind.USER_INPUT}),
}


class EditorInputs(EditorState):
    """The part of `GraphEditor` that edits signature, state and constants."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__(program)
        self._scalar_constants: dict[tuple[Any, ...], Node] = {}
        self._input_specs: dict[Node, InputSpec] = {}
        self._roots: set[str] = set()
        self._first_user_input: tuple[int, Node] | None = None

    def add_constant(
        self,
        tensor: torch.Tensor,
        *,
        name: str,
        origins: Node | Sequence[Node] = (),
        kind: InputKind = InputKind.CONSTANT_TENSOR,
        persistent: bool = True,
    ) -> Node:
        """Make a tensor a constant input of the program, or a parameter or buffer of it.

        Args:
            tensor: Real tensor; it is shared, not copied.
            name: Wish for its name; a taken one gets a number.
            origins: Nodes whose provenance it inherits.
            kind: `CONSTANT_TENSOR`, `PARAMETER` or `BUFFER`.
            persistent: Whether a buffer is part of the state dict.

        Returns:
            The placeholder. Constants of one element and equal dtype, shape and bytes that are added through one
            editor share one placeholder; parameters and buffers have one each.

        Raises:
            UsageError: EK123, the program stores no inputs of this kind.
        """
        tensor = tensor.detach()
        key = scalar_key(tensor) if kind is InputKind.CONSTANT_TENSOR else None
        if key is not None and (known := self._scalar_constants.get(key)) is not None and not known._erased:
            return known
        specs = self._specs()
        position, follower = self._place_of(kind)
        meta = inherited((origins,) if isinstance(origins, Node) else tuple(origins))
        meta["val"] = self._fake(tensor)
        node = self._create("placeholder", name, (), {}, follower, name, meta)
        target = self._free_target(node.name)
        spec = InputSpec(kind, TensorArgument(name=node.name), target, persistent if kind is InputKind.BUFFER else None)
        self._save_signature()
        self.program._graph_signature.input_specs.insert(position, spec)
        self._tell_signature()
        specs[node] = spec
        if self._first_user_input is not None:
            first, user_input = self._first_user_input
            self._first_user_input = (first + 1, user_input)
        is_state = kind is InputKind.PARAMETER or (kind is InputKind.BUFFER and persistent)
        table: dict[str, Any] = self.program._state_dict if is_state else self.program._constants
        is_parameter = kind is InputKind.PARAMETER
        self._set_entry(table, target, torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor)
        if key is not None:
            self._scalar_constants[key] = node
        return node

    def remove_input(self, node: Node) -> None:
        """Remove an unused parameter, buffer or constant from graph, signature and tables.

        Raises:
            UsageError: As `remove_inputs`.
        """
        self.remove_inputs((node,))

    def remove_inputs(self, nodes: Sequence[Node]) -> None:
        """Remove unused parameters, buffers and constants from graph, signature and tables.

        Raises:
            UsageError: EK114, a node is not in the graph; EK115, something uses it, or the program writes to it;
                EK116, it is no stored tensor.
        """
        outputs = self.program._graph_signature.output_specs
        written = {spec.target for spec in outputs if spec.kind not in TO_USER_INPUT}
        unwanted: dict[int, InputSpec] = {}
        for node in nodes:
            spec = self._stored_spec(node)
            self._check_unused(node)
            if spec.target in written:
                raise UsageError(
                    Diagnostic(code="EK115", message=f"%{node.name} is written by the program", location=locate(node))
                )
            unwanted[id(spec)] = spec
        known = self._specs()
        for node in nodes:
            self.erase(node)
            known.pop(node, None)
        self._save_signature()
        specs = self.program._graph_signature.input_specs
        specs[:] = [spec for spec in specs if id(spec) not in unwanted]
        self._tell_signature()
        self._first_user_input = None
        kept = {spec.target for spec in specs}
        for spec in unwanted.values():
            if spec.target not in kept:
                self._drop_entry(self.program._state_dict, spec.target)
                self._drop_entry(self.program._constants, spec.target)

    def _is_removable(self, node: Node) -> bool:
        """Tell whether an unused input is a stored tensor that the program does not write to."""
        spec = self._specs().get(node)
        written = {one.target for one in self.program._graph_signature.output_specs if one.kind not in TO_USER_INPUT}
        return spec is not None and spec.kind in _STORED and spec.target not in written

    def set_tensor(self, node: Node, tensor: torch.Tensor) -> None:
        """Replace the tensor behind a parameter, buffer or constant placeholder.

        Other placeholders of the same tensor, if there are any, have the new one too.

        Raises:
            UsageError: EK114, the node is not in the graph; EK116, it is no stored tensor.
        """
        target = str(self._stored_spec(node).target)
        for table in (self.program._state_dict, self.program._constants):
            old = table.get(target, MISSING)
            if old is not MISSING and old is not tensor:
                self._set_entry(table, target, _in_place_of(old, tensor))
        for other, spec in self._specs().items():
            if spec.target == target:
                self.set_value(other, self._fake(tensor.detach()))
        self._scalar_constants = {key: known for key, known in self._scalar_constants.items() if known is not node}

    def add_mutation(self, owner: Node, value: Node) -> None:
        """Make the program leave a value in an input, a buffer or a parameter, as the last of its mutations.

        Args:
            owner: Placeholder.
            value: What it holds in the end.

        Raises:
            UsageError: EK114, a node is not in the graph; EK116, the program cannot write to such an input.
        """
        self._check(owner, value)
        spec = self._specs().get(owner)
        kind = None if spec is None else _MUTATION_OF.get(spec.kind)
        if spec is None or kind is None:
            expected = "the placeholder of a parameter, a buffer or a user's input"
            raise UsageError(
                Diagnostic(
                    code="EK116", message=f"%{owner.name} is never mutated", location=locate(owner), expected=expected
                )
            )
        self._save_signature()
        specs = self.program._graph_signature.output_specs
        position = sum(one.kind in _MUTATIONS for one in specs)
        target = owner.name if spec.kind is InputKind.USER_INPUT else spec.target
        specs.insert(position, OutputSpec(kind, TensorArgument(name=value.name), target=target))
        output = self.graph.output_node()
        results: Any = output.args[0]
        results = list(results) if isinstance(results, list | tuple) else [results]
        self._save_users(output.all_input_nodes)
        change = Rewired(output, output.args, output.kwargs)
        self._note(change)
        output._update_args_kwargs(((*results[:position], value, *results[position:]),), {})
        self._made(change)
        self._tell_signature()

    def set_range(self, symbol: Any, value_range: Any) -> None:
        """Record the range of a size symbol."""
        self._set_entry(self.program._range_constraints, symbol, value_range)

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if type(tensor) is torch.Tensor and is_static(tensor) and not tensor.is_quantized:
            return fake_like(self.fake_mode, tensor)
        return self.fake_mode.from_tensor(tensor, static_shapes=True)

    def _set_entry(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        change = TableSet(table, key, table.get(key, MISSING))
        self._note(change)
        table[key] = value
        self._made(change)

    def _drop_entry(self, table: dict[Any, Any], key: Any) -> None:
        if key in table:
            if self._is_first(id(table)):
                self._journal.append(TableReordered(table, tuple(table)))
            change = TableSet(table, key, table.pop(key))
            self._note(change)
            self._made(change)

    def _save_signature(self) -> None:
        if self._is_first("signature"):
            signature = self.program._graph_signature
            self._journal.append(SignatureSet(self.program, list(signature.input_specs), list(signature.output_specs)))

    def _tell_signature(self) -> None:
        if self._journal.watch is not None:
            self._made(SignatureSet(self.program, [], []))

    def _specs(self) -> dict[Node, InputSpec]:
        """Return the input specs by placeholder; nodes may have been renamed since the signature agreed with them."""
        if not self._open:
            # Outside transactions nobody tells when they become wrong.
            self._forget()
        if not self._input_specs:
            self._input_specs = input_specs_by_node(self.graph, self.program._graph_signature.input_specs)
        return self._input_specs

    def _stored_spec(self, node: Node) -> InputSpec:
        self._check(node)
        spec = self._specs().get(node)
        if spec is None or spec.kind not in _STORED:
            raise UsageError(
                Diagnostic(
                    code="EK116",
                    message=f"%{node.name} is no stored tensor",
                    location=locate(node),
                    expected="the placeholder of a parameter, buffer or constant",
                )
            )
        return spec

    def _place_of(self, kind: InputKind) -> tuple[int, Node]:
        """Return the position of a new input of a kind, and the node in front of which it stands."""
        if kind is InputKind.CONSTANT_TENSOR:
            return self._boundary()
        followers = _FOLLOWERS.get(kind)
        if followers is None:
            raise UsageError(
                Diagnostic(
                    code="EK123",
                    message=f"an input of kind {kind.name} has no stored tensor",
                    expected="InputKind.PARAMETER, BUFFER or CONSTANT_TENSOR",
                )
            )
        specs = self.program._graph_signature.input_specs
        position = next((index for index, spec in enumerate(specs) if spec.kind in followers), None)
        if position is None:
            return self._boundary()
        return position, self.graph.find_nodes(op="placeholder")[position]

    def _boundary(self) -> tuple[int, Node]:
        """Return the position of the first user input, and the node in front of which a new input stands."""
        if self._first_user_input is None or self._first_user_input[1]._erased:
            specs = self.program._graph_signature.input_specs
            kinds = [spec.kind for spec in specs]
            placeholders = self.graph.find_nodes(op="placeholder")
            if InputKind.USER_INPUT not in kinds:
                return len(kinds), placeholders[-1].next if placeholders else next(iter(self.graph.nodes))
            position = kinds.index(InputKind.USER_INPUT)
            self._first_user_input = (position, placeholders[position])
        return self._first_user_input

    def _free_target(self, wish: str) -> str:
        """Return a name that no stored tensor, module on the way to one, or attribute of the graph module has."""
        if not self._roots:
            for table in (self.program._state_dict, self.program._constants):
                self._roots.update(name.partition(".")[0] for name in table)
        while wish in self._roots or hasattr(self.program.graph_module, wish):
            wish += "_"
        self._roots.add(wish)
        return wish

    def _agree_signature(self) -> None:
        """Make the signature say what the graph takes and returns."""
        signature = self.program._graph_signature
        inputs = agreed_inputs(self.graph, signature.input_specs)
        renamed = {
            old.arg.name: new.arg.name for old, new in zip(signature.input_specs, inputs, strict=True) if old is not new
        }
        outputs = agreed_outputs(self.graph, signature.output_specs, renamed)
        if any(map(operator.is_not, (*inputs, *outputs), (*signature.input_specs, *signature.output_specs))):
            self._save_signature()
            signature.input_specs[:] = inputs
            signature.output_specs[:] = outputs
            self._tell_signature()
            self._forget()

    def _forget(self) -> None:
        """Drop what was derived from a signature that may be another one now."""
        self._input_specs = {}
        self._roots = set()
        self._first_user_input = None

    def _settle(self) -> None:
        super()._settle()
        self._scalar_constants = {key: node for key, node in self._scalar_constants.items() if not node._erased}


def scalar_key(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """Return a key that is equal for one-element tensors of equal dtype, shape and bytes; None for other tensors."""
    if tensor.numel() != 1 or type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return None
    if tensor.is_quantized or tensor.device.type != "cpu":
        return None
    # A single element is contiguous with any stride, but seen as bytes only with stride 1.
    data = tensor.resolve_conj().resolve_neg().contiguous().reshape(1).as_strided((1,), (1,)).view(torch.uint8)
    return (tensor.dtype, tuple(tensor.shape), bytes(data.tolist()))


def _in_place_of(old: Any, tensor: torch.Tensor) -> torch.Tensor:
    if not isinstance(old, torch.nn.Parameter) or isinstance(tensor, torch.nn.Parameter):
        return tensor
    has_gradient = old.requires_grad and (tensor.is_floating_point() or tensor.is_complex())
    return torch.nn.Parameter(tensor.detach(), requires_grad=has_gradient)
