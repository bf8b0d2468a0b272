"""The names under which policies know nodes: of operators, as rule books write them, and of modules."""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, model_validator
from torch.fx import Node

from exirkit.ir import (
    Diagnostic,
    DocumentCodes,
    ModelError,
    SourceText,
    YamlPath,
    did_you_mean,
    document_schema,
    find_out_variant,
    in_file_order,
    or_one,
    read_document,
    read_text,
    schema_text,
    underlying,
    view,
)
from exirkit.patterns import DTYPES, OperatorTable, UnknownNameError, compile_condition, name_of


def has_wildcard(name: str) -> bool:
    """Whether a name stands for many."""
    return any(each in name for each in "*?[")


def full_names(names: Iterable[str]) -> list[str]:
    """Return names of operators with their overloads: `aten.mm` is `aten.mm.default`."""
    table = OperatorTable()
    return [name if has_wildcard(name) else name_of(table.find(name)) for name in names]


def agree(patterns: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of some names is meant by one of some patterns."""
    all_names = list(names)
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in all_names)


def operator_names(node: Node) -> tuple[str, ...]:
    """Return the names of the operator of a call: as rule books write it, and that of the out variant.

    The results of a call have the operator of the call; what is not a call has none.
    """
    while node.target is operator.getitem and isinstance(node.args[0], Node):
        node = node.args[0]
    if node.op != "call_function":
        return ()
    if node.target is view:
        return ("aten.view_copy.default",)
    op = underlying(node.target)
    if not hasattr(op, "_schema"):
        return (str(getattr(node.target, "_name", getattr(node.target, "__name__", node.target))),)
    return _names_behind(op)


@cache
def _names_behind(op: Any) -> tuple[str, ...]:
    packet = getattr(op, "overloadpacket", None)
    if not any(argument.is_out for argument in op._schema.arguments):
        return (name_of(op),)
    if packet is None:
        return (f"{op._schema.name.replace('::', '.')}.default", name_of(op))
    overloads = (getattr(packet, name) for name in packet.overloads())
    functional = [
        one for one in overloads if not any(argument.is_out for argument in one._schema.arguments)
        and not one._schema.is_mutable and find_out_variant(one) is op
    ]  # fmt: skip
    return (*(name_of(one) for one in functional), name_of(op))


TextAt = Callable[[YamlPath, str], SourceText]

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_NBYTES_PATTERN = r"^\d+(\.\d+)? *(B|KiB|MiB|GiB|kB|MB|GB)$"


@dataclass(frozen=True)
class _Schema:
    """Changes the JSON Schema of a type by what may be written besides the values that it holds."""

    change: Callable[[dict[str, Any]], dict[str, Any]]

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self.change(handler(schema))


def _nbytes_of(given: Any) -> Any:
    """Return the bytes that a string like `256 KiB` stands for; anything else is left to pydantic."""
    if isinstance(given, bool):
        raise ValueError(f"{given!r} is not a number of bytes")  # noqa: TRY004 - pydantic reports nothing else
    if not isinstance(given, str):
        return given
    found = re.match(_NBYTES_PATTERN, given)
    if found is None:
        raise ValueError(f"{given!r} is not a number of bytes: an integer, or a string like '256 KiB' or '1.5 MB'")
    unit = found[2]
    whole, _, part = given.removesuffix(unit).strip().partition(".")
    nbytes, rest = divmod(int(whole + part) * _UNITS[unit], 10 ** len(part))
    if rest:
        raise ValueError(f"{given!r} is not a whole number of bytes")
    return nbytes


def _listed(given: Any) -> Any:
    return [given] if isinstance(given, str | dict | BaseModel) else given


ONE_OR_MORE = (BeforeValidator(_listed), _Schema(or_one))
"""Annotations of a tuple for which one element may be written."""

WITH_UNIT = (
    BeforeValidator(_nbytes_of),
    _Schema(lambda number: {"anyOf": [number, {"type": "string", "pattern": _NBYTES_PATTERN}]}),
)
"""Annotations of a number of bytes for which a string such as `256 KiB` may be written."""

Nbytes = Annotated[int, Field(ge=0, le=1 << 50), *WITH_UNIT]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][\w-]*$", max_length=100)]
Glob = Annotated[str, Field(min_length=1, max_length=300)]
Globs = Annotated[tuple[Glob, ...], *ONE_OR_MORE]
Conditions = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=5_000)], ...], *ONE_OR_MORE]


class Strict(BaseModel):
    """A part of the file; a key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NbytesRange(Strict):
    """Sizes of the values that a rule applies to.

    Attributes:
        at_least: Bytes of the smallest one.
        at_most: Bytes of the largest one.
    """

    at_least: Nbytes = 0
    at_most: Nbytes | None = None

    @model_validator(mode="after")
    def _in_order(self) -> NbytesRange:
        if self.at_most is not None and self.at_most < self.at_least:
            raise ValueError(f"no value has at least {self.at_least} bytes and at most {self.at_most}")
        return self

    def admits(self, nbytes: int) -> bool:
        """Whether a size is in the range."""
        return self.at_least <= nbytes and (self.at_most is None or nbytes <= self.at_most)


_Policy = TypeVar("_Policy", bound=BaseModel)


@dataclass(frozen=True)
class PolicyKind(Generic[_Policy]):
    """A kind of policy that is read from YAML or made in Python.

    Attributes:
        model: Its model.
        codes: Codes of what is wrong with the form of a file.
        title: Title of its JSON Schema.
        findings: Yields what else is wrong with a policy, given the text at each path of the file, with its place.
        place: Stands for the file in messages about a policy that was made in Python.
        follows: As for `read_document`.
    """

    model: type[_Policy]
    codes: DocumentCodes
    title: str
    findings: Callable[[_Policy, TextAt], Iterable[Diagnostic]]
    place: str = "<policy>"
    follows: Callable[[Any, Sequence[Any]], bool] | None = None

    def load(self, path: str | Path) -> _Policy:
        """Read a policy from a file.

        Raises:
            ModelError: All that is wrong with it.
            OSError: The file cannot be read.
        """
        return self.parse(read_text(path, self.codes.syntax), str(path))

    def parse(self, text: str, file: str | None = None) -> _Policy:
        """Read a policy from its text.

        Raises:
            ModelError: All that is wrong with it.
        """
        found = read_document(text, self.model, self.codes, file=file or self.place, follows=self.follows)
        self.check(found.model, found.source.text)
        return found.model

    def check(self, policy: _Policy, text_at: TextAt | None = None) -> None:
        """Reject a policy that names what does not exist or contradicts itself.

        Args:
            policy: The policy.
            text_at: The text at a path of the file, with its place; without, the policy was made in Python.

        Raises:
            ModelError: All that is wrong.
        """
        at = text_at or (lambda path, value: SourceText(value, f"{self.place}.{'.'.join(map(str, path))}"))
        findings = [*self.findings(policy, at)]
        if findings:
            raise ModelError(in_file_order(findings, findings[0].location.file or "") if text_at else findings)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema, made from the model, for editors."""
        return document_schema(self.model, self.title)

    def schema_text(self) -> str:
        """Return the JSON Schema as the text of the file that comes with exirkit."""
        return schema_text(self.schema())


def wrong(text: SourceText, code: str, message: str, hint: str | None = None) -> Diagnostic:
    """Return a diagnostic about a whole string."""
    return text.diagnostic(code, message, length=max(1, len(text.value.split("\n")[0])), hint=hint)


def operator_findings(names: Iterable[tuple[YamlPath, str]], at: TextAt, code: str) -> Iterator[Diagnostic]:
    """Yield what is wrong with names of operators, in which `*` stands for any part."""
    table = OperatorTable()
    for path, name in names:
        if has_wildcard(name):
            continue
        try:
            table.find(name)
        except UnknownNameError as error:
            yield wrong(at(path, name), code, error.message, error.hint)


def listed_names(rule: BaseModel, at: YamlPath, key: str) -> list[tuple[YamlPath, str]]:
    """Return the strings that a rule lists under a key, each with its path in the file.

    Where one stands without a list around it, the text of the list is found at that path.
    """
    return [((*at, key, number), name) for number, name in enumerate(getattr(rule, key))]


def dtype_findings(names: Iterable[tuple[YamlPath, str]], at: TextAt, code: str) -> Iterator[Diagnostic]:
    """Yield what is wrong with names of dtypes."""
    for path, name in names:
        if name not in DTYPES:
            yield wrong(at(path, name), code, f"there is no dtype {name!r}", did_you_mean(name, DTYPES))


def condition_findings(
    written: Iterable[tuple[YamlPath, str]], at: TextAt, names: Sequence[str]
) -> Iterator[Diagnostic]:
    """Yield what is wrong with conditions over some names."""
    for path, expression in written:
        try:
            compile_condition(at(path, expression), names)
        except ModelError as error:
            yield from error.diagnostics
