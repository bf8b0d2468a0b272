"""Near misses of chains: one link is a call of an operator that the chain does not have."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from exirkit.ir import Diagnostic
from exirkit.patterns.checking.pattern_execution import CannotRunError, PatternRun
from exirkit.patterns.checking.trials.rule_trials import RAISED, RuleTrials, Trial
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.operators.links import Link, drawn_link
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.chains import chains_of, key_of
from exirkit.patterns.syntax.terms import Chain

# What people put between other calls: functions of single values, moves, and what neither is.
_OTHERS = (
    torch.ops.aten.neg.default,
    torch.ops.aten.exp.default,
    torch.ops.aten.logical_not.default,
    torch.ops.aten.flip.default,
    torch.ops.aten.permute_copy.default,
    torch.ops.aten.view_copy.default,
    torch.ops.aten.tril.default,
    torch.ops.aten.argsort.default,
)


def links_of(rule: CompiledRule) -> list[tuple[str, Chain]]:
    """Return the chains of a pattern, each with the text of the part of it that says which operators its links have."""
    return [(f"{one.name}: operators of the links", one) for one in chains_of(rule.pattern.terms) if one.name]


def broken_chains(trials: RuleTrials, trial: Trial, chain: Chain) -> Iterator[tuple[str, Trial]]:
    """Yield trials in which one link of a chain is a call of another operator, and what that is called.

    Only those are yielded for which the conditions of the rule hold, and nothing where the chain has no link.

    Args:
        trials: Of the rule.
        trial: With links.
        chain: Of the pattern.
    """
    key = key_of(chain.name or "")
    links: tuple[Link, ...] = trial.names.get(key, ())
    rng = random.Random(f"{trial.seed}:{key}")
    for op in _OTHERS if links else ():
        if op in chain.ops:
            continue
        place = rng.randrange(len(links))
        try:
            other = _link(trials, trial, chain, links[:place], op, rng)
            after = links[place + 1 :]
            changed = None if other is None else _with_links(trials, trial, key, (*links[:place], other, *after))
        except (CannotRunError, *RAISED):
            # The calls behind it do not take what it makes.
            continue
        if changed is not None:
            yield f"{name_of(op)} as link {place + 1} of {len(links)}", changed


def _link(
    trials: RuleTrials, trial: Trial, chain: Chain, before: tuple[Link, ...], op: Any, rng: random.Random
) -> Link | None:
    """Return a call of an operator behind some links."""
    run = PatternRun(trials.rule.pattern, dict(trial.names), trial.shape, TensorBuilder())
    value = run.value(chain.inner)
    for one in before:
        value = one.called(value, TensorBuilder())
    return drawn_link(op, value, rng) if isinstance(value, torch.Tensor) else None


def _with_links(trials: RuleTrials, trial: Trial, key: str, links: tuple[Link, ...]) -> Trial | None:
    """Return the trial with other links, or None if it cannot be run so, or a condition does not hold then."""
    named = trials.rule.pattern.named
    names = {name: value for name, value in trial.names.items() if name not in named} | {key: links}
    found = Trial(trial.seed, trial.shape, names)
    with torch.no_grad():
        found.expected = PatternRun(trials.rule.pattern, names, trial.shape, TensorBuilder()).run()
    return found if trials.against_guards(names, None) is None else None


def links_without_witness(rule: CompiledRule, text: str) -> Diagnostic:
    """Return the diagnostic about a chain whose operators make no difference, EK267.

    Args:
        rule: The rule.
        text: The chain, as `links_of` names it.
    """
    name = text.partition(":")[0]
    return rule.texts.match.diagnostic(
        "EK267",
        f"nothing shows what the operators of the chain {name} are for: with others the rule is right as well",
        length=1,
        notes=(f"in rule {rule.id}",),
        hint="name a family of operators, leave the chain out of the pattern, or list it under `verify: {skip: ...}`",
    )
