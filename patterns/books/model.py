"""Rule books as values: their models, JSON Schema, and YAML that reads back as an equal book."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Annotated, Any, Literal

import torch
import yaml
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator
from torch.fx import Node

from exirkit.ir import document_schema, or_one, schema_text
from exirkit.patterns.syntax.expressions import compare, truth

# What a rule states that every application makes smaller, counted when it has been applied

LEXICOGRAPHIC = r"^lex\[\s*(node_count|weight)(\s*,\s*(node_count|weight))*\s*\]$"
"""How an order by several measures is written: the first that changes decides."""

BROKEN = "it declares that "


def broken_measure(measure: Any, matched: Sequence[Node], made: Sequence[Node]) -> str | None:
    """Return how an application breaks the word of its rule that something decreases, or None.

    Args:
        measure: As the rule declares it: `node_count`, the number of calls; `weight`, the number of elements that they
            compute; or an order by both. Others say nothing about one application.
        matched: Calls that the pattern matched.
        made: Calls that took their place.
    """
    names = re.findall(r"node_count|weight", measure) if isinstance(measure, str) else []
    gone = [node for node in matched if node._erased]
    for name in names:
        before, after = (sum(map(_MEASURES[name], nodes)) for nodes in (gone, made))
        smaller = truth(compare("<", after, before))
        if smaller is True or (smaller is not False and name == "weight"):
            return None
        if truth(compare("==", after, before)) is not True or name == names[-1]:
            return f"{BROKEN}{name} decreases, but it goes from {before} to {after}"
    return None


def _elements(node: Node) -> Any:
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else [value]
    return sum(one.numel() for one in values if isinstance(one, torch.Tensor))


_MEASURES: dict[str, Any] = {"node_count": lambda node: 1, "weight": _elements}

Kind = Literal[
    "fuse", "decompose", "simplify", "canonicalize", "legalize", "layout", "dtype", "quant", "remove", "composite"
]
Dialect = Annotated[str, Field(pattern=r"^(aten|edge|any|same|backend:[A-Za-z_]\w*)$")]
ProgramText = Annotated[str, Field(min_length=1, max_length=50_000)]
ExpressionText = Annotated[str, Field(min_length=1, max_length=5_000)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$", max_length=100)]
RuleId = Annotated[str, Field(pattern=r"^[A-Za-z_][^\x00-\x1f]*$", max_length=200)]
OperatorName = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*\.[A-Za-z_]\w*(\.[A-Za-z_]\w*)?$")]


TableValue = bool | int | float | str | None
TableRows = Annotated[dict[str, TableValue | tuple[TableValue, ...]], Field(min_length=1, max_length=500)]


class Strict(BaseModel):
    """Base of everything that people write: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Guard(Strict):
    """One condition under which a match counts.

    Attributes:
        expr: Boolean expression over the names of the match.
        kind: `sound`: without it results would be wrong; `profit`: without it they would be slower; `target`: what the
            target has.
        why: One sentence for the documentation.
        assume: Where the sizes do not decide, accept, and assert it at run time.
    """

    expr: ExpressionText
    kind: Literal["sound", "profit", "target"] = "sound"
    why: str | None = None
    assume: bool = False


class DialectScope(Strict):
    """Where the operators of a rule live."""

    source: Dialect = Field(default="any", alias="from")
    target: Dialect = Field(default="same", alias="to")

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Case(Strict):
    """One of several replacements; the first whose condition holds is taken."""

    when: ExpressionText | None = None
    let: ProgramText | None = None
    replace: ProgramText


class MetadataPolicy(Strict):
    """What new nodes inherit.

    Attributes:
        anchor: Name whose stack trace they take; the first root otherwise.
        debug: `union`: they answer for every matched node; `root`: for the roots only.
        module_stack: The module that all matched nodes come from.
        tags: Entries of `node.meta` to set.
    """

    anchor: Name | None = None
    debug: Literal["union", "root"] = "union"
    module_stack: Literal["common_prefix"] = "common_prefix"
    tags: dict[Name, str | int | float | bool] = {}


