"""The smallest arena, found and proved by OR-tools' CP-SAT, or the gap that is left when its budget is spent."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any

from exirkit.ir import Diagnostic, UsageError

from .packers import Demand, Placement, lower_bound, neighbours
from .search import smallest_placement

# Work of the solver, in its own deterministic unit: about seconds on a fast machine, the same on every machine.
DEFAULT_WORK = 10.0
# Up to so many pairs in each other's way, an order of each pair is decided; more are left to the packing constraint.
_MAX_PAIRS = 4000


@dataclass(slots=True)
class ProvedPlacement:
    """A placement, and what no other one can beat.

    Attributes:
        placement: The best placement found.
        bound: Bytes that every placement needs; the placement is a smallest one if it needs no more.
    """

    placement: Placement
    bound: int


def exact_placement(demand: Demand, start: Placement | None = None, work: float = DEFAULT_WORK) -> ProvedPlacement:
    """Return a smallest placement, or the best found within the budget and a proven bound.

    The solver is not asked where the start, by default what the heuristics find, meets the lower bound. One worker, a
    fixed seed and a budget that is not a clock: the same demand gives the same placement.

    Args:
        demand: What to place.
        start: A placement to improve on.
        work: How much work the solver may do, in its deterministic unit of about a second.

    Raises:
        UsageError: EK465, if OR-tools is needed and not installed.
    """
    placement = smallest_placement(demand) if start is None else start
    bound = lower_bound(demand)
    if placement.height <= bound:
        return ProvedPlacement(placement, bound)
    return _solve(solver_library(), demand, placement, bound, work)


def solver_library() -> Any:
    """Return the module of CP-SAT.

    Raises:
        UsageError: EK465, if OR-tools is not installed.
    """
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        raise UsageError(
            Diagnostic(
                code="EK465",
                message="the exact planner needs OR-tools, which cannot be imported",
                notes=(str(error),),
                hint="install it with `pip install 'exirkit[planning]'`, or plan with `portfolio`",
            )
        ) from error


def _solve(library: Any, demand: Demand, start: Placement, bound: int, work: float) -> ProvedPlacement:
    unit = math.gcd(*demand.size, *demand.pinned.values(), *demand.alignment)
    model = library.CpModel()
    top = start.height // unit
    height = model.new_int_var(-(-bound // unit), top, "height")
    offsets = []
    for index, size in enumerate(demand.size):
        offset = _offset(model, demand, index, unit, top)
        offsets.append(offset)
        model.add(offset + size // unit <= height)
    _keep_apart(model, demand, offsets, unit)
    model.minimize(height)
    solver = library.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = work
    for index, offset in enumerate(offsets):
        if not demand.alignment and index not in demand.pinned:
            model.add_hint(offset, start.offsets[index] // unit)
    status = solver.solve(model)
    proved = max(bound, math.ceil(solver.best_objective_bound - 1e-6) * unit)
    if status not in (library.OPTIMAL, library.FEASIBLE):
        return ProvedPlacement(start, min(proved, start.height))
    found = [int(solver.value(offset)) * unit for offset in offsets]
    end = max(offset + size for offset, size in zip(found, demand.size, strict=True))
    best = Placement(found, end) if end < start.height else start
    return ProvedPlacement(best, min(proved, best.height))


def _offset(model: Any, demand: Demand, index: int, unit: int, top: int) -> Any:
    """Return the offset of a range in units: a variable, a multiple of one, or a number."""
    pinned = demand.pinned.get(index)
    if pinned is not None:
        return model.new_constant(pinned // unit)
    room = top - demand.size[index] // unit
    step = demand.alignment[index] // unit if demand.alignment else 1
    if step == 1:
        return model.new_int_var(0, room, f"offset{index}")
    return step * model.new_int_var(0, room // step, f"offset{index}")


def _keep_apart(model: Any, demand: Demand, offsets: list[Any], unit: int) -> None:
    pairs = [(index, other) for index, others in enumerate(neighbours(demand)) for other in others if index < other]
    if demand.alternatives is None and len(pairs) > _MAX_PAIRS:
        times, places = [], []
        for index, (first, last) in enumerate(zip(demand.first, demand.last, strict=True)):
            times.append(model.new_fixed_size_interval_var(first, last + 1 - first, f"time{index}"))
            size = demand.size[index] // unit
            places.append(model.new_fixed_size_interval_var(offsets[index], size, f"place{index}"))
        model.add_no_overlap_2d(times, places)
        return
    for index, other in pairs:
        below = model.new_bool_var(f"below{index},{other}")
        model.add(offsets[index] + demand.size[index] // unit <= offsets[other]).only_enforce_if(below)
        model.add(offsets[other] + demand.size[other] // unit <= offsets[index]).only_enforce_if(~below)
