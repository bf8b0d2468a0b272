"""Signal to noise of a quantized program, call by call, module by module and line by line."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, PlainSerializer
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic, ModelError, UsageError, module_path, pytree, show_value, source_line

from .measuring import Measuring, Noise, QuantizedProgram, Recording, State, results_with, writes
from .pairing import operator_of, pair_calls
from .quantizing import Sample, leaves_of, unfit

Decibels = Annotated[float, PlainSerializer(lambda value: value if math.isfinite(value) else str(value))]
"""Ten times the logarithm of the ratio of two powers; in JSON, infinities are the strings `inf` and `-inf`."""

Grouping = Literal["call", "module", "line"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LayerNoise(_Part):
    """The noise of one call.

    Attributes:
        call: Its name in the float program; of several that became one, the first.
        value: The name of the call whose value is compared: the last of them.
        counterpart: The name of its counterpart in the quantized program.
        operator: Its operator in the float program.
        module: Path of the innermost module that it comes from; None for the model itself.
        source: Its line of the model, as `file.py:12 in forward:  code`, if it is known.
        type: Dtype and sizes of its value.
        quantized: Whether a quantization belongs to it: of a value that it gives or, if not to the call before, reads.
        isolated: Signal to noise of its value if it alone is quantized: its inputs are those of the float program.
        accumulated: Signal to noise of its value in the quantized program.
        on_results: Signal to noise of the results of the float program if it alone is quantized, of the worst of them;
            None if it was not asked for.
    """

    call: str
    value: str
    counterpart: str
    operator: str
    module: str | None
    source: str | None
    type: str
    quantized: bool
    isolated: Decibels
    accumulated: Decibels
    on_results: Decibels | None = None


class GroupNoise(_Part):
    """The noise of the quantized calls of a module or a line.

    Attributes:
        name: The module or line; None for the model itself or an unknown line.
        calls: Their names in the float program.
        isolated: The least of them.
        accumulated: That of the last of them.
        on_results: The least of them.
    """

    name: str | None
    calls: tuple[str, ...]
    isolated: Decibels
    accumulated: Decibels
    on_results: Decibels | None = None


class ResultNoise(_Part):
    """The noise of one result of the quantized program.

    Attributes:
        result: Its place among the results.
        accumulated: Signal to noise.
    """

    result: int
    accumulated: Decibels


class QuantizationReport(_Part):
    """What quantization does to the values of a program.

    Attributes:
        samples: How many samples were run.
        results: The noise of each float result.
        layers: The noise of each call that has a counterpart, in the order of the float program.
        missing: Names of calls of the float program that give floats and have no counterpart.
    """

    samples: int
    results: tuple[ResultNoise, ...]
    layers: tuple[LayerNoise, ...]
    missing: tuple[str, ...] = ()

    @property
    def decibels(self) -> float:
        """Signal to noise of the worst result."""
        return min((one.accumulated for one in self.results), default=math.inf)

    def ranked(self) -> list[LayerNoise]:
        """Return the quantized calls, the noisiest by itself first."""
        return sorted((one for one in self.layers if one.quantized), key=lambda one: one.isolated)

    def by_module(self) -> list[GroupNoise]:
        """Return the noise of modules, the noisiest first."""
        return self._grouped(lambda one: one.module)

    def grouped(self, grouping: Grouping) -> list[GroupNoise]:
        """Return the noise of quantized calls, modules or lines, the noisiest first."""
        if grouping == "call":
            return self._grouped(lambda one: one.call)
        return self.by_module() if grouping == "module" else self.by_line()

    def by_line(self) -> list[GroupNoise]:
        """Return the noise of source lines, the noisiest first."""
        return self._grouped(lambda one: one.source)

    def _grouped(self, key: Callable[[LayerNoise], str | None]) -> list[GroupNoise]:
        groups: dict[str | None, list[LayerNoise]] = {}
        for one in self.layers:
            if one.quantized:
                groups.setdefault(key(one), []).append(one)
        made = [
            GroupNoise(
                name=name,
                calls=tuple(one.call for one in group),
                isolated=min(one.isolated for one in group),
                accumulated=group[-1].accumulated,
                on_results=min((one.on_results for one in group if one.on_results is not None), default=None),
            )
            for name, group in groups.items()
        ]
        return sorted(made, key=lambda one: one.isolated)


def quantization_report(
    float_program: ExportedProgram,
    quantized_program: ExportedProgram,
    samples: Iterable[Sample],
    *,
    on_results: bool = True,
) -> QuantizationReport:
    """Run a float program and its quantized form in eager PyTorch, and measure the noise of each call.

    Programs with state begin with each sample as they were exported.

    Args:
        float_program: The program before it was quantized.
        quantized_program: What was exported after `convert_pt2e` or `quantize_` of torchao.
        samples: Inputs, a tuple for each run.
        on_results: Whether to also quantize each call alone and measure the results of the program, which runs the part
            of the float program behind it once more.

    Raises:
        UsageError: EK418, there is no sample, or one does not fit the programs.
        ModelError: EK417, no call of one program has a counterpart in the other.
    """
    runs = _Runs(float_program, quantized_program, on_results=on_results)
    count = 0
    try:
        with torch.no_grad():
            for count, sample in enumerate(samples, 1):
                runs.add(sample, count)
    finally:
        runs.restore()
    if not count:
        raise UsageError(Diagnostic.of("EK418", "no sample was given to measure with"))
    return runs.report(count)


class _Runs:
    """Noise of all samples so far."""

    def __init__(self, plain: ExportedProgram, quantized: ExportedProgram, *, on_results: bool) -> None:
        self.program = plain
        self.plain, theirs = _module(plain), _module(quantized)
        self.pairing = pair_calls(self.plain, theirs)
        if not self.pairing.quantized:
            message = "no call of the quantized program computes what a call of the float program computes"
            raise ModelError(Diagnostic.of("EK417", message))
        self.quantized = QuantizedProgram(theirs, self.pairing)
        self.states = [State(one) for one in (self.plain, theirs)]
        self.on_results = on_results
        self.isolated: dict[Node, Noise] = {node: Noise() for node in self.pairing.quantized}
        self.accumulated: dict[Node, Noise] = {node: Noise() for node in self.pairing.quantized}
        self.alone: dict[Node, dict[int, Noise]] = {
            ours: {} for ours, node in self.pairing.quantized.items() if on_results and node in self.quantized.quantized
        }
        self.results: dict[int, Noise] = {}

    def add(self, sample: Sample, place: int) -> None:
        """Run one sample.

        Raises:
            UsageError: EK418, it does not fit the programs.
        """
        flat = leaves_of(self.program, sample, place)
        plain, whole = Recording(self.plain), Measuring(self.quantized)
        expected = self._run(plain, flat, place)
        _add_results(self.results, expected, self._run(whole, flat, place))
        alone = Measuring(self.quantized, plain.found)
        self._run(alone, flat, place)
        for node, value in alone.found.items():
            self.isolated[node].add(plain.found[node], value)
            self.accumulated[node].add(plain.found[node], whole.found[node])
        for node, noise in self.alone.items():
            self.restore()
            made = results_with(self.plain, plain.found, node, alone.found[node], flat)
            _add_results(noise, expected, made)

    def _run(self, interpreter: torch.fx.Interpreter, flat: Sequence[Any], place: int) -> Any:
        self.restore()
        try:
            return interpreter.run(*flat, enable_io_processing=False)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise unfit(place, "float" if interpreter.module is self.plain else "quantized", error) from error

    def restore(self) -> None:
        """Bring both programs back into the state that they were exported in."""
        for state in self.states:
            state.restore()

    def report(self, samples: int) -> QuantizationReport:
        """Return what was measured."""
        layers = [self._layer(node, theirs, self.alone.get(node)) for node, theirs in self.pairing.quantized.items()]
        return QuantizationReport(
            samples=samples,
            results=tuple(
                ResultNoise(result=place, accumulated=noise.decibels) for place, noise in sorted(self.results.items())
            ),
            layers=tuple(layers),
            missing=tuple(node.name for node in self.pairing.missing),
        )

    def _layer(self, node: Node, theirs: Node, alone: dict[int, Noise] | None) -> LayerNoise:
        first = self.pairing.merged.get(node, node)
        return LayerNoise(
            call=first.name,
            value=node.name,
            counterpart=theirs.name,
            operator=operator_of(first),
            module=module_path(first),
            source=source_line(first),
            type=show_value(node.meta.get("val")),
            quantized=theirs in self.quantized.quantized,
            isolated=self.isolated[node].decibels,
            accumulated=self.accumulated[node].decibels,
            on_results=None if alone is None else min((one.decibels for one in alone.values()), default=math.inf),
        )


def _module(program: ExportedProgram) -> GraphModule:
    """Return a program as a module without calls that write into their arguments, except into state at the end."""
    module = program.module(check_guards=False)
    if any(writes(node) for node in module.graph.nodes):
        with warnings.catch_warnings():
            # Of torch, about its own use of torch.
            warnings.simplefilter("ignore")
            module = program.run_decompositions({}).module(check_guards=False)
    return module


def _add_results(noises: dict[int, Noise], expected: Any, given: Any) -> None:
    for place, (one, other) in enumerate(zip(pytree.tree_leaves(expected), pytree.tree_leaves(given), strict=True)):
        if _is_float(one) and _is_float(other):
            noises.setdefault(place, Noise()).add(one, other)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point