class Equivalence(Strict):
    """The numeric contract: what `equal` means for pattern and replacement.

    Attributes:
        mode: `exact`: bit for bit, but NaN is NaN; `approx`: within tolerance; `quant`: within `lsb`.
        rtol: Relative tolerance, for all dtypes or by dtype name.
        atol: Absolute tolerance, likewise.
        lsb: Steps of an integer result that may differ.
        lhs_nan: `any`: where the pattern gives NaN the replacement may give anything.
        strides: The layout of results must agree too.
        values: Which values the trials use; `special` includes infinities, NaN, signed zero and limits.
        rng: `any`: the pattern draws random numbers, and only dtype and shape are compared.
        why: Reason for a tolerance, a NaN that is given up, or values that are left out.
    """

    mode: Literal["exact", "approx", "quant"] | None = None
    rtol: float | dict[str, float] | None = None
    atol: float | dict[str, float] | None = None
    lsb: int | None = Field(default=None, ge=0, le=1 << 20)
    lhs_nan: Literal["any"] | None = None
    strides: bool = False
    values: Literal["normal", "special", "boundary"] | None = None
    rng: Literal["any"] | None = None
    why: str | None = None

    @property
    def is_exact(self) -> bool:
        """Whether results must be equal bit for bit."""
        if self.mode is not None:
            return self.mode == "exact"
        return self.rtol is None and self.atol is None and self.lsb is None


class Skip(Strict):
    """A near miss that is known not to matter, and why."""

    what: str
    why: str = Field(min_length=5)


class Example(Strict):
    """Values that must be among the trials, by name of the variable: sizes, numbers, dtypes."""

    symbols: dict[Name, int] = {}
    values: dict[Name, Any] = {}
    fires: bool = True


class Verification(Strict):
    """How a rule is tried."""

    trials: int | None = Field(default=None, ge=1, le=100_000)
    values: Literal["normal", "special", "boundary"] | None = None
    dims: tuple[int, ...] | None = None
    skip: tuple[Skip, ...] = ()
    examples: tuple[Example, ...] = ()
    tier: int | None = Field(default=None, ge=0, le=6)


class Bound(Strict):
    """A rule without a measure that decreases may be applied this often to its own results."""

    bound: int = Field(ge=1, le=1_000_000)


Measure = Literal["node_count", "weight", "once", "none"] | Annotated[str, Field(pattern=LEXICOGRAPHIC)] | Bound


