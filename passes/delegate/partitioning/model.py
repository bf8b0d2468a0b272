"""Partitioning as a value, read from YAML or made in Python, and its JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from exirkit.ir import (
    Diagnostic,
    DocumentCodes,
    ModelError,
    OpOverload,
    YamlPath,
)
from exirkit.passes.config.policies import (
    Conditions,
    Globs,
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
from exirkit.patterns import OperatorTable, compile_pattern

BackendId = Annotated[str, Field(min_length=1, max_length=200)]
RuleName = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=1, max_length=20_000)]
CompileValues = dict[Annotated[str, Field(min_length=1, max_length=200)], Annotated[str, Field(max_length=100_000)]]
Count = Annotated[int, Field(ge=0, le=1_000_000_000_000_000)]


class RankRange(Strict):
    """How many dimensions values have that a rule means.

    Attributes:
        at_least: The fewest.
        at_most: The most.
    """

    at_least: Annotated[int, Field(ge=0, le=64)] = 0
    at_most: Annotated[int, Field(ge=0, le=64)] | None = None

    @model_validator(mode="after")
    def _in_order(self) -> RankRange:
        if self.at_most is not None and self.at_most < self.at_least:
            raise ValueError(f"no value has at least {self.at_least} dimensions and at most {self.at_most}")
        return self

    def admits(self, rank: int) -> bool:
        """Whether a rank is in the range."""
        return self.at_least <= rank and (self.at_most is None or rank <= self.at_most)


class TakingRule(Strict):
    """Calls that go to the backend, or stay. A call has to agree with every key; of several names, with one.

    A rule with `match` means all calls of a match together: each of them has to agree with the keys about values and
    modules, and no other rule may have them, or none is taken.

    Attributes:
        name: What messages call the rule.
        op: Operators, with `*` for any part of a name: `aten.convolution.*`.
        match: A pattern of the rule language; replaces `op`.
        vars: Types of the pattern's variables.
        dtype: Types of elements that every result has: `f32`, `i8`.
        argument_dtype: Types of elements that every tensor argument has.
        rank: How many dimensions every result has.
        argument_rank: How many dimensions every tensor argument has.
        nbytes: Sizes of all results together, at their upper bounds; sizes without a bound are not in any range.
        static: Whether the sizes of results and arguments are all known; either will do when absent.
        module: Paths of modules that the call comes from: `encoder.layers.*`.
        where: Conditions of the rule language: over the names of the pattern; without one, over the call `x`, the bytes
            `nbytes` of its results, and the `elements` and `macs` (multiplications with addition) that it computes.
        leave: Whether such calls stay in the program.
        priority: Rules of higher priority are asked first; of equal ones the one that is listed first.
        backend: Where such calls go; the backend of the file when absent.
        compile_specs: What is compiled for; what the file says when absent.
        doc: Why.
    """

    name: RuleName | None = None
    op: Globs = ()
    match: Text | None = None
    vars: dict[str, str] = Field(default_factory=dict)
    dtype: Globs = ()
    argument_dtype: Globs = ()
    rank: RankRange | None = None
    argument_rank: RankRange | None = None
    nbytes: NbytesRange | None = None
    static: bool | None = None
    module: Globs = ()
    where: Conditions = ()
    leave: bool = False
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    backend: BackendId | None = None
    compile_specs: CompileValues | None = None
    doc: str | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> TakingRule:
        if self.match is not None and self.op:
            raise ValueError("a rule has `op` or `match`, not both")
        if self.vars and self.match is None:
            raise ValueError("`vars` are those of a pattern, and there is no `match`")
        if self.leave and (self.backend is not None or self.compile_specs is not None):
            raise ValueError("calls that stay go to no backend")
        return self


class Minimum(Strict):
    """What a partition has to have; a smaller one stays in the program.

    Attributes:
        nodes: Calls of operators.
        macs: Multiplications with addition, of matrix products and convolutions.
        elements: Elements that its calls compute or move, all together.
        nbytes: Bytes of all that its calls compute.
    """

    nodes: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    macs: Count = 0
    elements: Count = 0
    nbytes: Nbytes = 0


class Maximum(Strict):
    """What a partition may have; a larger one is cut into several, and a call or match above it by itself stays.

    Attributes:
        nodes: Calls of operators.
        nbytes: Bytes of all that its calls compute.
        weights: Bytes of the parameters, buffers and constants that its calls read.
        partitions: Partitions of a program with its bodies of control flow; of more, those that compute the least stay.
    """

    nodes: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    nbytes: Nbytes | None = None
    weights: Nbytes | None = None
    partitions: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class WholeOperators(Strict):
    """Operators that the backend wants whole, where they would be decomposed.

    Attributes:
        op: Operators: `aten.linear.default`.
        where: Conditions over the call `x`, as in rules; a call has to agree with all of them.
        doc: Why.
    """

    op: Annotated[Globs, Field(min_length=1)]
    where: Conditions = ()
    doc: str | None = None


class Partitioning(Strict):
    """Which parts of a program go to a backend.

    Attributes:
        partitioning: Version of the form: 1.
        name: What it is called.
        doc: What it is for.
        backend: Name of the backend.
        compile_specs: What is compiled for: values by key; each is handed on as UTF-8.
        rules: Which calls are taken; the first rule that means a call decides, and what no rule means stays.
        minimum: What a partition has to have.
        maximum: What a partition may have, and how many there may be.
        join: What goes to one partition besides calls of which one reads the other: nothing (`touching`), calls that
            read the same value (`readers`), or whatever can (`all`), which makes the fewest partitions.
        state: What becomes of parameters, constants, and buffers that nothing writes to: a delegate can `keep` what
            only delegates of one backend read, or is `handed` all of it at each call.
        mutable_state: The same for buffers that are written to: a delegate can `keep` one that it alone reads and
            writes, or is `handed` the value and hands back the new one.
        keep_whole: Operators that are not decomposed in `to_edge_transform_and_lower`.
    """

    partitioning: Literal[1]
    name: RuleName | None = None
    doc: str | None = None
    backend: BackendId
    compile_specs: CompileValues = Field(default_factory=dict)
    rules: Annotated[tuple[TakingRule, ...], Field(min_length=1, max_length=10_000)]
    minimum: Minimum = Minimum()
    maximum: Maximum = Maximum()
    join: Literal["touching", "readers", "all"] = "readers"
    state: Literal["keep", "handed"] = "keep"
    mutable_state: Literal["keep", "handed"] = "handed"
    keep_whole: tuple[WholeOperators, ...] = ()

    @property
    def asked_rules(self) -> tuple[tuple[int, TakingRule], ...]:
        """Rules with their places in the file, in the order in which they are asked."""
        return tuple(sorted(enumerate(self.rules), key=lambda pair: -pair[1].priority))

    def title_of(self, place: int) -> str:
        """Return what messages call a rule: its name, or its number from 1."""
        return self.rules[place].name or f"rule {place + 1}"


CONDITION_NAMES = ("x", "nbytes", "elements", "macs")
"""What a condition of a rule without a pattern may name."""


def _findings(partitioning: Partitioning, at: TextAt) -> Iterator[Diagnostic]:
    for place, rule in enumerate(partitioning.rules):
        yield from _rule_findings(("rules", place), rule, at)
    for place, whole in enumerate(partitioning.keep_whole):
        yield from _whole_findings(("keep_whole", place), whole, at)


def _rule_findings(path: YamlPath, rule: TakingRule, at: TextAt) -> Iterator[Diagnostic]:
    yield from operator_findings(listed_names(rule, path, "op"), at, "EK496")
    yield from dtype_findings(listed_names(rule, path, "dtype"), at, "EK496")
    yield from dtype_findings(listed_names(rule, path, "argument_dtype"), at, "EK496")
    conditions = listed_names(rule, path, "where")
    if rule.match is None:
        yield from condition_findings(conditions, at, CONDITION_NAMES)
        return
    try:
        compile_pattern(
            at((*path, "match"), rule.match),
            {name: at((*path, "vars", name), text) for name, text in rule.vars.items()},
            [at(place, text) for place, text in conditions],
        )
    except ModelError as error:
        yield from error.diagnostics


def _whole_findings(path: YamlPath, whole: WholeOperators, at: TextAt) -> Iterator[Diagnostic]:
    for place, name in listed_names(whole, path, "op"):
        if has_wildcard(name):
            yield wrong(at(place, name), "EK496", "operators that stay whole are named one by one")
        elif not (found := list(operator_findings([(place, name)], at, "EK496"))):
            if not isinstance(OperatorTable().find(name), OpOverload):
                yield wrong(at(place, name), "EK496", f"{name} is not an operator of torch, and is never decomposed")
        else:
            yield from found
    yield from condition_findings(listed_names(whole, path, "where"), at, CONDITION_NAMES)


_KIND = PolicyKind(
    Partitioning,
    DocumentCodes(syntax="EK494", form="EK495"),
    "What a partitioner of exirkit takes, as data",
    _findings,
    place="<partitioning>",
)
# Read from a file (EK494, EK495) and check names (EK496), patterns and conditions (EK210 and following).
load_partitioning, parse_partitioning, check_partitioning = _KIND.load, _KIND.parse, _KIND.check
partitioning_schema, partitioning_schema_text = _KIND.schema, _KIND.schema_text
