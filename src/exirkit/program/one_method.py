"""From Edge to ExecuTorch for one method: as fast as its memory allows.

A program is optimized, lowered and planned; where the plan is too large, again with less memory for fast kernels, or
with parts of it computed in bands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import Diagnostic, Location, ModelError, UsageError, widens
from exirkit.passes import (
    ExecutorchBackendConfig,
    LiveBytes,
    MemoryPlanningPass,
    Pipeline,
    needs_legalizing,
    peak_nbytes,
    planned_nbytes,
)
from exirkit.patterns import Target, read_target
from exirkit.verifiers import KernelTable

Progress = Callable[[str], None]


def say(progress: Progress | None, line: str) -> None:
    """Tell the caller what comes next, if it wants to know."""
    if progress is not None:
        progress(line)


_ATTEMPTS = 5
"""How often an optimization is repeated with less memory. Each time the excess is taken off, so few are needed."""
_USUAL_GROWTH = 2
"""How many times as large as at `-O1` an arena at `-O2` may be if nothing else is asked for."""
_KERNELS = "choose-kernels"
"""The stage of optimization in which memory is traded for time."""
_SHARES_FOR_VALUES = (1.0, 0.5, 0.25)
"""Shares of a memory limit that values may take before kernels are chosen; these use the rest for gathering windows."""
_SPLITTING = ("aten::split_copy.Tensor_out", "aten::unbind_copy.int_out")


def check_optimization(config: ExecutorchBackendConfig) -> None:
    """Reject choices that contradict each other.

    Raises:
        UsageError: EK706, a level, aim or limit that is none.
    """
    problems = (
        (config.optimization_level not in (0, 1, 2), "optimization_level", "0, 1 or 2"),
        (config.optimize_for not in ("speed", "size"), "optimize_for", "'speed' or 'size'"),
        (config.arena_limit is not None and config.arena_limit < 0, "arena_limit", "a number of bytes"),
        (config.search < 0, "search", "a number of rewrites"),
    )
    for is_wrong, name, expected in problems:
        if is_wrong:
            message = f"ExecutorchBackendConfig.{name} is {getattr(config, name)!r}"
            raise UsageError(Diagnostic.of("EK706", message, expected=expected))


def target_of(config: ExecutorchBackendConfig) -> Target:
    """Return the description of the target that is lowered for.

    Raises:
        UsageError: EK209, it is not a description.
        OSError: It cannot be read.
    """
    if isinstance(config.target, Target):
        return config.target
    return read_target("any" if config.target is None else config.target)


def kernels_of(target: Target) -> KernelTable | None:
    """Return the kernels of a target, or None where nothing is known of them."""
    if target.registry is None:
        return None
    # Targets are values; making a table takes longer than checking a small program.
    key = (target.name, target.registry.model_dump_json())
    if key not in _TABLES:
        _TABLES[key] = KernelTable(target.name, target.registry.conditions())
    return _TABLES[key]


_TABLES: dict[tuple[str, str], KernelTable] = {}


@dataclass(frozen=True)
class MethodLowering:
    """Lowers programs of one method from Edge to ExecuTorch.

    Attributes:
        method: Its name.
        pipeline: Lowers.
        planner: Plans memory.
        settings: For the pipeline.
        progress: Called with a line of text before each long step.
    """

    method: str
    pipeline: Pipeline
    planner: MemoryPlanningPass
    settings: Mapping[str, Any]
    progress: Progress | None

    def optimized(self, program: ExportedProgram, config: ExecutorchBackendConfig) -> ExportedProgram:
        """Return the program optimized, lowered and planned.

        Raises:
            ModelError: EK707, memory does not suffice; or what lowering raises.
        """
        level = config.optimization_level
        program = self._legalized(program, target_of(config))
        limit = math.inf if config.arena_limit is None else float(config.arena_limit)
        if level == 2:
            found = self._for_target(program, config, limit)
            if found is not None:
                return found
        sizes = []
        for lower_level in range(min(level, 1), -1, -1):
            whole = self._exactly(program) if lower_level else program
            lowered = self._lowered(whole)
            sizes.append(planned_nbytes(lowered))
            if sizes[-1] <= limit:
                return lowered
            if lower_level:
                in_bands = self._in_bands(whole, config, limit)
                if in_bands is not None:
                    return self._lowered(in_bands)
        raise ModelError(
            Diagnostic.of(
                "EK707",
                f"planned memory of {min(sizes):,} bytes is more than arena_limit allows",
                location=Location(method=self.method),
                expected=f"at most {config.arena_limit:,} bytes",
            )
        )

    def _in_bands(
        self, whole: ExportedProgram, config: ExecutorchBackendConfig, limit: float, *, exact: bool = True
    ) -> ExportedProgram | None:
        """Return a program with parts of it computed band by band, whose plan fits; None if that does not do.

        Args:
            whole: The program.
            config: Says for which target.
            limit: Bytes that its planned memory may take.
            exact: Change no result.
        """
        allowed = limit
        for _ in range(_ATTEMPTS):
            settings = {**self.settings, "target": target_of(config), "exact": exact, "tile-limit": int(allowed)}
            made = Pipeline.shipped("tile").run(whole, settings=settings, progress=self._say)
            if not any(one.modified for one in made.reports):
                return None
            # What is alive at once is only a lower bound of what a plan takes.
            excess = planned_nbytes(self._lowered(made.program)) - limit
            if excess <= 0:
                return made.program
            allowed -= excess
            if allowed <= 0:
                return None
        return None

    def _legalized(self, program: ExportedProgram, target: Target) -> ExportedProgram:
        """Return the program without operators for which the target has no kernel, where others can do their work."""
        kernels = kernels_of(target)
        if kernels is None or not needs_legalizing(program):
            return program
        features = {name: target.has(name) for name in ("volumes", "integers")}
        splits = all(kernels.resizes(name) for name in _SPLITTING)
        settings = {**self.settings, **features, "sorts": kernels.has("aten::sort.values"), "splits": splits}
        return Pipeline.shipped("legalize").run(program, settings=settings, progress=self._say).program

    def _exactly(self, program: ExportedProgram) -> ExportedProgram:
        """Return the program optimized without any change of results, and without need of more memory."""
        most = peak_nbytes(program)
        for share_results in (True, False):
            settings = {"share-results": share_results}
            made = Pipeline.shipped("optimize_1").run(program, settings=settings, progress=self._say).program
            # A result that is kept for a second user is alive for longer.
            if peak_nbytes(made) <= most:
                return made
        return program

    def _for_target(
        self, program: ExportedProgram, config: ExecutorchBackendConfig, limit: float
    ) -> ExportedProgram | None:
        """Return the program optimized for a target with at most so much memory, or None if that does not do."""
        for_speed = config.optimize_for == "speed"
        is_usual = for_speed and config.arena_limit is None
        if is_usual:
            limit = _USUAL_GROWTH * peak_nbytes(program)
        elif not for_speed:
            limit = min(limit, planned_nbytes(self._lowered(program)))
        settings = self._optimization_for_target(program, config)
        # What stands before does not depend on the memory that there is.
        simple = self._simplified(program, settings)
        if is_usual:
            # What is live at once is only a lower bound of what a plan takes.
            usual = self._with_kernels(
                simple, settings, limit, lambda: _USUAL_GROWTH * planned_nbytes(self._lowered(self._exactly(program)))
            )
            return None if usual is None else usual.lowered
        found = self._with_kernels(simple, settings, limit)
        if config.arena_limit is not None and (found is None or found.is_restricted):
            found = self._best_in_bands(simple, config, settings, limit, found)
        return None if found is None else found.lowered

    def _best_in_bands(
        self,
        simple: ExportedProgram,
        config: ExecutorchBackendConfig,
        settings: Mapping[str, Any],
        limit: float,
        best: _WithKernels | None,
    ) -> _WithKernels | None:
        """Return the program in bands that is fastest with the kernels for which they make room, or one that is faster.

        Args:
            simple: The program as it is before kernels are chosen.
            config: Says for which target.
            settings: Of the pipeline.
            limit: Bytes that planned memory may take.
            best: The fastest program without bands.
        """
        for share in _SHARES_FOR_VALUES:
            in_bands = self._in_bands(simple, config, share * limit, exact=False)
            other = None if in_bands is None else self._with_kernels(in_bands, settings, limit)
            if other is not None and (best is None or other.estimated_ns < best.estimated_ns):
                best = other
        return best

    def _optimization_for_target(self, program: ExportedProgram, config: ExecutorchBackendConfig) -> dict[str, Any]:
        """Return the settings of the pipeline `optimize-2` for a program."""
        for_speed = config.optimize_for == "speed"
        return {
            "target": target_of(config),
            "widen-weights": for_speed and any(map(widens, program.graph.nodes)),
            "known-estimates": {},
            "adds-calls": for_speed,
            "search": config.search,
            "searches": config.search > 0,
        }

    def _simplified(self, program: ExportedProgram, settings: Mapping[str, Any]) -> ExportedProgram:
        pipeline = Pipeline.shipped("optimize_2")
        return pipeline.run(program, settings=settings, stop_before=_KERNELS, progress=self._say).program

    def _with_kernels(
        self,
        simple: ExportedProgram,
        settings: Mapping[str, Any],
        limit: float,
        more: Callable[[], float] | None = None,
    ) -> _WithKernels | None:
        """Return a program lowered with kernels for the target that need at most so much memory, or None.

        Args:
            simple: The program as it is before kernels are chosen.
            settings: Of the pipeline.
            limit: Bytes that its planned memory may take.
            more: Returns a limit that counts instead if the first attempt fails and it is larger.
        """
        # A limit that is given may suffice for all that is fastest; the usual one is found out step by step.
        allowed = math.inf if more is None else limit
        for attempt in range(_ATTEMPTS):
            room = {"scratch-room": _room(allowed, simple.graph_signature.user_inputs)} if allowed < math.inf else {}
            pipeline = Pipeline.shipped("optimize_2")
            made = pipeline.run(simple, settings={**settings, **room}, start_at=_KERNELS, progress=self._say).program
            lowered = self._lowered(made)
            if planned_nbytes(lowered) > limit and more is not None and attempt == 0:
                limit = max(limit, more())
            excess = planned_nbytes(lowered) - limit
            if excess <= 0:
                return _WithKernels(lowered, made, settings["target"], allowed < math.inf)
            if allowed <= 0:
                break
            allowed = max(0.0, allowed - excess) if allowed < math.inf else limit
        return None

    def _lowered(self, program: ExportedProgram) -> ExportedProgram:
        made = self.pipeline.run(program, settings=self.settings, progress=self._say).program
        self._say("planning memory")
        self.planner.run(made.graph_module, made.graph_signature)
        return made

    def _say(self, title: str) -> None:
        say(self.progress, f"{self.method}: {title}")


@dataclass(frozen=True)
class _WithKernels:
    """A program for which kernels of the target were chosen.

    Attributes:
        lowered: It, lowered and planned.
        program: It, before that.
        target: The target.
        is_restricted: Whether what kernels could use of memory was limited.
    """

    lowered: ExportedProgram
    program: ExportedProgram
    target: Target
    is_restricted: bool

    @cached_property
    def estimated_ns(self) -> float:
        """What all calls take by the target description, in nanoseconds."""
        return sum(map(self.target.estimate_of, self.program.graph.nodes))


def _room(allowed: float, inputs: Iterable[Any]) -> Callable[[Node], float]:
    """Return what says how many bytes a rewrite may use at a node, beside what is alive there anyway."""
    alive = LiveBytes(frozenset(inputs))
    return lambda node: allowed - alive(node)
