"""What programs are to contain: a policy for all of them, and the plan that is drawn from it for each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from pathlib import Path

import torch

from .choices import Choices
from .operators.catalogue import shipped_operators

PRIMES = (2, 3, 5, 7, 11)

FLOORS: Mapping[str, float] = {
    "dynamic": 0.50,
    "two_symbols": 0.20,
    "derived_size": 0.10,
    "views": 0.40,
    "several_results": 0.25,
    "unused_result": 0.10,
    "mutable_buffer": 0.30,
    "two_writes": 0.05,
    "swapped_buffers": 0.05,
    "delayed_buffers": 0.03,
    "old_value_read_late": 0.05,
    "written_input": 0.05,
    "stored": 0.60,
    "equal_stored": 0.15,
    "odd_strides": 0.10,
    "expanded_stored": 0.05,
    "zero_size": 0.03,
    "size_one": 0.10,
    "odd_outputs": 0.20,
    "input_returned": 0.03,
    "stored_returned": 0.03,
    "same_output_twice": 0.03,
    "none_returned": 0.03,
    "size_returned": 0.03,
    "channels_last": 0.15,
    "mixed_dtypes": 0.30,
    "several_methods": 0.08,
    "quantized": 0.15,
    "equal_sizes": 0.15,
    "output_used_later": 0.10,
    "other_optional_arguments": 0.20,
    "great_integers": 0.03,
    "endless_slice": 0.05,
    "inexact_numbers": 0.03,
    "similar_calls": 0.15,
    "stored_beside_channels_last": 0.04,
    "data_sized": 0.04,
    "whole_number_for_float": 0.02,
    "argument_left_out": 0.03,
}
"""Features of programs, and the share of all programs that shall have each at least; see `features_of`."""

_SURPLUS: Mapping[str, float] = {
    "two_writes": 1.6,
    "swapped_buffers": 1.4,
    "delayed_buffers": 1.6,
    "similar_calls": 1.6,
    "data_sized": 1.5,
    "argument_left_out": 2.4,
}
"""How many times the floor is wished for: other requests undo some features, and of others not all is counted."""

CONTROL_FLOW: Mapping[str, float] = {"cond": 0.13, "map": 0.06, "scan": 0.08, "while_loop": 0.1}
"""Features of programs that have control flow, and shares likewise."""

QUANTIZATION: Mapping[str, float] = {
    "tensor": 0.35,
    "channel": 0.2,
    "token": 0.15,
    "dynamic": 0.15,
    "weight": 0.3,
    "embedding": 0.15,
    "sum": 0.15,
    "boundary": 0.2,
    "half": 0.08,
    "kernel": 0.15,
}
"""Schemes of programs that are quantized, and shares likewise: features `quantized_tensor` and so on."""

REPLACED: Mapping[str, float] = {
    "whole_arithmetic": 0.05,
    "cropping_pad": 0.02,
    "over_volumes": 0.05,
    "scaled_sum_of_one": 0.04,
    "varying_parts": 0.04,
    "layer_of_known_size": 0.06,
    "quantized_call": 0.06,
    "large_state": 0.03,
    "decomposed_call": 0.08,
}
"""Acts that give passes of the default chain something to do that other calls leave idle, and shares likewise.

