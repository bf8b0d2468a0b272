"""Runs of the float and of the quantized program, and the noise that the values of the latter carry."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg

from .pairing import Pairing, conversion


@dataclass
class Noise:
    """Powers of a signal and of the noise on it, summed over elements and samples.

    Attributes:
        signal: Sum of the squares of the float values.
        noise: Sum of the squares of the differences.
    """

    signal: float = 0.0
    noise: float = 0.0

    def add(self, plain: torch.Tensor, quantized: torch.Tensor) -> None:
        """Add a value, as the float program computes it and as the quantized one does.

        Elements that are the same infinity or NaN in both do not count; any other that is not finite in the quantized
        one is infinitely noisy.
        """
        one, other = plain.detach().double(), quantized.detach().double()
        same = (one == other) | (one.isnan() & other.isnan())
        finite = one.isfinite()
        apart = torch.where(same, 0.0, one - other)
        self.signal += float(one[finite].square().sum())
        self.noise += float(apart.square().sum().nan_to_num(nan=math.inf, posinf=math.inf))

    @property
    def decibels(self) -> float:
        """Signal to noise; infinite where both agree in all bits, minus infinity where only noise is left."""
        if self.noise == 0:
            return math.inf
        ratio = self.signal / self.noise if math.isfinite(self.signal) else 0.0
        return 10 * math.log10(ratio) if ratio > 0 else -math.inf


class QuantizedProgram:
    """A quantized program, and where its values are quantized.

    A quantization belongs to the call that gives the value, if that is quantized itself and its value is quantized
    once, for all that read it. Else it belongs to those that read the value. So each is counted with one layer.

    Attributes:
        plain: The counterpart in the float program of each call that has one.
        owners: The call to which a quantization belongs, by the call that quantizes.
        shown: The same, by the calls that dequantize.
        quantized: The calls with a quantization of their own, of a value that they read or give.

    Args:
        module: What `ExportedProgram.module()` gives.
        pairing: Counterparts of its calls.
    """

    def __init__(self, module: GraphModule, pairing: Pairing) -> None:
        self.module = module
        self.plain = {theirs: ours for ours, theirs in pairing.quantized.items()}
        self.owners: dict[Node, Node] = {}
        self.shown: dict[Node, Node] = {}
        self.quantized: set[Node] = set()
        begun: set[Node] = set()
        for node in module.graph.nodes:
            if node not in self.plain:
                continue
            dequantizing = self._integers_read(node)
            # What belongs to the call before is not counted again.
            if not dequantizing <= self.shown.keys():
                self.quantized.add(node)
            if dequantizing or _goes_on(node, begun):
                begun.add(node)
                self._give_conversion(node)

    def _give_conversion(self, node: Node) -> None:
        """Note the quantization of the value of a call, if there is one, with known parameters."""
        quantizing = [user for user in node.users if conversion(user) == "quantize"]
        if len(quantizing) != 1 or any(one.op == "call_function" for one in quantizing[0].all_input_nodes[1:]):
            return
        users = list(quantizing[0].users)
        if users and all(conversion(user) == "dequantize" for user in users):
            self.owners[quantizing[0]] = node
            self.shown.update(dict.fromkeys(users, node))
            self.quantized.add(node)

    def _integers_read(self, node: Node) -> set[Node]:
        """Return what turns integers into floats, or holds integers, of what a call reads: up to other layers."""
        found: set[Node] = set()
        seen, near = {node}, list(node.all_input_nodes)
        while near:
            one = near.pop()
            if one in seen or one in self.plain:
                continue
            seen.add(one)
            if conversion(one) == "dequantize" or _holds_integers(one):
                found.add(one)
            else:
                near += one.all_input_nodes
        return found


def _goes_on(node: Node, begun: set[Node]) -> bool:
    """Whether a call ends what a quantized call began, as an activation does that is merged into it."""
    sources = [one for one in node.all_input_nodes if one.op != "get_attr"]
    return bool(sources) and all(one in begun and len(one.users) == 1 for one in sources)


def _holds_integers(node: Node) -> bool:
    value = node.meta.get("val")
    return node.op == "get_attr" and isinstance(value, torch.Tensor) and value.dtype in (torch.int8, torch.uint8)


class Measuring(Interpreter):
    """Runs a quantized program and records the values that have a counterpart, by the counterpart.

    Args:
        program: The program.
        plain: Values of the float program by node. With them, each call reads what the float program computes: what is
            recorded carries the noise of the call alone.
    """

    def __init__(self, program: QuantizedProgram, plain: Mapping[Node, Any] | None = None) -> None:
        super().__init__(program.module)
        self.program, self.given = program, plain
        self.found: dict[Node, torch.Tensor] = {}

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Return the arguments of a call."""
        return map_arg(args, lambda one: self._read(one, n))

    def _read(self, node: Node, reader: Node) -> Any:
        ours = self.program.plain.get(self.program.shown.get(node, node))
        # A quantization that belongs to a call reads what that call itself gives.
        if self.given is None or ours is None or reader in self.program.owners:
            return self.env[node]
        return self.given[ours]

    def run_node(self, n: Node) -> Any:
        """Run a call and record its value."""
        made = super().run_node(n)
        # The value of a call to which a quantization belongs is the dequantized one.
        owner = self.program.shown.get(n, n)
        if owner in self.program.plain:
            self.found[self.program.plain[owner]] = made
        return made


class Recording(Interpreter):
    """Runs a float program and keeps all values.

    Args:
        module: The program.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.found: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        """Run a call and keep its value."""
        self.found[n] = super().run_node(n)
        return self.found[n]


def results_with(module: GraphModule, values: Mapping[Node, Any], changed: Node, value: Any, inputs: Any) -> Any:
    """Return the results of a float program in which one call gives another value.

    Args:
        module: The program.
        values: What its calls give.
        changed: The call.
        value: What it gives instead.
        inputs: Inputs of the program.
    """
    later = _after(changed)
    known = {node: one for node, one in values.items() if node not in later and node.op != "output"}
    return Interpreter(module, garbage_collect_values=False).run(*inputs, initial_env={**known, changed: value})


def _after(node: Node) -> set[Node]:
    later: set[Node] = set()
    near = list(node.users)
    while near:
        one = near.pop()
        if one not in later:
            later.add(one)
            near += one.users
    return later


class State:
    """The tensors that calls of a module write to, as they are now.

    Args:
        module: What `ExportedProgram.module()` gives: it shares them with the program.
    """

    def __init__(self, module: GraphModule) -> None:
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        state = module.state_dict(keep_vars=True)
        for node in module.graph.nodes:
            for one in node.all_input_nodes if writes(node) else ():
                if one.op == "get_attr" and str(one.target) in state:
                    tensor = state[str(one.target)]
                    self.kept.append((tensor, tensor.detach().clone()))

    def restore(self) -> None:
        """Write them again."""
        with torch.no_grad():
            for tensor, kept in self.kept:
                tensor.copy_(kept)


def writes(node: Node) -> bool:
    """Whether a call writes into an argument."""
    schema = getattr(node.target, "_schema", None)
    return isinstance(schema, torch.FunctionSchema) and schema.is_mutable
