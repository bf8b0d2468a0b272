"""The one editor through which programs change: transactions, and what a program stores, takes and returns."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.fx import GraphModule, Node

from exirkit.ir.analysis import MUTATION_KINDS, is_static, results_of_graph
from exirkit.ir.deferred_tensors import DeferredTensor
from exirkit.ir.diagnostics import Diagnostic, UsageError
from exirkit.ir.inference import fake_like
from exirkit.ir.provenance import inherited, locate
from exirkit.ir.torch_internals import LazyGraphModule, pytree

from .journal import (
    EDITED,
    MISSING,
    Checkpoint,
    EditWatch,
    Erased,
    Rewired,
    SignatureSet,
    TableReordered,
    TableSet,
    Transaction,
    effect_of,
)
from .node_editor import NodeEditor
from .node_order import release
from .programs import TO_USER_INPUT, agreed_inputs, agreed_outputs, as_stored, input_specs_by_node, scalar_key

_MUTATION_OF = {
    InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
}
_STORED = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ})
# What stands behind a new input of a kind: parameters, then buffers, then constants, then what the user passes.
_FOLLOWERS = {
    InputKind.PARAMETER: _STORED - {InputKind.PARAMETER} | {InputKind.USER_INPUT},
    InputKind.BUFFER: frozenset({InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ, InputKind.USER_INPUT}),
}


class GraphEditor(NodeEditor):
    """Edits one program in place; the caller hands in a copy it owns (`copy_program`).

    Edits are made inside a `transaction`. Every method that takes a node raises `UsageError` EK114 if the node is not,
    or no longer, in the graph.

    Attributes:
        program: The program being edited; its signature and tables agree with the graph whenever a transaction ends.
        graph: Its graph.
        fake_mode: Mode of the graph's fake tensors.
    """

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__(program.graph_module)
        self.program = program
        # Editors of the subgraphs of control flow; they share the journal.
        self._subgraphs: dict[str, GraphEditor] = {}
        self._scalar_constants: dict[tuple[Any, ...], Node] = {}
        self._input_specs: dict[Node, InputSpec] = {}
        self._roots: set[str] = set()
        self._first_user_input: tuple[int, Node] | None = None

    # Transactions

    @contextmanager
    def transaction(self, author: str, *, records_effect: bool = True) -> Iterator[Transaction]:
        """Group edits: all of them happen or, if the block raises, none.

        Transactions nest. One that fails inside another undoes its own edits only, and the outer one may go on.

        Args:
            author: Name of the pass or rule, for the journal and for messages.
            records_effect: Find out in the end what the edits amount to; costs time for every transaction.

        Yields:
            The transaction; `modified` and `effect` are set when the block ends.

        Raises:
            ModelError: EK111, a call that was not made here does not take what its arguments have become.
            ContractError: EK113, the number of inputs or outputs has changed behind the signature's back.
        """
        transaction = self._begin(author, records_effect=records_effect)
        try:
            yield transaction
            self.propagate()
            if len(self._open) == 1:
                self._agree_signature()
        except BaseException:
            transaction.roll_back()
            raise
        finally:
            self._end(transaction)

    def checkpoint(self) -> Checkpoint:
        """Mark the present state, to come back to it before the outermost transaction ends.

        Raises:
            UsageError: EK121, no transaction is open.
        """
        if not self._open:
            raise UsageError(Diagnostic.of("EK121", "states are kept inside a transaction only"))
        for one in self._open:
            # What was saved before is not good enough any more: it is older than the mark.
            one._saved.clear()
        return Checkpoint(self)

    def agree(self) -> None:
        """Bring values and signature up to date in the middle of a transaction, as happens when the outermost one ends.

        Raises:
            ModelError: As `propagate`.
            ContractError: EK113, the number of inputs or outputs has changed behind the signature's back.
        """
        self.propagate()
        self._agree_signature()

    def _begin(self, author: str, *, records_effect: bool) -> Transaction:
        transaction = Transaction(self, author, records_effect=records_effect)
        if not self._open:
            EDITED.setdefault(self.program, self)
        self._open.append(transaction)
        return transaction

    def _end(self, transaction: Transaction) -> None:
        if transaction.records_effect:
            transaction.effect = effect_of(self._journal[transaction._start :])
        self._open.remove(transaction)
        if not self._open:
            if EDITED.get(self.program) is self:
                del EDITED[self.program]
            self._settle()

    def _settle(self) -> None:
        """Let go of what only an undo would have needed."""
        for change in self._journal:
            if type(change) is Erased:
                release(change.node)
        self._journal.clear()
        self._forget()
        module = self.program.graph_module
        if isinstance(module, LazyGraphModule):
            # The module may have been run or printed between two edits; its code is generated again when next needed.
            module.recompile()
        self._scalar_constants = {key: node for key, node in self._scalar_constants.items() if not node._erased}
        for subgraph in self._subgraphs.values():
            subgraph._settle()

    def _undo_to(self, transaction: Transaction) -> None:
        self._journal.undo_to(transaction._start)
        self._stale = dict.fromkeys(transaction._stale)
        self._forget()
        for other in self._open:
            if other._start >= transaction._start:
                other._saved.clear()

    # Edits that others make

    def watch(self) -> EditWatch | None:
        """Remember what the graphs are now, and what is done to them from now on, to find edits made by others.

        Returns:
            What is remembered; None if there is a watch already, which goes on.
        """
        if self._journal.watch is not None:
            return None
        self._journal.watch = watch = EditWatch(self.program)
        return watch

    def unwatch(self) -> None:
        """End what `watch` began."""
        self._journal.watch = None

    # Subgraphs of control flow

    def add_subgraph(self, module: GraphModule, name: str, *, before: Node) -> Node:
        """Give the program another graph for its calls of control flow.

        Args:
            module: The graph; it becomes an attribute of the graph's module.
            name: Wish for the name of the attribute; a taken one gets a number.
            before: Node in front of which the attribute is read.

        Returns:
            The node that reads it.
        """
        self._check(before)
        held: dict[str, Any] = vars(self.program.graph_module)["_modules"]
        taken = {*held, *(str(node.target) for node in self.graph.find_nodes(op="get_attr"))}
        free = next(one for one in (f"{name}_{number}" for number in range(len(taken) + 1)) if one not in taken)
        self._set_entry(held, free, module)
        return self._create("get_attr", free, (), {}, before, free, {})

    def drop_unused_subgraphs(self) -> None:
        """Forget graphs of control flow that nothing reads any more."""
        held: dict[str, Any] = vars(self.program.graph_module)["_modules"]
        read = {str(node.target).partition(".")[0] for node in self.graph.find_nodes(op="get_attr")}
        for name in [one for one, module in held.items() if isinstance(module, GraphModule)]:
            if name not in read:
                self._drop_entry(held, name)

    # Stored tensors and the signature

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
                EK116, it is not a stored tensor.
        """
        outputs = self.program._graph_signature.output_specs
        written = {spec.target for spec in outputs if spec.kind not in TO_USER_INPUT}
        unwanted: dict[int, InputSpec] = {}
        for node in nodes:
            spec = self._stored_spec(node)
            self._check_unused(node)
            if spec.target in written:
                raise UsageError(
                    Diagnostic.of("EK115", f"%{node.name} is written by the program", location=locate(node))
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
        """Return whether an unused input is a stored tensor that the program does not write to."""
        spec = self._specs().get(node)
        written = {one.target for one in self.program._graph_signature.output_specs if one.kind not in TO_USER_INPUT}
        return spec is not None and spec.kind in _STORED and spec.target not in written

    def set_tensor(self, node: Node, tensor: torch.Tensor) -> None:
        """Replace the tensor behind a parameter, buffer or constant placeholder.

        Other placeholders of the same tensor, if there are any, have the new one too.

        Raises:
            UsageError: EK114, the node is not in the graph; EK116, it is not a stored tensor.
        """
        target = str(self._stored_spec(node).target)
        for table in (self.program._state_dict, self.program._constants):
            old = table.get(target, MISSING)
            if old is not MISSING and old is not tensor:
                self._set_entry(table, target, as_stored(old, tensor))
        for other, spec in self._specs().items():
            if spec.target == target:
                self.set_value(other, self._fake(tensor.detach()))
        self._scalar_constants = {key: known for key, known in self._scalar_constants.items() if known is not node}

    def set_user_input(self, node: Node, value: torch.Tensor, example: Callable[[torch.Tensor], Any]) -> None:
        """Let the program take another tensor: callers have to give that from now on.

        Args:
            node: Placeholder of an input that callers give.
            value: Fake tensor of the new dtype, sizes and strides.
            example: From an example of the old input to one of the new input.
        """
        self.set_value(node, value)
        given = self.program._example_inputs
        names = [one.arg.name for one in self.program._graph_signature.input_specs if one.kind is InputKind.USER_INPUT]
        if given is None or node.name not in names:
            return
        leaves, spec = pytree.tree_flatten(given)
        leaves[names.index(node.name)] = example(leaves[names.index(node.name)])
        self._set_entry(vars(self.program), "_example_inputs", pytree.tree_unflatten(leaves, spec))

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
            is_constant = spec is not None and spec.kind is InputKind.CONSTANT_TENSOR
            message = f"%{owner.name} is {'a constant, and ' if is_constant else ''}never mutated"
            # A buffer that the model reaches by a list, such as a cache of keys, is exported as a constant.
            hint = "register the tensor with `register_buffer`; if it is one already, export with `strict=True`"
            finding = Diagnostic.of("EK116", message, location=locate(owner), expected=expected)
            raise UsageError(finding.model_copy(update={"hint": hint}) if is_constant else finding)
        self._save_signature()
        specs = self.program._graph_signature.output_specs
        position = sum(one.kind in MUTATION_KINDS for one in specs)
        target = owner.name if spec.kind is InputKind.USER_INPUT else spec.target
        specs.insert(position, OutputSpec(kind, TensorArgument(name=value.name), target=target))
        output = self.graph.output_node()
        results = results_of_graph(self.graph)
        self._save_users(output.all_input_nodes)
        change = Rewired(output, output.args, output.kwargs)
        output._update_args_kwargs(((*results[:position], value, *results[position:]),), {})
        self._record(change)
        self._tell_signature()

    def remove_mutations(self, owners: Sequence[Node]) -> None:
        """Let the program not write to buffers and parameters any more: they hold in the end what they held before.

        Args:
            owners: Their placeholders.

        Raises:
            UsageError: EK114, a node is not in the graph; EK116, it is not a stored tensor.
        """
        targets = {self._stored_spec(owner).target for owner in owners}
        specs = self.program._graph_signature.output_specs
        kinds = MUTATION_KINDS - TO_USER_INPUT
        kept = [at for at, one in enumerate(specs) if one.kind not in kinds or one.target not in targets]
        if len(kept) == len(specs):
            return
        self._save_signature()
        output = self.graph.output_node()
        results = results_of_graph(self.graph)
        specs[:] = [specs[at] for at in kept]
        self._save_users(output.all_input_nodes)
        change = Rewired(output, output.args, output.kwargs)
        output._update_args_kwargs((tuple(results[at] for at in kept),), {})
        self._record(change)
        self._tell_signature()

    def set_range(self, symbol: Any, value_range: Any) -> None:
        """Record the range of a size symbol."""
        self._set_entry(self.program._range_constraints, symbol, value_range)

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if type(tensor) in (torch.Tensor, DeferredTensor) and is_static(tensor) and not tensor.is_quantized:
            return fake_like(self.fake_mode, tensor)
        return self.fake_mode.from_tensor(tensor, static_shapes=True)

    def _set_entry(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        change = TableSet(table, key, table.get(key, MISSING))
        table[key] = value
        self._record(change)

    def _drop_entry(self, table: dict[Any, Any], key: Any) -> None:
        if key in table:
            if self._is_first(id(table)):
                self._journal.append(TableReordered(table, tuple(table)))
            change = TableSet(table, key, table.pop(key))
            self._record(change)

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
            # Outside transactions nothing reports when they become wrong.
            self._forget()
        if not self._input_specs:
            self._input_specs = input_specs_by_node(self.graph, self.program._graph_signature.input_specs)
        return self._input_specs

    def _stored_spec(self, node: Node) -> InputSpec:
        self._check(node)
        spec = self._specs().get(node)
        if spec is None or spec.kind not in _STORED:
            raise UsageError(
                Diagnostic.of(
                    "EK116",
                    f"%{node.name} is not a stored tensor",
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
                Diagnostic.of(
                    "EK123",
                    f"an input of kind {kind.name} has no stored tensor",
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
