"""Memory policies as values, read from YAML or made in Python, and their JSON Schema."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from exirkit.ir import (
    Diagnostic,
    DocumentCodes,
    Location,
    SourceText,
    UsageError,
    YamlPath,
    did_you_mean,
)
from exirkit.passes.config.policies import (
    ONE_OR_MORE,
    WITH_UNIT,
    Conditions,
    Glob,
    Globs,
    Name,
    Nbytes,
    NbytesRange,
    PolicyKind,
    Strict,
    TextAt,
    condition_findings,
    dtype_findings,
    has_wildcard,
    listed_names,
    operator_findings,
    wrong,
)

DEVICE_PATTERN = r"^(cpu|cuda(:[0-9]{1,2})?)$"


Alignment = Annotated[int, Field(ge=1, le=1 << 30), *WITH_UNIT]
Kind = Literal["input", "output", "buffer", "intermediate"]
Kinds = Annotated[tuple[Kind, ...], *ONE_OR_MORE]
Provision = Literal["planned", "provided"]


class MemoryPool(Strict):
    """A memory in which values can lie.

    Attributes:
        name: What the policy calls it.
        mem_id: Number of its arena in the program; its place in the list of pools, from 1, when absent.
        limit: Bytes there are; no limit when absent.
        alignment: Every offset in it is a multiple of so many bytes; that of the planning pass when absent.
        priority: Pools of higher priority are filled first; of equal ones the one that is listed first.
        device: Where it is: `cpu`, `cuda`, `cuda:1`.
        doc: What it is.
    """

    name: Name
    mem_id: Annotated[int, Field(ge=1, le=1000)] | None = None
    limit: Nbytes | None = None
    alignment: Alignment | None = None
    priority: int = 0
    device: Annotated[str, Field(pattern=DEVICE_PATTERN)] = "cpu"
    doc: str | None = None


class PlacementRule(Strict):
    """Where some of the values lie. A value has to agree with every key; of several names or kinds, with one.

    Attributes:
        name: What messages call the rule.
        op: Operators that make the value, with `*` for any part of a name: `aten.convolution.*`.
        user: Operators of which one reads the value.
        dtype: Types of elements: `f32`, `i8`.
        nbytes: Sizes.
        module: Paths of modules that the value comes from: `encoder.layers.*`.
        value: Names of values: of the graph, or of the buffer.
        kind: `input`, `output`, `buffer` (one that the program writes to) or `intermediate`.
        where: Conditions of the rule language over the value `x`, its size `nbytes`, and the `traffic` in bytes.
        pool: Where such values lie.
        spill: Whether they may lie in a later pool of the spill order where this one is full.
        doc: Why.
    """

    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    op: Globs = ()
    user: Globs = ()
    dtype: Globs = ()
    nbytes: NbytesRange | None = None
    module: Globs = ()
    value: Globs = ()
    kind: Kinds = ()
    where: Conditions = ()
    pool: Name
    spill: bool = True
    doc: str | None = None


class MemoryPolicy(Strict):
    """A memory policy.

    Attributes:
        policy: Version of the form: 1.
        name: What the policy is called.
        doc: What it is for.
        planner: How values are placed in a pool; what the planning pass says when absent.
        in_place: Let results take the place of arguments that nothing needs any more; what the pass says when absent.
        share_views: Let reshaping copies share the memory of their source; otherwise they are copied.
        pools: The memories.
        rules: Where values lie; the first rule that means a value decides.
        default: The pool of values that no rule means; the first one of the spill order when absent.
        spill: The pools in the order in which values move on where one is full. When absent it is all of them, by
            priority. An empty list lets nothing move.
        inputs: Whether inputs are `planned`, or `provided` by the caller: for all of them, or by name, with `*` for any
            part of it; the first that agrees decides, and what nothing is said about is planned.
        outputs: The same for outputs, whose names are their numbers from 0.
        buffers: Whether buffers that the program writes to are `planned` like other values, `provided` by the caller
            that loads the program, or `shared`: those of one name have one place in all methods, in an arena after the
            pools.
        methods: What several methods do in one set of arenas. If `shared` they take turns: what one computes lies over
            what another has computed, and only buffers that a method writes to have bytes of their own. If `separate`
            no byte is used by two methods; a limit of a pool is one for all methods together.
    """

    policy: Literal[1]
    name: str | None = None
    doc: str | None = None
    planner: Literal["portfolio", "greedy", "naive", "exact"] | None = None
    in_place: bool | None = None
    share_views: bool = True
    pools: tuple[MemoryPool, ...] = Field(min_length=1, max_length=100)
    rules: tuple[PlacementRule, ...] = ()
    default: Name | None = None
    spill: tuple[Name, ...] | None = None
    inputs: Provision | dict[Glob, Provision] = "planned"
    outputs: Provision | dict[Glob, Provision] = "planned"
    buffers: Literal["planned", "provided", "shared"] = "planned"
    methods: Literal["shared", "separate"] = "shared"

    def mem_id(self, name: str) -> int:
        """Return the number of a pool's arena."""
        return next(
            place if pool.mem_id is None else pool.mem_id
            for place, pool in enumerate(self.pools, 1)
            if pool.name == name
        )

    def numbered_pools(self) -> Iterator[tuple[int, MemoryPool]]:
        """Yield the number of the arena of each pool, and the pool, as they are listed."""
        for pool in self.pools:
            yield self.mem_id(pool.name), pool

    @property
    def filling_order(self) -> tuple[str, ...]:
        """Names of the pools in the order in which they are filled."""
        by_priority = sorted(self.pools, key=lambda pool: -pool.priority)
        spill = self.spill or ()
        return (*spill, *(pool.name for pool in by_priority if pool.name not in spill))

    @property
    def default_pool(self) -> str:
        """Name of the pool of values that no rule means."""
        return self.default or self.filling_order[0]

    def way_of(self, pool: str, spill: bool = True) -> tuple[str, ...]:
        """Return the pools in which a value may lie that is to lie in the given one, in their order."""
        order = self.filling_order if self.spill is None else self.spill
        return order[order.index(pool) :] if spill and pool in order else (pool,)