What they are for is measured: each pass shall change a share of the programs (`exirkit fuzz report --idle-passes`).
"""

ANALYSED = "analysed_calls"

MISTAKEN: Mapping[str, float] = {
    "dims_from_end": 0.4,
    "interleaved": 0.2,
    "strange_numbers": 0.05,
    "inverse_calls": 0.07,
    "stepped_size": 0.06,
    "empty_views": 0.06,
    "calls_of_two_sizes": 0.05,
    "relaid_unit_dims": 0.05,
    "laid_out_results": 0.03,
    "odd_state": 0.05,
    "numbered_calls": 0.07,
    "converted_again": 0.05,
    "nearly_equal_stored": 0.06,
    "equal_lists": 0.03,
    "options": 0.04,
    "bounded_arithmetic": 0.06,
    "layer_with_factors": 0.08,
    "overlapping_operands": 0.05,
    "wrapping_integers": 0.05,
    "comparisons": 0.05,
    "bounded_integers": 0.07,
    ANALYSED: 0.06,
    "rounded_ties": 0.05,
    "strided_windows": 0.05,
    "gradients_of_maxima": 0.02,
    "written_in_place": 0.05,
    "written_by_bodies": 0.04,
    "large_values": 0.03,
}
"""What compilers take for something else, and shares likewise: dims counted from the end, calls of a pattern far apart,
numbers that compare equal, functions that undo each other but for some elements, sizes that do not grow with their
symbols, calls of two sizes that vary, tensors without elements, layouts of sizes of one and of results, state without
elements or dims, chains of limits, factors and conversions, stored tensors that differ in one element, limits that
follow from calls, lists of one content and several types, arguments that are left out, layers whose weights can take up
what is around them, operands that share memory of which one may be overwritten, integers that wrap around, comparisons
of what is not a number, integers at the bounds that calls before have set, calls on bounded values of which an analysis
knows something, halves that are rounded, copies that do not begin at the first element, values that are written in
place from operands of another dtype, through views, or by branches and loops, and tensors of many bytes."""

SAMPLES = "operator_samples"
"""What a program of samples asks for, instead of any features."""

_PATTERN = "rule_pattern"
OPERATOR, RULE = "op:", "rule:"
"""How operators and rules of a focus begin."""

_FOCUSED, _SAMPLED_FOCUS, _ONLY_SAMPLED = 0.7, 0.5, 0.9
"""How many programs have a feature that they are to have much more often, and how many are samples of operators: if all
of these can be, or none can be called otherwise."""

_NARROW, _NARROW_CALLS = 0.5, 4
"""How many programs with a focus have nothing else, which takes a fraction of the time of others, and their calls."""

# Where nearly all programs are samples, the others cannot make up for them.
_LEAST_REST = 0.5

# Programs with control flow take twice the time of others.
_RARITY = 0.4


@dataclass(frozen=True)
class Policy:
    """How programs are made.

    Attributes:
        least_calls: Calls of operators in a method, at least.
        most_calls: And at most; most programs have few. Those that guard others or fit shapes are not counted.
        shares: Of all programs that shall have a feature, by its name in `FLOORS`, where it differs from there.
        operators: Only calls of operators with these names are proposed; all of the catalogue if empty.
        without: No calls of operators with these names are proposed.
        dtypes: Of what is computed; float32 is the simplest.
        exact: How often a call that would leave the grid of exact numbers is kept on it.
        unsupported: Take operators as well that our own chain does not support, such as those that quantize.
        portable_only: Leave out operators for which the official runtime has no portable kernel.
        special: How many of the float inputs have NaN, infinities, -0.0 and denormals in them; see `ieee_policy`.
        control_flow: Programs have the features of `CONTROL_FLOW` as often as is said there, and not a fifth as often.
        quantization: Programs have the schemes of `QUANTIZATION` as often as is said there, and one of them each.
        rule_patterns: How many programs have patterns of shipped rules, each of which is applied to few others.
        operator_samples: How many programs are samples of operators instead, each on elements that it may treat apart,
            if the policy takes all operators and asks for nothing that samples do not have.
        swarms: Features are dropped at random: of sixteen seeds in a row, four do not have a feature, whichever it is,
            and the others have it oftener. What is rare alone meets more of the rest that way.
        focus: What programs are to have much more often than others: features by name, operators as `op:NAME`, and
            patterns of shipped rules as `rule:ID`. It is for finding what is wrong with a part of a compiler that other
            programs seldom reach.
    """

    least_calls: int = 1
    most_calls: int = 10
    shares: Mapping[str, float] = field(default_factory=dict)
    operators: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    dtypes: tuple[torch.dtype, ...] = (
        torch.float32,
        torch.int64,
        torch.int32,
        torch.bool,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.uint8,
        torch.int8,
        torch.int16,
    )
    exact: float = 0.85
    unsupported: bool = False
    portable_only: bool = False
    special: float = 0.0
    control_flow: bool = False
    quantization: bool = False
    rule_patterns: float = 0.25
    operator_samples: float = 0.3
    swarms: bool = True
    focus: frozenset[str] = frozenset()
    refused: InitVar[bool] = False

    def __post_init__(self, refused: bool) -> None:
        if refused:  # the former name
            warnings.warn("Policy(refused=True) is called unsupported= now", DeprecationWarning, stacklevel=3)
            object.__setattr__(self, "unsupported", True)

    @property
    def takes_all(self) -> bool:
        """Whether operators and dtypes are what they are for a policy that says nothing of them."""
        return not self.operators and not self.without and self.dtypes == Policy.dtypes and not self.special

    @property
    def takes_samples(self) -> bool:
        """Whether programs may be samples: these have no control flow and no schemes, and may need other kernels."""
        return self.takes_all and not (self.control_flow or self.quantization or self.portable_only)

    def allows(self, operator: str) -> bool:
        """Return whether calls of an operator may be made for their own sake."""
        return (not self.operators or operator in self.operators) and operator not in self.without

    @property
    def focused_operators(self) -> frozenset[str]:
        """Names of operators that are called much more often than others."""
        return self._focused(OPERATOR)

    @property
    def focused_rules(self) -> frozenset[str]:
        """Ids of shipped rules whose patterns are inserted much more often than those of others."""
        return self._focused(RULE)

    def _focused(self, kind: str) -> frozenset[str]:
        return frozenset(one.removeprefix(kind) for one in self.focus if one.startswith(kind))

    def share(self, feature: str) -> float:
        """Return the share of programs that shall have a feature: a little more than the floor."""
        if feature in self.shares:
            return self.shares[feature]
        return min(1.0, FLOORS[feature] * _SURPLUS.get(feature, 1.12) + 0.01)


@dataclass(frozen=True)
class Plan:
    """What one program is to contain.

    Attributes:
        policy: Of all programs.
        requests: Features.
        dtypes: Of fresh values, by descending preference; often float32 alone.
        calls: How many calls of operators to propose in the first method.
        fresh: How often a call takes a new input or constant although there are values that it could take.
        favoured: Seed of the weights of operators.
    """

    policy: Policy
    requests: frozenset[str]
    dtypes: tuple[torch.dtype, ...]
    calls: int
    fresh: float
    favoured: int


_SPECIAL_OPERATORS = """
abs neg relu clone alias isnan isinf logical_not add.Tensor sub.Tensor mul.Tensor maximum minimum eq.Tensor ne.Tensor
lt.Tensor le.Tensor gt.Tensor ge.Tensor add.Scalar sub.Scalar mul.Scalar eq.Scalar gt.Scalar where.self
masked_fill.Scalar copy clamp amax amin max.dim min.dim any.dim cat stack view permute transpose.int expand unsqueeze
squeeze.dim slice.Tensor select.int flip roll repeat constant_pad_nd split.Tensor unbind.int index_select gather
select_scatter slice_scatter
"""


def ieee_policy() -> Policy:
    """Return a policy for what floats do at their edges: operators whose results are the same to the bit even there.

    Intervals that the generator keeps do not hold for such programs.
    """
    names = [f"aten.{name}" if "." in name else f"aten.{name}.default" for name in _SPECIAL_OPERATORS.split()]
    dtypes = (torch.float32, torch.bool, torch.float64, torch.float16)
    shares = {"quantized": 0.0, "inexact_numbers": 0.0}
    return Policy(operators=frozenset(names), dtypes=dtypes, special=0.7, shares=shares)


def shipped_policies() -> Mapping[str, Path]:
    """Return the files of the policies that come with exirkit, by name: fields of `Policy` as YAML."""
    return {file.stem: file for file in sorted(Path(__file__).with_name("policies").glob("*.yaml"))}


_PARENTS: Mapping[str, tuple[str, ...]] = {
    "two_symbols": ("dynamic",),
    "derived_size": ("dynamic",),
    "size_returned": ("dynamic", "odd_outputs"),
    "mutable_buffer": ("stored",),
    "two_writes": ("mutable_buffer",),
    "swapped_buffers": ("mutable_buffer",),
    "delayed_buffers": ("mutable_buffer",),
    "old_value_read_late": ("mutable_buffer",),
    "equal_stored": ("stored",),
    "odd_strides": ("stored",),
    "expanded_stored": ("stored",),
    "stored_returned": ("odd_outputs",),
    "input_returned": ("odd_outputs",),
    "same_output_twice": ("odd_outputs",),
    "none_returned": ("odd_outputs",),
    "unused_result": ("several_results",),
    "stored_beside_channels_last": ("channels_last",),
}
"""Features that come only together with others: the first is wished for among programs that have the second."""


def draw_plan(choices: Choices, policy: Policy) -> Plan:
    """Decide what a program is to contain."""
    requests: set[str] = set()
    # A program of samples has nothing else, so that the others need more of everything.
    sampled = policy.operator_samples if policy.takes_samples else 0.0
    if policy.focus:
        # Half of the programs for an operator are samples of it; features stand in others only.
        sampled = _sampled_share(policy) if sampled else 0.0
    is_narrow = bool(policy.focus) and choices.chance(_NARROW)
    rest = max(1 - sampled, _LEAST_REST)
    is_sampled = sampled > 0 and choices.request(SAMPLES, sampled)
    for feature in sorted(FLOORS, key=_depth):
        share = policy.share(feature)
        parents = _PARENTS.get(feature, ())
        share /= 1 if parents else rest
        for parent in parents:
            share /= max(policy.share(parent), share, 1e-9)
        # Every feature is asked for in every program, so that a seed always makes the same choices.
        is_asked = _is_asked(choices, policy, feature, share, is_narrow)
        if is_asked and (feature in policy.focus or all(parent in requests for parent in parents)):
            requests |= {feature, *(parents if feature in policy.focus else ())}
    acts: dict[str, float] = {}
    if policy.control_flow or policy.takes_all:
        rarity = 1.0 if policy.control_flow else _RARITY
        acts |= {kind: (share * 1.12 + 0.01) * rarity for kind, share in CONTROL_FLOW.items()}
    # How calls are written, and in which order they stand, does not depend on the operators.
    acts |= {name: MISTAKEN[name] for name in ("dims_from_end", "interleaved")}
    if policy.takes_all:
        patterns = max(policy.rule_patterns, _FOCUSED) if policy.focused_rules else policy.rule_patterns
        acts |= {_PATTERN: patterns, **REPLACED, **MISTAKEN}
    requests |= {act for act, share in acts.items() if _is_asked(choices, policy, act, share / rest, is_narrow)}
    if policy.quantization:
        schemes = {f"quantized_{name}" for name, share in QUANTIZATION.items() if choices.request(name, share)}
        requests |= schemes or {f"quantized_{choices.pick(tuple(QUANTIZATION))}"}
    dtypes = _dtypes(choices, policy, "mixed_dtypes" in requests)
    # Small programs find more in the same time: eight operators is the median, what fits and guards included.
    calls = min(choices.integer(policy.least_calls, policy.most_calls) for _ in range(3))
    if is_narrow:
        calls = max(calls, min(_NARROW_CALLS, policy.most_calls))
    fresh = (0.05, 0.12, 0.25)[choices.integer(0, 2)]
    favoured = choices.integer(0, 63)
    return Plan(policy, frozenset({SAMPLES} if is_sampled else requests), dtypes, calls, fresh, favoured)


def _sampled_share(policy: Policy) -> float:
    """Return how many programs with a focus are samples of operators."""
    operators = policy.focused_operators
    if not operators:
        return 0.0
    can_be_called = operators.intersection(one.name for one in shipped_operators())
    return _SAMPLED_FOCUS if can_be_called or len(operators) < len(policy.focus) else _ONLY_SAMPLED


def _is_asked(choices: Choices, policy: Policy, feature: str, share: float, is_narrow: bool) -> bool:
    """Return whether a program shall have a feature; what nearly all programs have, no swarm lacks."""
    if feature in policy.focus:
        return choices.request(feature, max(share, _FOCUSED))
    emphasis = choices.emphasis(feature) if policy.swarms else 1.0
    is_asked = choices.request(feature, share * emphasis if share * max(emphasis, 4 / 3) <= 1 else share)
    return is_asked and (not is_narrow or (feature == _PATTERN and bool(policy.focused_rules)))


def _depth(feature: str) -> int:
    return 1 + max((_depth(parent) for parent in _PARENTS.get(feature, ())), default=0)


def _dtypes(choices: Choices, policy: Policy, is_mixed: bool) -> tuple[torch.dtype, ...]:
    first = policy.dtypes[0]
    if len(policy.dtypes) == 1:
        return (first,)
    if not is_mixed:
        return (first,) if choices.chance(0.85) else (choices.pick(policy.dtypes),)
    others = choices.shuffled(policy.dtypes[1:])
    return (first, *others[: choices.integer(1, 3)])
