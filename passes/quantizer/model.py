"""A quantizer as a value, read from YAML or made in Python, and its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator

from exirkit.ir import Diagnostic, DocumentCodes, ModelError, SourceText, UsageError, YamlPath, choices_hint
from exirkit.passes.config.policies import (
    ONE_OR_MORE,
    Conditions,
    Globs,
    Name,
    PolicyKind,
    Strict,
    TextAt,
    dtype_findings,
    listed_names,
    operator_findings,
    wrong,
)
from exirkit.patterns import DTYPES, StandalonePattern, compile_pattern

RuleName = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=1, max_length=20_000)]
When = Annotated[str, Field(pattern=r"^(not )?[A-Za-z_][\w-]*$", max_length=110)]
Names = Annotated[tuple[Name, ...], *ONE_OR_MORE]
VariableType = Annotated[str, Field(min_length=1, max_length=5_000)]

RESULT = "result"
"""What the value of a pattern's root is called in `annotate`, `share` and `join`."""

_INTEGERS = {"i8": torch.int8, "u8": torch.uint8, "i16": torch.int16, "u16": torch.uint16, "i32": torch.int32}


class QuantizedAs(Strict):
    """One way to quantize a value.

    Parameters are observed while samples run through the model, unless they are given (`scale`), computed in each call
    (`dynamic`) or follow from those of other values (`derived`).

    Attributes:
        when: The setting with which this way is taken: `per_channel`, or `not dynamic`. Always when absent.
        dtype: Type of the integers: `i8`, `u8`, `i16`, `u16` or `i32`.
        limits: Smallest and largest integer; those of the dtype when absent.
        symmetric: Whether the zero point is in the middle of the limits.
        axis: Dim with a scale of its own for each index; one scale for the tensor when absent.
        observer: How a range is estimated: extremes of all samples (`min_max`), a moving average of the extremes
            (`moving_average`), or the range that loses least (`histogram`). `min_max` when absent.
        eps: Smallest scale that an observer gives.
        dynamic: Whether scale and zero point are computed in each call.
        scale: Of a value whose parameters are known.
        zero_point: Of a value whose parameters are known.
        derived: Names of two values; the scale is the product of theirs, and the zero point is 0, as biases need it.
    """

    when: When | None = None
    dtype: Name
    limits: tuple[int, int] | None = None
    symmetric: bool = False
    axis: Annotated[int, Field(ge=0, le=63)] | None = None
    observer: Literal["min_max", "moving_average", "histogram"] | None = None
    eps: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    dynamic: bool = False
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    zero_point: int | None = None
    derived: tuple[Name, Name] | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> QuantizedAs:
        given = [key for key in ("dynamic", "scale", "derived") if getattr(self, key)]
        if len(given) > 1:
            raise ValueError(f"parameters come from {given[0]!r} or from {given[1]!r}, not from both")
        if (self.scale is None) != (self.zero_point is None):
            raise ValueError("`scale` and `zero_point` belong together")
        if given and (self.observer or (self.eps and not self.dynamic)):
            raise ValueError(f"nothing is observed where parameters come from {given[0]!r}")
        if self.axis is not None and (self.scale is not None or self.observer == "histogram"):
            raise ValueError("a scale for each index of `axis` is observed by `min_max` or `moving_average`")
        return self

    @property
    def torch_dtype(self) -> torch.dtype:
        """The type of the integers."""
        return _INTEGERS[self.dtype]

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest integer."""
        limits = torch.iinfo(self.torch_dtype)
        return self.limits or (limits.min, limits.max)

    def describe(self) -> str:
        """Return the way in a few words."""
        low, high = self.range
        parts = [self.dtype, f"{low}..{high}", "symmetric" if self.symmetric else "affine"]
        parts += ["per tensor" if self.axis is None else f"per channel of dim {self.axis}"]
        parts += ["dynamic"] if self.dynamic else []
        parts += [f"scale {self.scale:g}, zero point {self.zero_point}"] if self.scale is not None else []
        parts += [f"derived from {' and '.join(self.derived)}"] if self.derived else []
        return ", ".join(parts)


Choices = Annotated[tuple[QuantizedAs, ...], *ONE_OR_MORE]


class ModuleSelector(Strict):
    """Calls that come from certain modules. One that means no module of the model is an error.

    Attributes:
        module: Paths of modules: `encoder.layers.*`.
        type: Classes of modules: `Linear`, `torch.nn.modules.rnn.*`.
        own: Whether only calls that the module makes itself are meant, not those of modules inside of it.
    """

    module: Globs = ()
    type: Globs = ()
    own: bool = False


class AnnotatingRule(ModuleSelector):
    """A pattern, and how the values of its matches are quantized.

    Attributes:
        name: What messages call the rule.
        when: The setting with which the rule is used: `per_channel`, or `not dynamic`.
        doc: Why.
        vars: Types of the pattern's variables, with which values have to agree, besides those of the quantizer.
        match: A pattern of the rule language, with the operators of an exported model: `aten.linear.default`.
        where: Conditions over the names of the pattern.
        annotate: Entries of `specs` by the names of variables, where calls of the match read them, and by `result`.
        share: Groups of names whose values have one scale and zero point.
        join: Names of variables that have the scale and zero point of the call that makes them, if that is quantized.
    """

    name: RuleName
    when: When | None = None
    doc: str | None = None
    vars: dict[Name, VariableType] = Field(default_factory=dict)
    match: Text
    where: Conditions = ()
    annotate: dict[Name, Name]
    share: tuple[tuple[Name, ...], ...] = ()
    join: Names = ()


class QuantizerPolicy(Strict):
    """Which values of a model are quantized, and how.

    Attributes:
        quantizer: Version of the form: 1.
        id: What it is called.
        doc: What it is for.
        settings: Choices of the user, with what they are otherwise.
        specs: Ways to quantize by name; of several, the first whose `when` holds, and if none does, the value stays.
        vars: Types of variables that rules use without declaring them.
        numbers: Operators whose numbers become tensors before rules are asked, where they compute floats.
        rules: Asked in their order, each for all calls of the model; a call belongs to the first rule that matches it.
        carry: Operators that only move or choose elements: what they give has the scale and zero point of what they are
            given, if that is quantized and no rule means them.
        leave: Modules whose calls stay as they are.
    """

    quantizer: Literal[1]
    id: RuleName
    doc: str | None = None
    settings: dict[Name, bool] = Field(default_factory=dict)
    specs: dict[Name, Choices]
    vars: dict[Name, VariableType] = Field(default_factory=dict)
    numbers: Globs = ()
    rules: Annotated[tuple[AnnotatingRule, ...], Field(min_length=1, max_length=10_000)]
    carry: Globs = ()
    leave: tuple[ModuleSelector, ...] = ()

    def chosen(self, given: Mapping[str, bool]) -> dict[str, bool]:
        """Return all settings, with what a user has chosen.

        Raises:
            UsageError: EK440, there is no such setting, or a value is not a bool.
        """
        for name, value in given.items():
            if name not in self.settings:
                message = f"quantizer {self.id} has no setting {name!r}"
                raise UsageError(Diagnostic.of("EK440", message, hint=choices_hint(name, self.settings)))
            if not isinstance(value, bool):
                message = f"setting {name!r} of quantizer {self.id} is True or False, got {type(value).__name__}"
                raise UsageError(Diagnostic.of("EK440", message))
        return {**self.settings, **given}


def holds(when: str | None, settings: Mapping[str, bool]) -> bool:
    """Return whether a condition on settings holds."""
    if when is None:
        return True
    return settings[when.removeprefix("not ")] is not when.startswith("not ")


def compiled(policy: QuantizerPolicy, place: int, at: TextAt) -> StandalonePattern:
    """Compile the pattern of a rule.

    Args:
        policy: The quantizer.
        place: Place of the rule in it.
        at: The text at a path of the file, with its place.

    Raises:
        ModelError: EK210 and following, all that is wrong with it.
    """
    rule, path = policy.rules[place], ("rules", place)
    common = {name: at(("vars", name), policy.vars[name]) for name in policy.vars if name in variables_of(policy, rule)}
    own = {name: at((*path, "vars", name), text) for name, text in rule.vars.items()}
    conditions = [at(where, text) for where, text in listed_names(rule, path, "where")]
    return compile_pattern(at((*path, "match"), rule.match), {**common, **own}, conditions)


def variables_of(policy: QuantizerPolicy, rule: AnnotatingRule) -> set[str]:
    """Return the variables of a rule: its own, and those of the quantizer that its pattern names."""
    words = set(re.findall(r"\w+", rule.match))
    return {*rule.vars, *(name for name in policy.vars if name in words)}


def _findings(policy: QuantizerPolicy, at: TextAt) -> Iterator[Diagnostic]:
    for name, choices in policy.specs.items():
        for place, way in enumerate(choices):
            yield from _spec_findings(policy, ("specs", name, place), way, at)
    yield from operator_findings(listed_names(policy, (), "carry"), at, "EK440")
    yield from operator_findings(listed_names(policy, (), "numbers"), at, "EK440")
    seen: set[str] = set()
    for place, rule in enumerate(policy.rules):
        if rule.name in seen:
            yield wrong(at(("rules", place, "name"), rule.name), "EK440", f"two rules have the name {rule.name!r}")
        seen.add(rule.name)
        yield from _rule_findings(policy, place, rule, at)
    for place, selector in enumerate(policy.leave):
        if not selector.module and not selector.type:
            yield wrong(at(("leave", place), ""), "EK440", "a selector names modules or classes of modules")


def _setting_findings(policy: QuantizerPolicy, path: YamlPath, when: str | None, at: TextAt) -> Iterator[Diagnostic]:
    if when is not None and (name := when.removeprefix("not ")) not in policy.settings:
        hint = choices_hint(name, policy.settings)
        yield wrong(at((*path, "when"), when), "EK440", f"there is no setting {name!r}", hint)


def _spec_findings(policy: QuantizerPolicy, path: YamlPath, way: QuantizedAs, at: TextAt) -> Iterator[Diagnostic]:
    yield from _setting_findings(policy, path, way.when, at)
    name = way.dtype
    if name not in _INTEGERS:
        if not (found := list(dtype_findings([((*path, "dtype"), name)], at, "EK440"))):
            message = f"values are quantized to integers, and {DTYPES[name]} is not one of {', '.join(_INTEGERS)}"
            found = [wrong(at((*path, "dtype"), name), "EK440", message)]
        yield from found
        return
    limits, (low, high) = torch.iinfo(way.torch_dtype), way.range
    if not limits.min <= low < high <= limits.max:
        message = f"limits {low} and {high} are not a range of {name}, which holds {limits.min} to {limits.max}"
        yield wrong(at((*path, "limits", 0), str(low)), "EK440", message)
    elif way.zero_point is not None and not low <= way.zero_point <= high:
        message = f"zero point {way.zero_point} is outside of the limits {low} and {high}"
        yield wrong(at((*path, "zero_point"), str(way.zero_point)), "EK440", message)


def _rule_findings(policy: QuantizerPolicy, place: int, rule: AnnotatingRule, at: TextAt) -> Iterator[Diagnostic]:
    path: YamlPath = ("rules", place)
    yield from _setting_findings(policy, path, rule.when, at)
    try:
        compiled(policy, place, at)
    except ModelError as error:
        yield from error.diagnostics
        return
    if not rule.annotate:
        yield wrong(at((*path, "annotate"), ""), "EK440", f"rule {rule.name!r} annotates nothing")
    known = {*variables_of(policy, rule), RESULT}
    for name, spec in rule.annotate.items():
        where = at((*path, "annotate", name), spec)
        if name not in known:
            yield wrong(where, "EK440", f"the pattern has no variable {name!r}", choices_hint(name, known))
        if spec not in policy.specs:
            yield wrong(where, "EK440", f"`specs` has no entry {spec!r}", choices_hint(spec, policy.specs))
        else:
            yield from _derived_findings(policy.specs[spec], spec, rule, where)
    yield from _group_findings(path, rule, at)


def _derived_findings(
    choices: Sequence[QuantizedAs], spec: str, rule: AnnotatingRule, where: SourceText
) -> Iterator[Diagnostic]:
    for name in (name for way in choices for name in way.derived or ()):
        if name not in rule.annotate:
            message = f"spec {spec!r} is derived from {name!r}, which this rule does not annotate"
            yield wrong(where, "EK440", message, choices_hint(name, rule.annotate))


def _group_findings(path: YamlPath, rule: AnnotatingRule, at: TextAt) -> Iterator[Diagnostic]:
    shared = [
        ((*path, "share", number, entry), name)
        for number, group in enumerate(rule.share) for entry, name in enumerate(group)
    ]  # fmt: skip
    for place, name in [*shared, *listed_names(rule, path, "join")]:
        if name not in rule.annotate:
            message = f"{name!r} shares its parameters, but is not annotated"
            yield wrong(at(place, name), "EK440", message, choices_hint(name, rule.annotate))
    for number, group in enumerate(rule.share):
        if not group:
            yield wrong(at((*path, "share", number), ""), "EK440", "a group that shares has names")
        if len({rule.annotate.get(name) for name in group}) > 1:
            message = f"values that share their parameters have different specs: {', '.join(group)}"
            yield wrong(at((*path, "share", number, 0), group[0]), "EK440", message)


_KIND = PolicyKind(
    QuantizerPolicy,
    DocumentCodes(syntax="EK438", form="EK439"),
    "What a quantizer of exirkit annotates, as data",
    _findings,
    place="<quantizer>",
)
parse_quantizer, check_quantizer = _KIND.parse, _KIND.check
quantizer_schema, quantizer_schema_text = _KIND.schema, _KIND.schema_text


def shipped_quantizers() -> list[str]:
    """Return the names of the quantizers that come with exirkit."""
    return sorted(one.name.removesuffix(".yaml") for one in _folder().iterdir() if one.name.endswith(".yaml"))


def load_quantizer(name: str | Path) -> QuantizerPolicy:
    """Read a quantizer.

    Args:
        name: A file, or the name of one that comes with exirkit: `xnnpack`.

    Raises:
        ModelError: EK438 to EK440 and EK210 and following, all that is wrong with it.
        OSError: The file cannot be read.
    """
    if str(name) in shipped_quantizers():
        file = _folder() / f"{name}.yaml"
        return parse_quantizer(file.read_text("utf-8"), str(file))
    return _KIND.load(name)


def quantizer_text(name: str) -> str:
    """Return the text of a quantizer, as `load_quantizer` reads it.

    Args:
        name: A file, or the name of one that comes with exirkit.

    Raises:
        OSError: The file cannot be read.
    """
    if name in shipped_quantizers():
        return str((_folder() / f"{name}.yaml").read_text("utf-8"))
    return Path(name).read_text("utf-8")


def _folder() -> Any:
    return files(__package__) / "quantizers"
