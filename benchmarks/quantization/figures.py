"""What is measured of one model in one flow."""

from __future__ import annotations

import importlib
import math
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch.export import ExportedProgram

from benchmarks.models import Benchmark, build
from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.runtime_ref import Runtime

from .flows import FLOWS, UnsuitedModelError
from .ties import Ties, follow, probed

LEVELS = {"-O1": (1, "speed"), "-O2": (2, "speed"), "-O2 size": (2, "size")}
ENOUGH_DECIBELS = 100.0
# A distance from the middle of two integers that sums of floats in another order explain: of 1000 products of
# integers up to 128 in steps of one, 1e-7 of the largest partial sum.
AT_A_TIE = 0.01
# A relative difference of chosen scales that such sums explain: of the range of values, so of 256 steps.
ALIKE = AT_A_TIE / 256
_TIMEOUT_S = 600.0


@dataclass
class Level:
    """What one file of ours gave.

    Attributes:
        nbytes: Its size.
        difference: The largest difference of the two runtimes over the largest value; 0 if they agree in all bits.
        decibels: Signal over noise of the official runtime against eager PyTorch.
        followed: The lesser signal over noise of the two runtimes against eager PyTorch with the integers that they
            found; absent where nothing has to be explained.
        flipped: How many integers of how many were others.
        values: See there.
        steps: By how much, at most.
        from_tie: How far from the middle of two integers, at most, in steps.
        scales: How far apart chosen scales were, at most, relative to their size.
    """

    nbytes: int
    difference: float
    decibels: float
    followed: float | None = None
    flipped: int = 0
    values: int = 0
    steps: int = 0
    from_tie: float = 0.0
    scales: float = 0.0

    @property
    def explained(self) -> bool:
        """Whether the results are those of eager PyTorch, or differ because of ties alone."""
        if self.followed is None:
            return self.decibels >= ENOUGH_DECIBELS
        alike = self.steps <= 1 and self.from_tie <= AT_A_TIE and self.scales <= ALIKE
        return self.followed >= ENOUGH_DECIBELS and alike


@dataclass
class Figures:
    """What one model in one flow gave.

    Attributes:
        failure: Why there are no figures.
        unsuited: The model has no layer that the flow quantizes.
        stores_integers: Whether weights are stored as integers, not only activations quantized.
        official_nbytes: Size of the file of the official exporter; None if it rejects the program.
        float_nbytes: Size of the float program at -O2.
        levels: By level.
        slowdown: Latency at -O2 over that of the float program at -O2; None if it was not measured.
    """

    failure: str = ""
    unsuited: bool = False
    stores_integers: bool = True
    official_nbytes: int | None = None
    float_nbytes: int = 0
    levels: dict[str, Level] = field(default_factory=dict)
    slowdown: float | None = None

    @classmethod
    def parse(cls, stored: dict[str, Any]) -> Figures:
        """Return what `asdict` stored."""
        levels = {name: Level(**one) for name, one in stored["levels"].items()}
        return cls(**{**stored, "levels": levels})

    def stored(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)


@cache
def _float_file(name: str) -> bytes:
    return lowered(build(name).export(), 2, "speed")


def measure(name: str, flow: str, official: OfficialRuntime, rounds: int, *, exports: bool = True) -> Figures:
    """Return the figures of one model; what fails is said in them.

    Args:
        name: Of the model.
        flow: One of `FLOWS`.
        official: The official runtime.
        rounds: How many timed calls; 0 for none.
        exports: Whether to ask the official exporter for its file.
    """
    found = Figures()
    try:
        benchmark = build(name)
        exported = FLOWS[flow](benchmark)
        files = {level: lowered(exported, *options) for level, options in LEVELS.items()}
        found.stores_integers = stores_integers(exported)
        plain = _float_file(name)
        found.float_nbytes = len(plain)
        found.official_nbytes = official_nbytes(exported) if exports else None
        comparison = _Comparison(benchmark, exported, official)
        for level, file in files.items():
            found.levels[level] = comparison.of(level, file)
    except UnsuitedModelError:
        found.unsuited = True
    except Exception as error:  # it is a row of the table
        found.failure = f"{type(error).__name__}: {error}".splitlines()[0]
    if found.levels and rounds and not found.failure:
        inputs = list(benchmark.inputs)
        times = [official.measure_latency_ns(one, inputs, repeats=rounds) for one in (files["-O2"], plain)]
        found.slowdown = min(times[0]) / min(times[1])
    return found


