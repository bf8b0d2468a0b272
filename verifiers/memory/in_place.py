"""Whether a result may lie over an argument: the one case in which two values share bytes at one step."""

from __future__ import annotations

from torch.fx import GraphModule, Node

from exirkit.ir import TensorSpec, has_form_of, out_operator_name, overwritable_arguments, underlying

from .liveness import LiveRange, Ownership, specs_of


class Overwriting:
    """Answers for one graph which range may take the place of which."""

    def __init__(self, graph_module: GraphModule, ownership: Ownership, *, is_body: bool) -> None:
        self._nodes = list(graph_module.graph.nodes)
        self._ownership = ownership
        self._is_body = is_body

    def allows(self, new: LiveRange, old: LiveRange) -> bool:
        """Return whether the node that uses the old value for the last time may write the new one over all of it.

        That node must be the one that computes the new value, and its operator must allow to overwrite each argument
        that lies there.
        """
        if new.spec is None or old.spec is None:
            return False
        # A body runs again, and its inputs may not be filled again.
        if self._is_body and old.holder.op == "placeholder":
            return False
        if (new.start, new.end) != (old.start, old.end):
            return False
        node = self._nodes[old.last_step]
        if node is not new.holder:
            return False
        table = overwritable_arguments(out_operator_name(node.target))
        results = [name for name in table if self._named(node, name) == [new.spec]]
        if len(results) != 1:
            return False
        return self._overwrites_only(node, table[results[0]], new.spec, old.spec)

    def _overwrites_only(self, node: Node, overwritable: tuple[str, ...], new: TensorSpec, old: TensorSpec) -> bool:
        """Return whether all that a node reads of the old memory is such an argument, laid out like the result."""
        readers = {
            argument.name: specs
            for argument in underlying(node.target)._schema.arguments
            if (specs := [spec for spec in self._named(node, argument.name) if self._ownership.owner(spec) is old])
        }
        alike = all(
            has_form_of(spec, new) and (spec.mem_id, spec.mem_offset) == (new.mem_id, new.mem_offset)
            for specs in readers.values()
            for spec in specs
        )
        return bool(readers) and alike and old.nbytes() == new.nbytes() and readers.keys() <= set(overwritable)

    def _named(self, node: Node, name: str) -> list[TensorSpec]:
        """Return the specs that a node passes for the argument of a name."""
        value = node.kwargs.get(name)
        if value is None:
            names = [argument.name for argument in underlying(node.target)._schema.arguments]
            place = names.index(name) if name in names else len(names)
            value = node.args[place] if place < len(node.args) else None
        values = value if isinstance(value, (list, tuple)) else (value,)
        return [spec for one in values if isinstance(one, Node) for spec in specs_of(one)]