class AttributeDefinition(BaseModel):
    """Metadata of calls that has a meaning; every further key is a field, with its type.

    Attributes:
        key: Entry of `node.meta` that holds it.
        means: Expression over `result`, which is what the operator computes, and the fields: the value of the call.
            Without it the attribute changes no value, and rules that use it are opaque there.
        doc: What it is for.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Annotated[str, Field(min_length=1, max_length=500)]]

    key: Annotated[str, Field(min_length=1, max_length=200)]
    means: ExpressionText | None = None
    doc: str | None = None

    @property
    def fields(self) -> dict[str, str]:
        """Types of the fields, in their order."""
        return dict(self.__pydantic_extra__ or {})


Carried = dict[Name, Literal["first", "last", "none"]]
"""What becomes of an attribute of matched calls that the pattern does not name."""


class Rule(Strict):
    """One rewrite.

    Attributes:
        id: Stable name; errors, journals and statistics use it.
        doc: What the rule does; it is in the pages that `exirkit rule docs` writes.
        tags: Words by which `sets` choose rules.
        owner: Who answers for the rule.
        since: Version in which it came.
        links: Where to read more.
        kind: What the rule is for, such as `fuse`, `decompose` or `simplify`; by it `sets` choose rules.
        dialect: Dialects in which the pattern is looked for and the replacement is valid.
        meta: Which node gives the new ones their source line, and how metadata are united.
        group: Rules of one group, by which they are named together.
        phase: Rules of a lower phase go first.
        recursive: Whether the rule may be applied to its own results.
        equiv: What equal means for trials: exact, or within tolerances.
        verify: How trials are made: their number, values, sizes, examples, and what to skip.
        vars: Types of the variables: guard, generator and symbol table at once.
        match: Pattern: a program that ends in `return`.
        unless: Patterns over the same names, none of which may match.
        where: Conditions; a plain text is a guard of kind `sound`.
        let: Numbers and tensors computed once per match, from constants.
        replace: Program whose results take the place of the roots; or a list of cases.
        uses: Program that computes, from what replaces a value of the program and is called `new`, what the uses of the
            old one get.
        shared: `all`: a stored tensor that several calls use, or that shares memory with another one, is replaced as
            well, for all of them.
        graphs: Where a stored tensor is replaced: in the graph of the program, or in bodies of control flow, which are
            handed it; there, calls replace it.
        keep: Matched nodes inside the pattern that may go on being used by others, and be computed twice; and what
            becomes of attributes of matched calls: `{act: first}`, `last` or `none`.
        gen: What trials keep to besides `vars`; it must follow from the operators themselves, since no match checks it.
        measure: What makes rewriting with this rule end: `node_count` or `weight` (elements computed) get smaller with
            every application, or `lex[...]` of them; `once`: it is not applied to its own results; `none`.
        choose: `always`: every match is rewritten; `cost`: where the target description says that it gains, and then
            the rewrite that gains most.
        tune: Numbers that `let` and `replace` may use and that change nothing but cost, with the values to choose from:
            the first one is fastest, and a later one is taken where those before it need more memory than there is.
        priority: Among rules that match at one node the highest goes first.
        opaque: Registered predicates and builders that the rule uses are beyond static analysis; said for the reader.
        varying: Sizes of `vars` that may vary at run time: the rule must apply then, and is tried on programs in which
            they do.
        quantized: Operands, and `result`, with how they are quantized in a variant of the rule that is derived: `any`,
            `per_tensor`, `per_channel(0 -> 1)`.
    """

    id: RuleId
    doc: str | None = None
    tags: tuple[str, ...] = ()
    owner: str | None = None
    since: str | None = None
    links: tuple[str, ...] = ()
    kind: Kind | None = None
    dialect: DialectScope = DialectScope()
    vars: dict[Name, str] = {}
    match: ProgramText
    unless: tuple[ProgramText, ...] = ()
    where: tuple[Guard, ...] = ()
    let: ProgramText | None = None
    replace: ProgramText | tuple[Case, ...]
    uses: ProgramText | None = None
    shared: Literal["all"] | None = None
    graphs: Literal["program", "bodies"] = "program"
    keep: tuple[Name | Carried, ...] = ()
    meta: MetadataPolicy = MetadataPolicy()
    gen: ExpressionText | None = None
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)
    group: str | None = None
    phase: int = 0
    measure: Measure | None = None
    choose: Literal["always", "cost"] = "always"
    tune: dict[Name, Annotated[tuple[int, ...], Field(min_length=1, max_length=20)]] = {}
    recursive: bool = False
    varying: tuple[Name, ...] = ()
    quantized: dict[Name, Annotated[str, Field(min_length=1, max_length=200)]] = {}
    equiv: Equivalence = Equivalence()
    verify: Verification = Verification()

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, given: Any) -> Any:
        """Accept the short forms: a guard as plain text, one pattern instead of a list, a dialect as one word.

        Cases may stand under `replace`, under `cases` in it, or under `cases` instead of it.
        """
        if not isinstance(given, dict):
            return given
        given = dict(given)
        for key in ("where", "unless", "keep", "tags", "varying"):
            if isinstance(given.get(key), str | dict):
                given[key] = [given[key]]
        if isinstance(given.get("where"), list | tuple):
            given["where"] = [{"expr": one} if isinstance(one, str) else one for one in given["where"]]
        if "cases" in given and "replace" not in given:
            given["replace"] = given.pop("cases")
        if isinstance(given.get("replace"), dict):
            cases = given["replace"]
            given["replace"] = cases["cases"] if cases.keys() == {"cases"} else [cases]
        if isinstance(given.get("replace"), list | tuple):
            given["replace"] = [{"replace": one} if isinstance(one, str) else one for one in given["replace"]]
        if isinstance(given.get("dialect"), str):
            given["dialect"] = {"from": given["dialect"]}
        if isinstance(given.get("vars"), dict):
            given["vars"] = {name: "bool" if text is bool else text for name, text in given["vars"].items()}
        return given

    _origin: str | None = PrivateAttr(default=None)

    @property
    def origin(self) -> str:
        """Id of the rule of the book that it was made of, or its own."""
        return self._origin or self.id

    def with_origin(self, origin: str) -> Rule:
        """Return the rule as one that was made of another rule of its book."""
        made = self.model_copy()
        made._origin = origin
        return made

    @property
    def family(self) -> str:
        """The kind, or what the id says of it: its first word."""
        return self.kind or self.id.partition(".")[0]

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of matched calls that may stay."""
        return tuple(one for one in self.keep if isinstance(one, str))

    @property
    def carried(self) -> dict[str, Literal["first", "last", "none"]]:
        """What becomes of attributes of matched calls, by attribute."""
        return {name: which for one in self.keep if isinstance(one, dict) for name, which in one.items()}

    @property
    def cases(self) -> tuple[Case, ...]:
        """The replacements; one that is not a list is one case without a condition."""
        return (Case(replace=self.replace),) if isinstance(self.replace, str) else self.replace