def lowered(exported: ExportedProgram, level: int, optimize_for: Any) -> bytes:
    """Return our file."""
    config = ExecutorchBackendConfig(optimization_level=level, optimize_for=optimize_for)
    return to_edge(exported).to_executorch(config).buffer


def stores_integers(exported: ExportedProgram) -> bool:
    """Return whether a program stores weights as integers, or as objects of torchao that consist of them."""
    tensors = [one for one in exported.state_dict.values() if one.dim() > 1]
    kinds = (torch.Tensor, torch.nn.Parameter)
    return any(type(one) not in kinds or one.dtype in (torch.int8, torch.uint8) for one in tensors)


def official_nbytes(exported: ExportedProgram) -> int | None:
    """Return the size of the official exporter's file, or None if it rejects the program."""
    importlib.import_module("executorch.kernels.quantized")
    exir = importlib.import_module("executorch.exir")
    try:
        return len(exir.to_edge(exported).to_executorch().buffer)
    except Exception:  # whatever it raises
        return None


class _Comparison:
    """Compares files of one program with eager PyTorch.

    Args:
        benchmark: The model.
        exported: Its quantized program.
        official: The official runtime.
    """

    def __init__(self, benchmark: Benchmark, exported: ExportedProgram, official: OfficialRuntime) -> None:
        self._benchmark, self._exported, self._official = benchmark, exported, official
        with torch.no_grad():
            expected = exported.module(check_guards=False)(*benchmark.inputs)
        self._eager = expected if isinstance(expected, torch.Tensor) else expected[0]
        self._explained: list[tuple[torch.Tensor, torch.Tensor, Level]] = []

    def of(self, level: str, file: bytes) -> Level:
        """Return what a file gives.

        Raises:
            RuntimeError: A runtime fails, or the program computes something else with probes.
        """
        inputs = self._benchmark.inputs
        ours, theirs = (one[0] for one in run(file, inputs, self._official))
        largest = theirs.abs().max().item() or 1.0
        found = Level(len(file), (ours - theirs).abs().max().item() / largest, decibels(theirs, self._eager))
        if found.difference == 0 and found.decibels >= ENOUGH_DECIBELS:
            return found
        for mine, other, known in self._explained:
            # The same results have the same explanation.
            if torch.equal(mine, ours) and torch.equal(other, theirs):
                return replace(known, nbytes=len(file))
        program, results = probed(self._exported, inputs, self._benchmark.dynamic_shapes)
        outputs = run(lowered(program, *LEVELS[level]), inputs, self._official)
        for unprobed, given in zip((ours, theirs), outputs, strict=True):
            if not torch.equal(unprobed, given[0]):
                raise RuntimeError(f"{level}: probes change the results")
        found.followed = math.inf
        for given in outputs:
            ties = follow(self._exported, inputs, given[results:])
            found.followed = min(found.followed, decibels(given[0], ties.results[0]))
            _note(found, ties)
        self._explained.append((ours, theirs, found))
        return found


def _note(found: Level, ties: Ties) -> None:
    found.flipped = max(found.flipped, ties.flipped)
    found.values = ties.values
    found.steps = max(found.steps, ties.steps)
    found.from_tie = max(found.from_tie, ties.from_tie)
    found.scales = max(found.scales, ties.scales)


def run(
    file: bytes, inputs: tuple[torch.Tensor, ...], official: OfficialRuntime
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the results on the reference runtime and on the official one."""
    ours = Runtime.get().load_program(file).load_method("forward").execute(list(inputs))
    result = official.run(file, [list(inputs)], timeout_s=_TIMEOUT_S)
    if result.failure is not None:
        raise RuntimeError(f"{result.failure.kind}: {result.failure.text}".splitlines()[0])
    return ours, [one for one in result.outputs[0] if isinstance(one, torch.Tensor)]


def decibels(given: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return signal over noise; infinite if the tensors are equal."""
    noise = (given.double() - wanted.double()).pow(2).sum().item()
    signal = wanted.double().pow(2).sum().item()
    return 10 * math.log10(signal / noise) if noise and signal else math.inf
