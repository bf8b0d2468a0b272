"""Whether what two computations of a quantized model differ by comes from ties alone.

Sums of floats in another order differ by a rounding error. Where such a sum is quantized and lies between two integers,
the error decides which of them it becomes: a step of the scale, which later layers carry on. To show that nothing else
differs, eager PyTorch is given the integers that the runtime found, one quantization after the other: each time, all
that it finds itself must be these integers, except one beside them where its float lies at the middle of the two. Zero
points that are chosen while the model runs are such integers as well. Scales that are chosen then are given too, and
have to be those that eager PyTorch chooses but for such an error: deep models carry it on like a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter, Node


def makes_integers(node: Node) -> bool:
    """Whether a call quantizes a float that is not a weight."""
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    library, _, operator = name.partition("::")
    if library not in ("quantized_decomposed", "torchao") or not operator.startswith("quantize_"):
        return False
    source = node.args[0]
    return isinstance(source, Node) and source.op != "get_attr"


def chooses_zero_points(node: Node) -> bool:
    """Whether a call chooses scales and zero points for what it is given."""
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    library, _, operator = name.partition("::")
    return library in ("quantized_decomposed", "torchao") and operator.startswith("choose_qparams")


class Probed(torch.nn.Module):
    """A model that returns what its quantizations make and choose beside its results."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        recorder = _Recorder(self.module)
        results = recorder.run(*inputs)
        return (*(results if isinstance(results, tuple | list) else (results,)), *recorder.found)


class _Recorder(Interpreter):
    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.found: list[torch.Tensor] = []

    def run_node(self, n: Node) -> Any:
        made = super().run_node(n)
        if makes_integers(n):
            self.found.append(made)
        elif chooses_zero_points(n):
            self.found.extend(made[:2])
        return made


def probed(exported: ExportedProgram, inputs: tuple[Any, ...], dynamic_shapes: Any) -> tuple[ExportedProgram, int]:
    """Return a program that also returns the integers of its quantizations, and how many results it had."""
    module = exported.module(check_guards=False)
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    results = output.args[0]
    sizes = None if dynamic_shapes is None else (tuple(dynamic_shapes),)
    made = torch.export.export(Probed(module), inputs, dynamic_shapes=sizes, strict=False)
    return made, len(results) if isinstance(results, tuple | list) else 1


@dataclass
class Ties:
    """What giving eager PyTorch the integers of another computation showed.

    Attributes:
        quantizations: How many calls quantize.
        flipped: How many integers differ where the computations before them do not.
        values: How many integers there are.
        steps: The largest difference of integers.
        from_tie: The largest distance of a flipped value from the middle of two integers, in steps.
        scales: The largest difference of chosen scales, relative to their size.
        results: What eager PyTorch computes with the given integers.
    """

    quantizations: int = 0
    flipped: int = 0
    values: int = 0
    steps: int = 0
    from_tie: float = 0.0
    scales: float = 0.0
    results: list[torch.Tensor] = field(default_factory=list)


def follow(exported: ExportedProgram, inputs: tuple[Any, ...], integers: list[torch.Tensor]) -> Ties:
    """Compute a program in eager PyTorch with given results of its quantizations, and given scales.

    Args:
        exported: The program, without probes.
        inputs: Its inputs.
        integers: The results, in the order of the calls; of calls that choose parameters scales and zero points.
    """
    follower = _Follower(exported.module(check_guards=False), integers)
    with torch.no_grad():
        results = follower.run(*inputs)
    follower.found.results = list(results) if isinstance(results, tuple | list) else [results]
    return follower.found


class _Follower(Interpreter):
    def __init__(self, module: GraphModule, integers: list[torch.Tensor]) -> None:
        super().__init__(module)
        self.found = Ties()
        self._given = iter(integers)

    def run_node(self, n: Node) -> Any:
        made = super().run_node(n)
        if chooses_zero_points(n):
            scale, zero = self._scale(made[0]), made[1]
            return (scale, self._next(n, zero, lambda given: _exact_zero_point(given, scale).reshape(zero.shape)))
        if not makes_integers(n):
            return made
        return self._next(n, made, _exact)

    def _scale(self, made: torch.Tensor) -> torch.Tensor:
        """Return the given scales instead of those that a call chooses, after a comparison."""
        given = next(self._given)
        assert made.dtype is given.dtype
        assert made.shape == given.shape
        apart = (made.double() - given.double()).abs() / made.double()
        self.found.scales = max(self.found.scales, float(apart.max()))
        return given

    def _next(self, n: Node, made: torch.Tensor, exactly: Callable[[dict[str, Any]], torch.Tensor]) -> torch.Tensor:
        """Return the given integers instead of those that a call makes, after a comparison.

        Args:
            n: The call.
            made: Its integers.
            exactly: Returns what the call rounds, from its arguments by name.
        """
        given = next(self._given)
        assert made.dtype is given.dtype
        assert made.shape == given.shape
        found, other = self.found, made != given
        found.quantizations += 1
        found.values += made.numel()
        if bool(other.any()):
            found.flipped += int(other.sum())
            apart = (made.long() - given.long()).abs()
            found.steps = max(found.steps, int(apart.max()))
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            names = [one.name for one in n.target._schema.arguments]  # type: ignore[union-attr]
            exact = exactly(dict(zip(names, args, strict=False)) | kwargs)
            middle = (made.double() + given.double()) / 2
            found.from_tie = max(found.from_tie, float((exact - middle).abs()[other].max()))
        return given


def _exact_zero_point(given: dict[str, Any], scale: torch.Tensor) -> torch.Tensor:
    """Return what choosing a zero point rounds: the integer that stands for zero, before it is one."""
    x: torch.Tensor = given["input"].double()
    if "block_size" in given:
        sizes = [
            part for size, block in zip(x.shape, given["block_size"], strict=True) for part in (size // block, block)
        ]
        least = x.reshape(sizes).amin(dim=[*range(1, 2 * x.dim(), 2)])
    else:
        least = x.amin() if scale.numel() == 1 else x.amin(dim=-1)
    low = given.get("quant_min")
    if low is None:
        low = torch.iinfo(given["target_dtype"] if "target_dtype" in given else given["dtype"]).min
    return low - least.clamp(max=0).reshape(scale.shape) / scale.double()


def _exact(given: dict[str, Any]) -> torch.Tensor:
    """Return what a quantization rounds, in steps from the integer zero."""
    x: torch.Tensor = given["input"].double()
    if "block_size" in given:
        blocks = given["block_size"]
        scale, zero = (_spread(given[one], blocks, x) for one in ("scale", "zero_point"))
        return x / scale + (0 if zero is None else zero)
    scale, zero = (given[one] if one in given else given[f"{one}s"] for one in ("scale", "zero_point"))
    if "axis" in given:
        sizes = [-1 if dim == given["axis"] else 1 for dim in range(x.dim())]
        scale, zero = scale.reshape(sizes), zero.reshape(sizes)
    return x / scale + zero


def _spread(value: torch.Tensor | None, blocks: list[int], x: torch.Tensor) -> Any:
    """Return parameters of blocks as parameters of elements."""
    if value is None:
        return None
    counts = [size // block for size, block in zip(x.shape, blocks, strict=True)]
    made = value.double().reshape(counts)
    for dim, block in enumerate(blocks):
        made = made.repeat_interleave(block, dim)
    return made
