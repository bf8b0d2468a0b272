"""Programs that are valid by construction: nothing is tried and thrown away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import accumulate

import torch

from exirkit.fuzz.programs import Contents, Method, Program, Ref, Run, names_in
from exirkit.ir import Diagnostic, UsageError

from .acts import (
    analysed,
    bounds,
    chains,
    comparing,
    factors,
    large,
    layouts,
    nearly_equal,
    numbers,
    options,
    overlapping,
    samples,
    sizes,
    ties,
    windows,
    wrapping,
    written,
)
from .choices import Choices, SeededChoices
from .method.building import Building
from .method.finishing import outputs_of, runs_of, trimmed_steps, use_remaining
from .method.ordering import interleaved
from .method.scope import Scope
from .method.state import Writes
from .method.values import FLOATS, Fact
from .operators import (
    binary,
    counting,
    creating,
    elementwise,
    images,
    indexing,
    joining,
    layers,
    quantizing,
    reducing,
    viewing,
)
from .operators.catalogue import Operator, shipped_operators
from .operators.control_flow import BODY_FAMILIES, propose_control_flow
from .operators.registry import PROPOSERS
from .operators.replaced import REPLACED
from .operators.similar import similar_call
from .patterns.shipped_rules import insert_shipped_rule
from .policy import CONTROL_FLOW, QUANTIZATION, SAMPLES, Plan, Policy, draw_plan

FAMILIES = (creating, elementwise, binary, images, indexing, joining, layers, quantizing, reducing, viewing)
"""Modules that fill the table of proposers when they are imported."""

_DEFAULT = Policy()
_METHODS = ("forward", "decode")


def generate(seed: int, policy: Policy | None = None) -> Program:
    """Return the program of a seed, the same on every machine.

    Args:
        seed: Not negative.
        policy: What programs are to contain.

    Raises:
        UsageError: EK821: the policy leaves no operator, or no dtype.
    """
    return generate_from(SeededChoices(seed), policy or _DEFAULT)


def generate_from(choices: Choices, policy: Policy) -> Program:
    """Return the program that some choices make."""
    return generate_with_facts(choices, policy)[0]


def generate_with_facts(choices: Choices, policy: Policy) -> tuple[Program, dict[str, Fact]]:
    """Return the program that some choices make, and what is known of each of its values."""
    _require_choices(policy)
    building = Building(choices, draw_plan(choices, policy))
    if building.requests(SAMPLES):
        method, runs = samples.sampled_method(building)
        return finished(building, runs, [method]), {}
    count = 2 if building.requests("several_methods") else 1
    scopes: dict[str, Scope] = {}
    methods: list[Method] = []
    for number, name in enumerate(_METHODS[:count]):
        scope = scopes[name] = Scope(building)
        methods.append(fill_method(scope, name, is_first=number == 0))
    facts = {value.name: value.fact for scope in scopes.values() for value in scope.values}
    return finished(building, runs_of(building, scopes), methods), facts


def require_programs(policy: Policy) -> None:
    """Make sure that programs can be made under a policy.

    Raises:
        UsageError: EK821: the policy leaves no operator, or no dtype.
    """
    _require_choices(policy)
    if not _allowed(policy.operators, policy.without, policy.portable_only, policy.unsupported, policy.quantization):
        raise _wrong("it leaves no operator of the catalogue")


def _require_choices(policy: Policy) -> None:
    if not policy.dtypes or not 0 <= policy.least_calls <= policy.most_calls:
        raise _wrong("it has no dtypes, or `least_calls` is more than `most_calls`")


def finished(building: Building, runs: tuple[Run, ...], methods: Sequence[Method]) -> Program:
    """Return the program that methods and what they share make."""
    used = {name for method in methods for name in _names_of(method)}
    kept = tuple(stored for stored in building.stored if stored.name in used or stored.name in building.written)
    results = {name for method in methods for step in method.steps for name in step.results if name is not None}
    names = {each.name for each in kept} | used | results
    return Program(
        tuple(building.symbols),
        kept,
        tuple(methods),
        runs,
        frozenset(name for name in building.inexact if name in names),
        frozenset(name for name in building.undecided if name in names),
    )


def fill_method(scope: Scope, name: str, *, is_first: bool, extra: Sequence[Callable[[], None]] = ()) -> Method:
    """Fill a method with calls.

    Args:
        scope: The empty method.
        name: Of the method.
        is_first: The method makes the buffers that methods write.
        extra: Adds calls of its own somewhere in the middle.
    """
    building = scope.building
    writes = Writes(scope)
    if is_first:
        _start(scope)
        writes.prepare()
    is_reader = not is_first and scope.choices.chance(0.5)
    acts = [*_acts(scope, None if is_reader else writes), *extra]
    calls = building.plan.calls if is_first else max(2, building.plan.calls // 2)
    places = sorted(scope.choices.integer(0, calls) for _ in acts)
    catalogue = weighted_operators(building.plan)
    for number in range(calls + 1):
        while places and places[0] == number:
            places.pop(0)
            acts.pop(0)()
        if number < calls:
            _propose(scope, catalogue)
    use_remaining(scope)
    writes.finish(is_reader=is_reader)
    updates = writes.references()
    outputs = (*outputs_of(scope), *(Ref(value.name) for value in scope.outputs_of_unknown_size))
    method = Method(name, tuple(scope.inputs), (), outputs, updates)
    used = _names_of(method) | {name for step in scope.steps for name in names_in(step.arguments)}
    steps = trimmed_steps(scope, used)
    return replace(method, steps=interleaved(scope.choices, steps) if building.requests("interleaved") else steps)


def _start(scope: Scope) -> None:
    """Add an input, and the odd things that the program is to have."""
    building, choices = scope.building, scope.choices
    dtype = building.plan.dtypes[0]
    sizes = building.draw_sizes((1, 4))
    dynamic = building.dynamic_sizes()
    if dynamic and not any(size in dynamic for size in sizes):
        at = choices.integer(0, len(sizes) - 1)
        sizes = (*sizes[:at], dynamic[0], *sizes[at + 1 :])
    scope.must_use.append(scope.new_input(dtype, sizes, building.contents(dtype)))
    for extent in dynamic:
        if not any(str(extent) in each.type.sizes for each in scope.inputs):
            sizes = choices.pick(((extent,), (extent, 3), (2, extent)))
            other = scope.dtype_of(building.plan.dtypes)
            scope.must_use.append(scope.new_input(other, sizes, building.contents(other)))
    _start_stored(scope)
    if building.requests("channels_last"):
        is_fixed = building.requests("stored_beside_channels_last")
        drawn = building.draw_sizes((4, 4), is_static=is_fixed, nonempty=True)
        shape = (2, 3, 5, 2) if choices.chance(0.5) else drawn
        if choices.chance(0.3):
            # One channel, or one pixel: strides alone do not tell the order of dims.
            at = choices.pick((1, 1, 2, 3))
            shape = (*shape[:at], 1, *shape[at + 1 :])
        contents = replace(building.contents(torch.float32), layout="channels_last")
        scope.must_use.append(scope.new_input(torch.float32, shape, contents))
        if is_fixed:
            layers.combine_with_stored(scope, scope.must_use[-1])
    if building.requests("mixed_dtypes") and len(building.plan.dtypes) > 1:
        other = choices.pick(building.plan.dtypes[1:])
        scope.must_use.append(scope.fresh(other, building.draw_sizes((0, 3))))


def _start_stored(scope: Scope) -> None:
    building, choices = scope.building, scope.choices
    floats = [dtype for dtype in building.plan.dtypes if dtype in FLOATS] or [torch.float32]
    made = []
    if building.requests("equal_stored"):
        sizes = building.draw_sizes((1, 3), is_static=True, nonempty=True)
        contents = building.contents(floats[0])
        kinds = choices.pick((("parameter", "parameter"), ("constant", "constant"), ("parameter", "buffer")))
        made += [building.store(kind, floats[0], sizes, contents) for kind in kinds]
        if choices.chance(0.3):
            made.append(building.store("constant", floats[0], sizes, building.contents(floats[0])))
    if building.requests("odd_strides"):
        sizes = building.draw_sizes((2, 3), is_static=True, nonempty=True)
        contents = building.contents(floats[0])
        contents = replace(contents, layout="transposed" if choices.chance(0.5) else "strided")
        made.append(building.store(choices.pick(("parameter", "constant", "buffer")), floats[0], sizes, contents))
    if building.requests("expanded_stored"):
        sizes = building.draw_sizes((1, 3), is_static=True, nonempty=True)
        contents = replace(building.contents(floats[0]), layout="expanded")
        made.append(building.store(choices.pick(("constant", "buffer")), floats[0], sizes, contents))
    if building.requests("great_integers"):
        numbers = (2**31 + 5, -(2**33), 7)
        made.append(building.store("constant", torch.int64, (3,), Contents(kind="numbers", numbers=numbers)))
    if building.requests("zero_size"):
        made.append(
            building.store("constant", floats[0], choices.pick(((0,), (0, 3), (2, 0))), building.contents(floats[0]))
        )
    if building.requests("stored") and not made:
        sizes = building.draw_sizes((1, 3), is_static=True, nonempty=True)
        made.append(building.store("parameter", floats[0], sizes, building.contents(floats[0])))
    scope.values += made
    scope.must_use += made


def _acts(scope: Scope, writes: Writes | None) -> list[Callable[[], None]]:
    """Return calls that the program shall have, whatever else it has."""
    building = scope.building
    acts: list[Callable[[], None]] = []
    for feature, families in _WISHED.items():
        if building.requests(feature):
            acts.append(partial(_propose, scope, _of_families(building.plan.policy, families)))
    if building.requests("other_optional_arguments") and scope.choices.chance(0.5):
        acts.append(partial(_propose, scope, _weights_of(_key(building.plan.policy), names=_OF_OPTIONS)))
    for feature, names in _NAMED.items():
        if building.requests(feature):
            acts.append(partial(_propose, scope, _weights_of(_key(building.plan.policy), names=names)))
    acts += [partial(act, scope) for feature, act in _SINGLE_ACTS.items() if building.requests(feature)]
    for kind in CONTROL_FLOW:
        if building.requests(kind):
            inner = _of_families(building.plan.policy, BODY_FAMILIES)
            acts.append(partial(propose_control_flow, scope, kind, inner))
    acts += [
        partial(quantizing.SCHEMES[name], scope) for name in QUANTIZATION if building.requests(f"quantized_{name}")
    ]
    if building.requests("rule_pattern"):
        acts += [partial(insert_shipped_rule, scope)] * scope.choices.integer(3, 5)
    if building.requests("two_writes") and writes is not None:
        acts.append(writes.write_early)
    return scope.choices.shuffled(acts)


_WISHED = {"several_results": ("several", "cut"), "views": ("shape",), "mixed_dtypes": ("cast",)}

_NAMED = {
    "whole_number_for_float": images.WITH_EPSILON,
    "argument_left_out": ("aten.clamp.default", "aten.slice.Tensor"),
}

# Operators that are mostly called with an argument that other calls leave out.
_OF_OPTIONS = ("aten.div.Tensor_mode", "aten.div.Scalar_mode", "aten.clone.default")


_SINGLE_ACTS: Mapping[str, Callable[[Scope], None]] = {
    "quantized": quantizing.quantize_somehow,
    "endless_slice": viewing.endless_slice,
    "inexact_numbers": binary.inexact_product,
    "similar_calls": similar_call,
    "data_sized": counting.data_sized,
    "strange_numbers": numbers.strange_numbers,
    "inverse_calls": numbers.inverse_calls,
    "stepped_size": sizes.stepped_size,
    "empty_views": sizes.empty_views,
    "calls_of_two_sizes": sizes.calls_of_two_sizes,
    "relaid_unit_dims": layouts.relaid_unit_dims,
    "laid_out_results": layouts.laid_out_results,
    "numbered_calls": chains.numbered_calls,
    "converted_again": chains.converted_again,
    "nearly_equal_stored": nearly_equal.nearly_equal_stored,
    "equal_lists": nearly_equal.equal_lists,
    "options": options.options,
    "bounded_arithmetic": bounds.bounded_arithmetic,
    "layer_with_factors": factors.layer_with_factors,
    "overlapping_operands": overlapping.overlapping_operands,
    "wrapping_integers": wrapping.wrapping_integers,
    "rounded_ties": ties.rounded_ties,
    "strided_windows": windows.strided_windows,
    "gradients_of_maxima": windows.gradients_of_maxima,
    "written_in_place": written.written_in_place,
    "written_by_bodies": written.written_by_bodies,
    "large_values": large.large_values,
    "comparisons": comparing.comparisons,
    "bounded_integers": bounds.bounded_integers,
    "analysed_calls": analysed.analysed_calls,
    **REPLACED,
}


def _propose(scope: Scope, catalogue: tuple[Sequence[Operator], Sequence[float]]) -> None:
    operators, sums = catalogue
    if not operators:
        return
    operator = operators[scope.choices.weighted(sums)]
    PROPOSERS[operator.family](scope, operator)


@lru_cache(maxsize=256)
def _weights(
    policy_key: tuple[object, ...], favoured: int, focus: frozenset[str]
) -> tuple[tuple[Operator, ...], tuple[float, ...]]:
    """Return operators and sums of weights: each of 64 choices prefers some families."""
    operators = _allowed(*policy_key)
    families = sorted({operator.family for operator in operators})
    step = favoured % 5 + 1
    factors = {family: _FACTORS[(favoured * 7 + at * step) % len(_FACTORS)] for at, family in enumerate(families)}
    counts = {
        family: sum(operator.weight for operator in operators if operator.family == family) for family in families
    }
    is_rough = favoured % 3 == 0
    weights = [
        operator.weight
        * (0.25 if _is_inexact(operator) and not is_rough else 1)
        * factors[operator.family]
        / max(counts[operator.family], 1) ** 0.5
        for operator in operators
    ]
    if focused := [place for place, operator in enumerate(operators) if operator.name in focus]:
        # Twice as often as all others together.
        total = 2 * sum(weights)
        weights = [one + (place in focused) * total / len(focused) for place, one in enumerate(weights)]
    return operators, tuple(accumulate(weights))


_INEXACT_FAMILIES = frozenset({"softmax", "normalize"})
_INEXACT_RULES = frozenset({"pow", "pow_of", "atan2", "div", "var", "var_dim", "std", "logsumexp", "norm", "var_mean"})


def _is_inexact(operator: Operator) -> bool:
    """Whether results of an operator are on no grid, most times."""
    is_rule = operator.option("rule") in _INEXACT_RULES or operator.family in _INEXACT_FAMILIES
    return is_rule or operator.option("grid") == "none"


_FACTORS = (1.0, 1.0, 4.0, 1.0, 0.5, 1.0, 2.0, 0.25)


@lru_cache(maxsize=64)
def _allowed(
    only: frozenset[str], without: frozenset[str], portable: bool, unsupported: bool, quantization: bool
) -> tuple[Operator, ...]:
    return tuple(
        operator
        for operator in shipped_operators()
        if (not only or operator.name in only)
        and operator.name not in without
        and (
            (quantization and operator.family == "quantize")
            or (
                (operator.is_portable or not portable)
                and (unsupported or not operator.is_unsupported or operator.name in only)
            )
        )
        and operator.weight > 0
    )


def _key(policy: Policy) -> tuple[object, ...]:
    return (policy.operators, policy.without, policy.portable_only, policy.unsupported, policy.quantization)


def weighted_operators(plan: Plan) -> tuple[Sequence[Operator], Sequence[float]]:
    """Return the operators of a plan and the sums of their weights.

    Raises:
        UsageError: EK821: there is none.
    """
    found = _weights(_key(plan.policy), plan.favoured, plan.policy.focused_operators)
    if not found[0]:
        raise _wrong("it leaves no operator of the catalogue")
    return found


@lru_cache(maxsize=256)
def _weights_of(
    policy_key: tuple[object, ...], families: tuple[str, ...] = (), names: tuple[str, ...] = ()
) -> tuple[tuple[Operator, ...], tuple[float, ...]]:
    allowed = _allowed(*policy_key)
    operators = tuple(operator for operator in allowed if operator.family in families or operator.name in names)
    return operators, tuple(accumulate(operator.weight for operator in operators))


def _of_families(policy: Policy, families: tuple[str, ...]) -> tuple[Sequence[Operator], Sequence[float]]:
    return _weights_of(_key(policy), families)


def _names_of(method: Method) -> set[str]:
    return method.names_read | {name for name, _ in method.updates}


def _wrong(message: str) -> UsageError:
    return UsageError(
        Diagnostic(
            code="EK821",
            message=f"no program can be made under this policy: {message}",
            expected="a policy that leaves at least one operator and one dtype",
        )
    )
