"""Propagations as values: their model and JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from exirkit.ir import document_schema, or_one, schema_text
from exirkit.patterns.books.model import ExpressionText, Name, OperatorDefinition, OperatorName, ProgramText, Strict

SAME = "same"
"""What a row says of tensors that all have one value, whichever the solver chooses for the call."""

Direction = Annotated[str, Field(pattern=r"^[A-Za-z_]\w* -> [A-Za-z_]\w*$")]
Solver = Literal["cut", "forward", "backward", "local"]
DomainName = Literal["ranges", "grids", "constants"]


class TransferRow(Strict):
    """What one kind of call does to the values of tensors; for a call, the first row that fits counts.

    A row is a claim that checks try: with its arguments converted to the values that the row says, the call computes
    its result converted to the value that the row says.

    Attributes:
        ops: Operators.
        family: Families of operators, such as `unary_pointwise`.
        delegates: Calls of delegates with these compile specs, as patterns: `{target_device: "cuda*"}`. Trials cannot
            run them: where values are places, there is nothing to try.
        where: Conditions over the arguments, by the names that the schema has for them, and `result`; calls for which
            one does not hold are left to the next row.
        args: Value of all tensor arguments, or of some by name, the others as they are; `same` for the value that the
            solver chooses for the call.
        result: Value of the results, likewise.
        adapt: New values of other arguments, by name: expressions over the arguments and the constants of the value.
        call: Program that makes the call over converted arguments, where it is not the operator itself.
        cost: What the call costs at each value that `same` can be, over the arguments and `result`; nothing where it is
            left out.
        compare: `elements`, where values are orders in memory: what runs the program lays results out as the row says,
            whatever torch does, and squares compare no layouts.
    """

    # A cost may be written as a number.
    model_config = ConfigDict(coerce_numbers_to_str=True)

    ops: tuple[OperatorName, ...] = ()
    family: tuple[str, ...] = ()
    delegates: dict[str, str] = Field(default_factory=dict)
    where: tuple[ExpressionText, ...] = ()
    args: Name | dict[Name, Name] = Field(default_factory=dict)
    result: Name | None = None
    adapt: dict[Name, ExpressionText] = Field(default_factory=dict)
    call: ProgramText | None = None
    cost: dict[Name, ExpressionText] = Field(default_factory=dict)
    compare: Literal["elements"] | None = None

    @field_validator("ops", "family", "where", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _names_operators(self) -> TransferRow:
        if self.delegates:
            if self.ops or self.family or self.where or self.adapt or self.call or not isinstance(self.args, str):
                raise ValueError("a row of delegates says one value for all arguments, and `result`")
        elif not self.ops and not self.family:
            raise ValueError("a row names operators (`ops`) or families of them (`family`)")
        return self


class Draw(Strict):
    """How trials make calls of an operator whose arguments depend on one another.

    Attributes:
        vars: Types of variables, as in rules.
        call: The call, over the variables.
        gen: Condition that the values satisfy, as in rules.
    """

    vars: dict[Name, str] = Field(min_length=1)
    call: ProgramText
    gen: ExpressionText | None = None


class WrittenAttribute(Strict):
    """What is noted on calls.

    Attributes:
        attribute: Name, as rules declare it under `attributes`.
        key: Entry of `node.meta`; the name where it is left out.
        fields: Its fields: expressions. Those of notes are over `x`, the result of the call, and where one has no value
            nothing is noted; those of a propagation that chooses values are over the constants of the value that was
            chosen, and `value`, its name.
    """

    attribute: Name
    key: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    fields: dict[Name, ExpressionText] = Field(min_length=1)


class PropagationModel(Strict):
    """An analysis of the whole graph: what values tensors can have, and how calls carry them.

    Attributes:
        propagation: Version of the format.
        id: Name of the analysis.
        doc: What it is for.
        values: Names of the values, each with constants that rows may use. The first stands for tensors as they are.
        of: Which tensors have a value other than the first: a condition over `x`.
        neutral: Which tensors are the same under every value: a condition over `x`.
        recorded: Conditions over `x` by value: a tensor of the program for which one holds has that value before.
        compare: What squares compare: `elements`, or `layouts` too, the order of elements in memory; `places` if values
            are where a tensor lies, and conversions change no element.
        stored: Whether converting a stored tensor, which is done once while the program is lowered, is `free`.
        uses: Analysis that infers what `of`, rows and conversions ask of tensors, `range(x)`: its name, or its file.
        ops: Operators that rows may call, with their definitions, as in rule books.
        transfer: What calls do. Calls without a row take and give tensors as they are.
        draw: How trials make calls of an operator, where schema and types do not say enough.
        materialise: Programs over `x` by direction, such as `nchw -> nhwc`.
        cost: Cost of converting `x`, a whole number.
        solve: How values are chosen: `cut` (least cost), `forward`, `backward`, or `local` (conversions around every
            call).
        write: Attribute that tensors get whose value is not the first, for what reads values there.
        based_on: Propagation that says what this one leaves out: its name, or its file. Rows of this one come first.
    """

    propagation: Literal[1]
    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9.-]*$", max_length=100)]
    doc: str | None = None
    values: dict[Name, dict[Name, Any]] = Field(min_length=2)
    of: ExpressionText
    neutral: ExpressionText | None = None
    recorded: dict[Name, ExpressionText] = Field(default_factory=dict)
    compare: Literal["elements", "layouts", "places"] = "elements"
    stored: Literal["free", "paid"] = "free"
    uses: str | None = None
    ops: dict[OperatorName, OperatorDefinition] = Field(default_factory=dict)
    transfer: tuple[TransferRow, ...] = Field(min_length=1)
    draw: dict[OperatorName, Draw] = Field(default_factory=dict)
    materialise: dict[Direction, ProgramText]
    cost: ExpressionText = "numel(x)"
    solve: Solver = "cut"
    write: WrittenAttribute | None = None
    based_on: str | None = None

    @field_validator("values", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, list) and len(set(map(str, value))) < len(value):
            raise ValueError("a value is named twice")
        return {str(name): {} for name in value} if isinstance(value, list) else value


class ClaimRow(Strict):
    """What follows for the results of one kind of call; for a call, the first row that fits counts.

    A row is a claim that checks try: whenever what is known of the arguments is true, what it says is true of the
    results.

    Attributes:
        ops: Operators.
        family: Families of operators, such as `views`.
        where: Conditions over the arguments, by the names that the schema has for them, and `result`; calls for which
            one does not hold are left to the next row.
        result: What is known of the result, over the arguments and `result`; a list for operators with several results,
            of which those that it does not reach are unknown.
        nan: Condition under which a result may be not a number although no argument is; for ranges.
        given: Tensor arguments that decide all elements of the results; all of them where it is left out. For
            constants, whose results are computed.
    """

    ops: tuple[OperatorName, ...] = ()
    family: tuple[str, ...] = ()
    where: tuple[ExpressionText, ...] = ()
    result: tuple[ExpressionText, ...] = ()
    nan: ExpressionText | None = None
    given: tuple[Name, ...] | None = None

    @field_validator("ops", "family", "where", "result", "given", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _names_operators(self) -> ClaimRow:
        if not self.ops and not self.family:
            raise ValueError("a row names operators (`ops`) or families of them (`family`)")
        return self


class InferenceModel(Strict):
    """An analysis of the whole graph: what is known of the elements of every tensor, from the inputs onwards.

    Attributes:
        propagation: Version of the format.
        id: Name of the analysis.
        doc: What it is for.
        values: What can be known: `ranges`, between which numbers the elements lie; `grids`, with which parameters they
            are quantised without a loss; or `constants`, the elements themselves.
        widen: How often what a loop carries may grow before it has no end in the direction in which it grows.
        stored_nbytes: Stored tensors up to this size are read; of larger ones nothing is known.
        ops: Operators that rows may name, with their definitions, as in rule books.
        transfer: What calls make of it. Of results of calls without a row nothing is known but their dtype.
        draw: How trials make calls of an operator, where schema and types do not say enough.
    """

    propagation: Literal[1]
    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9.-]*$", max_length=100)]
    doc: str | None = None
    values: DomainName
    widen: Annotated[int, Field(ge=1, le=100)] = 3
    stored_nbytes: Annotated[int, Field(ge=0)] = 1 << 22
    ops: dict[OperatorName, OperatorDefinition] = Field(default_factory=dict)
    transfer: tuple[ClaimRow, ...] = Field(min_length=1)
    draw: dict[OperatorName, Draw] = Field(default_factory=dict)


class NeedRow(Strict):
    """What one kind of call needs of its arguments, given what is needed of its result; the first row that fits counts.

    A row is a claim that checks try: with its arguments cut to what the row says, the call gives what is needed.

    Attributes:
        ops: Operators.
        family: Families of operators, such as `views`.
        where: Conditions over the arguments, by the names that the schema has for them, `result` and `need`; calls for
            which one does not hold are left to the next row.
        needs: What is needed of tensor arguments, over the same names; arguments that are not named are needed as they
            are.
    """

    ops: tuple[OperatorName, ...] = ()
    family: tuple[str, ...] = ()
    where: tuple[ExpressionText, ...] = ()
    needs: dict[Name, ExpressionText] = Field(min_length=1)

    @field_validator("ops", "family", "where", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _names_operators(self) -> NeedRow:
        if not self.ops and not self.family:
            raise ValueError("a row names operators (`ops`) or families of them (`family`)")
        return self


class ShorterCall(Strict):
    """What a call can be replaced by where not all of its result is needed.

    Attributes:
        ops: Operators with one result.
        where: Conditions over the arguments, `result` and `need`.
        call: Program that gives the same, as far as it is needed.
    """

    ops: tuple[OperatorName, ...] = Field(min_length=1)
    where: tuple[ExpressionText, ...] = ()
    call: ProgramText

    @field_validator("ops", "where", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class DemandModel(Strict):
    """An analysis of the whole graph: what users need of the elements of every tensor, from the results backwards.

    Attributes:
        propagation: Version of the format.
        id: Name of the analysis.
        doc: What it is for.
        demands: What is needed: `ranges`, numbers between limits, where those beyond may as well be the limits.
        widen: How often what a loop needs may grow before it has no end in the direction in which it grows.
        ops: Operators that rows may call, with their definitions, as in rule books.
        transfer: What calls need. Calls without a row need their arguments as they are.
        shorten: What calls can be replaced by.
        draw: How trials make calls of an operator, where schema and types do not say enough.
    """

    propagation: Literal[1]
    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9.-]*$", max_length=100)]
    doc: str | None = None
    demands: Literal["ranges"]
    widen: Annotated[int, Field(ge=1, le=100)] = 3
    ops: dict[OperatorName, OperatorDefinition] = Field(default_factory=dict)
    transfer: tuple[NeedRow, ...] = Field(min_length=1)
    shorten: tuple[ShorterCall, ...] = ()
    draw: dict[OperatorName, Draw] = Field(default_factory=dict)


class NoteModel(Strict):
    """What an analysis knows, noted on the calls of a program as an attribute.

    Attributes:
        propagation: Version of the format.
        id: Name.
        doc: What it is for.
        uses: Analysis that infers what the fields ask: its name, or its file.
        of: Which calls: a condition over `x`.
        write: The attribute.
    """

    propagation: Literal[1]
    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9.-]*$", max_length=100)]
    doc: str | None = None
    uses: str
    of: ExpressionText | None = None
    write: WrittenAttribute


def propagation_schema() -> dict[str, Any]:
    """Return the JSON Schema of propagations: those that choose values, infer, demand, and note what is known."""
    kinds = [_chosen_schema(), _inferred_schema(), _demanded_schema(), document_schema(NoteModel, _TITLE)]
    shared = {name: one for kind in kinds for name, one in kind.pop("$defs").items()}
    head: dict[str, Any] = {key: kinds[0][key] for key in ("$schema", "title") if key in kinds[0]}
    parts = [{key: one for key, one in kind.items() if key not in head} for kind in kinds]
    return {**head, "anyOf": parts, "$defs": dict(sorted(shared.items()))}


_TITLE = "An analysis of the whole graph for exirkit"


def _demanded_schema() -> dict[str, Any]:
    schema = document_schema(DemandModel, _TITLE)
    for kind, keys in (("NeedRow", ("ops", "family", "where")), ("ShorterCall", ("ops", "where"))):
        row = schema["$defs"][kind]["properties"]
        for key in keys:
            row[key] = or_one(row[key])
    return schema


def _inferred_schema() -> dict[str, Any]:
    schema = document_schema(InferenceModel, _TITLE)
    row = schema["$defs"]["ClaimRow"]["properties"]
    for key in ("ops", "family", "where", "result"):
        row[key] = or_one(row[key])
    return schema


def _chosen_schema() -> dict[str, Any]:
    schema = document_schema(PropagationModel, _TITLE)
    row = schema["$defs"]["TransferRow"]["properties"]
    for key in ("ops", "family", "where"):
        row[key] = or_one(row[key])
    # What a base says need not be said again.
    inherited = [key for key in schema["required"] if key in ("values", "of", "materialise")]
    schema["required"] = [key for key in schema["required"] if key not in inherited]
    schema["anyOf"] = [{"required": inherited}, {"required": ["based_on"]}]
    schema["properties"]["values"] = {
        **{key: entry for key, entry in schema["properties"]["values"].items() if key == "description"},
        "anyOf": [
            {"type": "array", "items": {"type": "string"}, "minItems": 2},
            {key: entry for key, entry in schema["properties"]["values"].items() if key != "description"},
        ],
    }
    return schema


def propagation_schema_text() -> str:
    """Return the JSON Schema of propagations as text."""
    return schema_text(propagation_schema())