class OperatorDefinition(Strict):
    """An operator of a backend, whose meaning is a program over known operators.

    Attributes:
        schema_: `(Tensor x, int a) -> Tensor`, arguments and results as in torch.
        define: Program over the names of the arguments.
        traits: Facts for the matcher, as in the catalogue of operators.
        cost: Estimate for rules that choose by cost, in nanoseconds per element.
        registered_by: Package that registers the operator with torch when it is imported. The book then does not
            register it, so that the package can be imported later; until then torch does not know the operator.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_: str = Field(alias="schema", min_length=3, max_length=2_000)
    define: ProgramText
    doc: str | None = None
    traits: dict[str, Any] = {}
    out_variant: bool = True
    cost: float | None = None
    registered_by: str | None = None


class RuleSet(Strict):
    """A selection of rules and the way to apply them.

    Attributes:
        rules: Ids, or prefixes that end in `*`; all rules of the book when absent.
        exclude: Ids or prefixes to leave out.
        strategy: `fixpoint`: until nothing matches; `sweep`: each node once.
        bound: Most applications per node of the program before rewriting is taken for endless.
        requires: Invariants that must hold before.
        ensures: Invariants that hold afterwards.
    """

    rules: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    strategy: Literal["fixpoint", "sweep"] = "fixpoint"
    bound: int = Field(default=100, ge=1)
    requires: tuple[str, ...] = ()
    ensures: tuple[str, ...] = ()


class RuleBook(Strict):
    """A file of rules.

    Attributes:
        rulebook: Version of the language: 1.
        namespace: Prefix under which the rules are known elsewhere.
        imports: Other books whose operators, types and macros are used here.
        libraries: Python modules that register operators; they are imported before names are looked up.
        types: Names for types of variables.
        macros: Named pattern expressions, `addc(t, c)` to its text.
        tables: From operators, dtypes, numbers or strings to such, or to lists of them; rules range over them.
        ops: Operators with definitions.
        attributes: Metadata of calls with a meaning, by name.
        sets: Named selections of rules.
    """

    rulebook: Literal[1]
    namespace: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.-]*$")] = "local"
    doc: str | None = None
    imports: tuple[str, ...] = ()
    libraries: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", max_length=200)], ...] = ()
    types: dict[Name, str] = {}
    macros: dict[str, ExpressionText] = {}
    tables: dict[Name, TableRows] = {}
    traits: dict[str, dict[str, Any]] = {}
    ops: dict[OperatorName, OperatorDefinition] = {}
    attributes: dict[Name, AttributeDefinition] = {}
    rules: tuple[Rule, ...] = ()
    sets: dict[Name, RuleSet] = {}


# The JSON Schema of rule books, with which editors complete and check them


SCHEMA_FILE = "rulebook.schema.json"


def rulebook_schema() -> dict[str, Any]:
    """Return the JSON Schema of rule books.

    It knows what the models accept besides their fields: a guard that is a string, one pattern instead of a list, a
    dialect that is one word.
    """
    schema = document_schema(RuleBook, "A book of rules for exirkit")
    definitions = schema["$defs"]
    for entry in (schema, *definitions.values()):
        for each in entry["properties"].values():
            if "patternProperties" in each:
                each["additionalProperties"] = False
    rule = definitions["Rule"]["properties"]
    for key in ("unless", "keep", "tags"):
        rule[key] = or_one(rule[key])
    guard = {"anyOf": [{"type": "string", "minLength": 1}, rule["where"]["items"]]}
    rule["where"] = or_one({**rule["where"], "items": guard})
    one_word = definitions["DialectScope"]["properties"]["from"]
    rule["dialect"] = {
        **{key: value for key, value in rule["dialect"].items() if key != "$ref"},
        "anyOf": [{"type": "string", "pattern": one_word["pattern"]}, {"$ref": "#/$defs/DialectScope"}],
    }
    return schema


def rulebook_schema_text() -> str:
    """Return the JSON Schema of rule books as the text of the file that comes with exirkit."""
    return files("exirkit.patterns").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


def made_text() -> str:
    """Return the text that the file must have."""
    return schema_text(rulebook_schema())


# From a book to YAML that reads back as an equal book


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value.strip("\n") or value.endswith("\n") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def write_book(book: RuleBook) -> str:
    """Return a book as YAML; what has its default is left out."""
    data = book.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.dump(_ordered({"rulebook": 1, **data}), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=116)


def _ordered(data: dict[str, Any]) -> dict[str, Any]:
    rules = data.pop("rules", None)
    return data if rules is None else {**data, "rules": rules}
