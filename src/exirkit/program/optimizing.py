"""Lowering one method as fast as its memory allows: optimize, lower, plan, and measure what that takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import Diagnostic, Location, ModelError, UsageError
from exirkit.passes import (
    ExecutorchBackendConfig,
    MemoryPlanningPass,
    Pipeline,
    live_nbytes,
    needs_legalizing,
    peak_nbytes,
    planned_nbytes,
)
from exirkit.patterns import Target, read_target
from exirkit.verifiers import KernelTable

from .arguments import Progress, say

_ATTEMPTS = 5
"""How often an optimization is repeated with less memory. Each time the excess is taken off, so few are needed."""


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
    )
    for is_wrong, name, expected in problems:
        if is_wrong:
            message = f"ExecutorchBackendConfig.{name} is {getattr(config, name)!r}"
            raise UsageError(Diagnostic(code="EK706", message=message, expected=expected))


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


class MethodLowering:
    """Lowers programs of one method from Edge to ExecuTorch.

    Args:
        method: Its name.
        pipeline: Lowers.
        planner: Plans memory.
        settings: For the pipeline.
        progress: Called with a line of text before each long step.
    """

    def __init__(
        self,
        method: str,
        pipeline: Pipeline,
        planner: MemoryPlanningPass,
        settings: Mapping[str, Any],
        progress: Progress | None,
    ) -> None:
        self.method = method
        self.pipeline = pipeline
        self.planner = planner
        self.settings = settings
        self.progress = progress

    def optimized(self, program: ExportedProgram, config: ExecutorchBackendConfig) -> ExportedProgram:
        """Return the program optimized, lowered and planned.

        Raises:
            ModelError: EK707, memory does not suffice; or what lowering raises.
        """
        level = config.optimization_level
        program = self._legalized(program, target_of(config))
        limit = math.inf if config.arena_limit is None else float(config.arena_limit)
        if level == 2 and config.optimize_for == "size":
            limit = min(limit, planned_nbytes(self._lowered(program)))
        if level == 2:
            target = target_of(config)
            found = self._within(program, target, limit)
            if found is not None:
                return found
        sizes = []
        for lower_level in range(min(level, 1), -1, -1):
            lowered = self._lowered(self._exactly(program) if lower_level else program)
            sizes.append(planned_nbytes(lowered))
            if sizes[-1] <= limit:
                return lowered
        raise ModelError(
            Diagnostic(
                code="EK707",
                message=f"planned memory of {min(sizes):,} bytes is more than arena_limit allows",
                location=Location(method=self.method),
                expected=f"at most {config.arena_limit:,} bytes",
                hint="raise the limit, or make the largest values smaller; `exirkit inspect --values` lists them",
            )
        )

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
            made = self._at_level(program, 1, share_results=share_results)
            # A result that is kept for a second user is alive for longer.
            if peak_nbytes(made) <= most:
                return made
        return program

    def _within(self, program: ExportedProgram, target: Target, limit: float) -> ExportedProgram | None:
        """Return the program optimized for a target with at most so much memory, or None if that does not do."""
        allowed = limit
        for _ in range(_ATTEMPTS):
            made = self._at_level(program, 2, target=target, allowed=allowed)
            lowered = self._lowered(made)
            excess = planned_nbytes(lowered) - limit
            if excess <= 0:
                return lowered
            # What is live at once is only a lower bound of what a plan takes.
            allowed -= excess
            if allowed <= 0:
                break
        return None

    def _at_level(
        self,
        program: ExportedProgram,
        level: int,
        *,
        target: Target | None = None,
        allowed: float = math.inf,
        share_results: bool = True,
    ) -> ExportedProgram:
        settings: dict[str, Any] = {"target": target, "share-results": share_results}
        if allowed < math.inf:
            settings["scratch-room"] = _room(allowed, frozenset(program.graph_signature.user_inputs))
        return Pipeline.shipped(f"optimize_{level}").run(program, settings=settings, progress=self._say).program

    def _lowered(self, program: ExportedProgram) -> ExportedProgram:
        made = self.pipeline.run(program, settings=self.settings, progress=self._say).program
        self._say("planning memory")
        self.planner.run(made.graph_module, made.graph_signature)
        return made

    def _say(self, title: str) -> None:
        say(self.progress, f"{self.method}: {title}")


def _room(allowed: float, inputs: Container[Any]) -> Callable[[Node], float]:
    """Return what says how many bytes a rewrite may use at a node, beside what is alive there anyway."""
    return lambda node: allowed - live_nbytes(node, inputs)
