"""Memory policies as values: what YAML and Python are read into, and what the JSON Schema is made from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from exirkit.passes.config.policies import (
    ONE_OR_MORE,
    WITH_UNIT,
    Conditions,
    Glob,
    Globs,
    Name,
    Nbytes,
    NbytesRange,
    Strict,
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
        buffers: Whether buffers that the program writes to are `planned` like other values, `provided` by whoever loads
            the program, or `shared`: those of one name have one place in all methods, in an arena after the pools.
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
