"""How far results may go that rules with a tolerance have touched: what the tolerance can make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.fuzz import GraphFailedError, GraphResult, GraphSession
from exirkit.ir import pytree
from exirkit.patterns import Application, CompiledRule, Equivalence, tolerance

# Values are moved so many times as far as the rules may: directions are few, and another one may lead a little farther.
_REACH = 2.0
# All elements up, all down, and two ways in which signs are drawn.
_DIRECTIONS = 4


@dataclass(frozen=True)
class Leeway:
    """Values of a program that rules with a tolerance compute in another way.

    Attributes:
        program: The program before the rules.
        sites: Contracts of the rules, by the name of the node whose value they replace.
    """

    program: ExportedProgram
    sites: Mapping[str, tuple[Equivalence, ...]]

    def used(self, results: Sequence[GraphResult], runs: Sequence[Sequence[Any]]) -> list[GraphResult]:
        """Return results, each moved towards the program's own as far as the tolerances reach.

        The program runs with other values at the sites, as far from its own as the rules may go: by what results
        change then, the rules may change them. Where one of two is not finite then, any number will do.

        Args:
            results: What the program gave behind the rules, run by run.
            runs: The inputs of each run.
        """
        if not self.sites:
            return list(results)
        try:
            plain = self._results(runs, None)
            others = [self._results(runs, direction) for direction in range(_DIRECTIONS)]
        except GraphFailedError:
            # A value that is moved may be no index or size any more.
            return list(results)
        return [
            _moved(got, own, [one[index] for one in others])
            for index, (got, own) in enumerate(zip(results, plain, strict=True))
        ]

    def _results(self, runs: Sequence[Sequence[Any]], direction: int | None) -> list[GraphResult]:
        session = GraphSession(self.program, None if direction is None else self._change(direction))
        return [session.run(one) for one in runs]

    def _change(self, direction: int) -> Callable[[Node, Any], Any]:
        generator = torch.Generator().manual_seed(direction)

        def change(node: Node, value: Any) -> Any:
            contracts = self.sites.get(node.name, ())

            def shift(one: Any) -> Any:
                if not isinstance(one, torch.Tensor) or one.dtype == torch.bool or one.is_complex():
                    return one
                return _shifted(one, contracts, _signs(one.shape, direction, generator))

            return pytree.tree_map(shift, value) if contracts else value

        return change


def leeway_of(program: ExportedProgram, rules: Sequence[CompiledRule], journal: Sequence[Application]) -> Leeway:
    """Return where rules may have changed values of a program.

    Args:
        program: The program before the rules.
        rules: The rules.
        journal: What they did. One that replaced what another one had made counts where that one did.
    """
    known = {one.id: one for one in rules}
    origins: dict[str, tuple[str, ...]] = {}
    sites: dict[str, tuple[Equivalence, ...]] = {}
    for one in journal:
        rule = known.get(one.rule)
        if rule is None or one.graph:
            continue
        roots = one.before[: len(rule.pattern.roots)]
        places = tuple(dict.fromkeys(place for root in roots for place in origins.get(root, (root,))))
        origins.update(dict.fromkeys(one.after, places))
        if not _is_strict(rule.rule.equiv):
            sites.update({place: (*sites.get(place, ()), rule.rule.equiv) for place in places})
    return Leeway(program, sites)


def _is_strict(contract: Equivalence) -> bool:
    return contract.is_exact and contract.values != "normal" and contract.lhs_nan is None


def _signs(shape: torch.Size, direction: int, generator: torch.Generator) -> torch.Tensor:
    if direction < 2:
        return torch.full(shape, 1.0 - 2.0 * direction, dtype=torch.float64)
    return torch.randint(0, 2, shape, generator=generator).double() * 2 - 1


def _shifted(value: torch.Tensor, contracts: Sequence[Equivalence], signs: torch.Tensor) -> torch.Tensor:
    """Return a value as far away as contracts allow."""
    if not value.is_floating_point():
        steps = (signs * sum(one.lsb or 0 for one in contracts)).to(torch.int64)
        limits = torch.iinfo(value.dtype)
        return (value.to(torch.int64) + steps).clamp(limits.min, limits.max).to(value.dtype)
    wide = value.double()
    free = torch.zeros(value.shape, dtype=torch.bool)
    for one in contracts:
        rtol, atol = tolerance(one, value.dtype)
        wide = wide + _REACH * signs * (rtol * value.double().abs() + atol)
        # Contracts about usual values promise nothing of others, and those that give a NaN up nothing of that.
        free |= ~torch.isfinite(value) if one.values == "normal" else torch.isnan(value)
    return torch.where(free, signs, wide).to(value.dtype)


def _moved(got: GraphResult, plain: GraphResult, others: Sequence[GraphResult]) -> GraphResult:
    def towards(one: Any, own: Any, moved: Sequence[Any]) -> Any:
        tensors = [each for each in (one, own, *moved) if isinstance(each, torch.Tensor)]
        if len(tensors) < 2 + len(moved) or len({(each.dtype, each.shape) for each in tensors}) > 1:
            return one
        return _towards(one, own, moved)

    outputs = [
        towards(one, own, [each.outputs[place] for each in others])
        for place, (one, own) in enumerate(zip(got.outputs, plain.outputs, strict=False))
    ]
    return GraphResult(
        [*outputs, *got.outputs[len(outputs) :]],
        {
            key: towards(one, plain.state.get(key), [each.state.get(key) for each in others])
            for key, one in got.state.items()
        },
        {
            key: towards(one, plain.inputs.get(key), [each.inputs.get(key) for each in others])
            for key, one in got.inputs.items()
        },
    )


def _towards(got: torch.Tensor, own: torch.Tensor, moved: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a result, moved towards the program's own by at most what moving values at the sites does to that."""
    if not own.is_floating_point():
        reach = torch.stack([(one.long() - own.long()).abs() for one in moved]).amax(0)
        return torch.where((got.long() - own.long()).abs() <= reach, own, got)
    both = torch.stack([one.double() for one in moved])
    apart = (both - own.double()).abs()
    # The difference of two equal infinities is a NaN; any other NaN says nothing of the value.
    same = (both == own.double()) | (torch.isnan(both) & torch.isnan(own))
    reach = torch.where(same, 0.0, torch.nan_to_num(apart, nan=torch.inf, posinf=torch.inf)).amax(0)
    step = torch.nan_to_num(own.double() - got.double(), nan=0.0, posinf=0.0, neginf=0.0)
    nearer = got.double() + torch.maximum(torch.minimum(step, reach), -reach)
    return torch.where(torch.isinf(reach), own.double(), nearer).to(got.dtype)
