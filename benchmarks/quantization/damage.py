"""Damage to one layer of a quantized program, as defects of quantizers, passes and files do it."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.passes.quantization_noise.pairing import conversion

Damage = Callable[[ExportedProgram, random.Random], str]


@dataclass(frozen=True)
class Damaged:
    """A program of which one layer is damaged.

    Attributes:
        program: The program.
        call: Name of the call in it whose layer it is.
        kind: What was done.
    """

    program: ExportedProgram
    call: str
    kind: str


def integers_of_a_weight(program: ExportedProgram, chance: random.Random) -> str:
    """Exchange rows of a stored weight, as a wrong layout does."""
    reader, weight = chance.choice(list(_weights(program)))
    tensor = program.state_dict[weight]
    tensor.copy_(tensor.roll(1, 0))
    return reader.name


def scales_of_a_weight(program: ExportedProgram, chance: random.Random) -> str:
    """Double the scales of a stored weight."""
    reader, _ = chance.choice(list(_weights(program)))
    dequantizing = next(one for one in reader.all_input_nodes if conversion(one) == "dequantize" and not _reads(one))
    scale = dequantizing.args[1]
    if isinstance(scale, Node):
        program.state_dict[_stored(program, scale)].mul_(2)
    else:
        assert isinstance(scale, float)
        dequantizing.update_arg(1, scale * 2)
    return reader.name


def range_of_a_value(program: ExportedProgram, chance: random.Random) -> str:
    """Quantize a value as if it had a quarter of its range: what is beyond saturates."""
    quantizing = chance.choice(list(_quantizations(program)))
    for one in [quantizing, *quantizing.users]:
        scale = one.args[1]
        assert isinstance(scale, float)
        one.update_arg(1, scale / 4)
    return quantizing.all_input_nodes[0].name


def zero_point_of_a_value(program: ExportedProgram, chance: random.Random) -> str:
    """Dequantize a value with another zero point than it was quantized with."""
    quantizing = chance.choice(list(_quantizations(program)))
    for one in list(quantizing.users):
        zero = one.args[2]
        assert isinstance(zero, int)
        one.update_arg(2, zero + 12 if zero < 0 else zero - 12)
    return quantizing.all_input_nodes[0].name


KINDS: dict[str, Damage] = {
    "integers of a weight": integers_of_a_weight,
    "scales of a weight": scales_of_a_weight,
    "range of a value": range_of_a_value,
    "zero point of a value": zero_point_of_a_value,
}


def damaged(program: ExportedProgram, seed: int) -> Damaged:
    """Return a copy of a quantized program with one layer damaged."""
    chance = random.Random(seed)
    kind = list(KINDS)[seed % len(KINDS)]
    with warnings.catch_warnings():
        # Of torch, about its own use of torch.
        warnings.simplefilter("ignore")
        made = deepcopy(program)
    call = KINDS[kind](made, chance)
    made.graph_module.recompile()
    return Damaged(made, call, kind)


def _weights(program: ExportedProgram) -> Iterator[tuple[Node, str]]:
    """Yield calls that read a stored weight, with its name; a number is not one."""
    for node in program.graph.nodes:
        if conversion(node) == "dequantize" and not _reads(node):
            name = _stored(program, node.all_input_nodes[0])
            if program.state_dict[name].dim():
                yield next(iter(node.users)), name


def _quantizations(program: ExportedProgram) -> Iterator[Node]:
    """Yield the quantizations of what layers give."""
    for node in program.graph.nodes:
        if conversion(node) == "quantize" and node.all_input_nodes[0].op == "call_function":
            yield node


def _reads(node: Node) -> bool:
    """Whether a call reads the result of another."""
    return any(one.op == "call_function" for one in node.all_input_nodes)


def _stored(program: ExportedProgram, node: Node) -> str:
    signature = program.graph_signature
    return {**signature.inputs_to_buffers, **signature.inputs_to_parameters}[node.name]


def is_named_first(program: ExportedProgram, quantized: Damaged, samples: list[tuple[torch.Tensor]]) -> bool:
    """Whether the report ranks a damaged layer first."""
    from exirkit.passes import quantization_report

    report = quantization_report(program, quantized.program, samples, on_results=False)
    return report.ranked()[0].counterpart == quantized.call