CONDITION_NAMES = ("x", "nbytes", "traffic")
"""What a condition may name: the value, its bytes, and the bytes that are written to it and read."""


def _is_echo(error: Any, errors: Sequence[Any]) -> bool:
    """Whether an error about one form of a key follows from errors about another form."""
    path, kind = error["loc"], error["type"]
    # `inputs` is a word or a mapping, and pydantic complains about both.
    variants = [
        each for each in errors if each is not error and path and each["loc"][:1] == path[:1] and len(path) == 2
    ]
    if kind == "dict_type":
        return any(each["type"] == "literal_error" for each in variants)
    return kind == "literal_error" and any(len(each["loc"]) > 2 for each in variants)


def _pool_findings(policy: MemoryPolicy, at: TextAt) -> Iterator[Diagnostic]:
    names: set[str] = set()
    numbers: dict[int, str] = {}
    for place, pool in enumerate(policy.pools):
        number = place + 1 if pool.mem_id is None else pool.mem_id
        if pool.name in names:
            yield _wrong(at(("pools", place, "name"), pool.name), f"there are two pools {pool.name!r}")
        elif number in numbers:
            text = at(("pools", place, "name" if pool.mem_id is None else "mem_id"), pool.name)
            yield _wrong(text, f"the pools {numbers[number]!r} and {pool.name!r} both have arena {number}")
        names.add(pool.name)
        numbers.setdefault(number, pool.name)
    named: list[tuple[YamlPath, str]] = [(("rules", place, "pool"), rule.pool) for place, rule in
                                         enumerate(policy.rules)]  # fmt: skip
    named += [(("spill", place), name) for place, name in enumerate(policy.spill or ())]
    named += [(("default",), policy.default)] if policy.default else []
    for path, name in named:
        if name not in names:
            yield _wrong(at(path, name), f"there is no pool {name!r}", did_you_mean(name, names))
    for place, name in enumerate(policy.spill or ()):
        if name in (policy.spill or ())[:place]:
            yield _wrong(at(("spill", place), name), f"the pool {name!r} stands twice in the spill order")


def _rule_findings(policy: MemoryPolicy, at: TextAt) -> Iterator[Diagnostic]:
    for place, rule in enumerate(policy.rules):
        path = ("rules", place)
        for key in ("op", "user"):
            yield from operator_findings(listed_names(rule, path, key), at, "EK482")
        yield from dtype_findings(listed_names(rule, path, "dtype"), at, "EK482")
        yield from condition_findings(listed_names(rule, path, "where"), at, CONDITION_NAMES)


def _wrong(text: SourceText, message: str, hint: str | None = None) -> Diagnostic:
    return wrong(text, "EK482", message, hint)


_KIND = PolicyKind(
    MemoryPolicy,
    DocumentCodes(syntax="EK480", form="EK481"),
    "A memory policy for exirkit",
    lambda policy, at: (*_pool_findings(policy, at), *_rule_findings(policy, at)),
    follows=_is_echo,
)
# Read from a file (EK480, EK481) and check names (EK482) and conditions (EK220).
load_memory_policy, parse_memory_policy, check_policy = _KIND.load, _KIND.parse, _KIND.check
memory_policy_schema, memory_policy_schema_text = _KIND.schema, _KIND.schema_text


def plans_all(said: Provision | Mapping[str, Provision]) -> bool:
    """Whether everything is planned, whatever it is called."""
    return said == "planned" if isinstance(said, str) else "provided" not in said.values()


def planned_inputs(policy: MemoryPolicy, names: Sequence[str]) -> bool | frozenset[str]:
    """Return which inputs are planned.

    Args:
        policy: Says so.
        names: Those of all inputs of the method.

    Raises:
        UsageError: EK487, the policy names an input that there is not.
    """
    return _planned(policy.inputs, list(names), "input")


def planned_outputs(policy: MemoryPolicy, count: int) -> bool | frozenset[int]:
    """Return which outputs are planned, by their numbers from 0.

    Args:
        policy: Says so.
        count: How many outputs the method has.

    Raises:
        UsageError: EK487, the policy names an output that there is not.
    """
    found = _planned(policy.outputs, [str(number) for number in range(count)], "output")
    return found if isinstance(found, bool) else frozenset(map(int, found))


def _planned(said: Provision | Mapping[str, Provision], names: list[str], what: str) -> bool | frozenset[str]:
    if isinstance(said, str):
        return said == "planned"
    unknown = [name for name in said if name not in names and not has_wildcard(name)]
    if unknown:
        known = ", ".join(names) or "none at all"
        raise UsageError(
            code="EK487",
            message=f"the memory policy speaks of {what} {unknown[0]!r}, which the method does not have",
            location=Location(),
            expected=f"one of {known}",
            hint=did_you_mean(unknown[0], names) or f"write '{unknown[0]}*' if only some methods have it",
        )
    return frozenset(
        name
        for name in names
        if next((each for key, each in said.items() if fnmatch.fnmatchcase(name, key)), "planned") == "planned"
    )
