"""Documents in YAML: strings with places, plain data, pydantic models, diagnostics and JSON Schemas.

`read_document(text, Model, codes)` reads what people write (rule books, pipelines, policies, partitioners, targets,
mutants): every diagnostic has file, line, column and a caret, and all of them are reported at once.
"""

from __future__ import annotations

import difflib
import inspect
import json
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from .diagnostics import Diagnostic, Location, ModelError

YamlPath = tuple[str | int, ...]

_LARGEST_CHARACTERS = 8 << 20
_DEEPEST = 30
_MOST_NODES = 500_000
_DEEPEST_SYNTAX = 100
_OPENING = (
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
)
_CLOSING = (yaml.BlockEndToken, yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)
_FAST: Any = getattr(yaml, "CSafeLoader", None)


@dataclass(frozen=True)
class SourceText:
    """A string and its place in a file.

    Attributes:
        value: The string.
        file: Path of the file, if it comes from one.
        line: Line of its first character, counted from 1.
        column: Column of its first character, counted from 1; for a block, of the first character of every line.
        is_block: Whether further lines start at `column` too.
        lines: All lines of the file; diagnostics show the one that they point at.
    """

    value: str
    file: str | None = None
    line: int = 1
    column: int = 1
    is_block: bool = True
    lines: tuple[str, ...] = ()

    def location(self, line: int = 1, offset: int = 0, length: int = 1) -> Location:
        """Return the place of a character.

        Args:
            line: Line inside the text, counted from 1.
            offset: Characters before it on that line.
            length: How many characters are meant.
        """
        at = self.line + line - 1
        column = offset + (self.column if self.is_block or line == 1 else 1)
        own = self.value.splitlines()
        if self.lines:
            text = self.lines[at - 1] if at <= len(self.lines) else None
        else:
            text = own[line - 1] if line <= len(own) else None
            column, at = offset + 1, line
        return Location(file=self.file or "<rule>", line=at, column=column, text=text, span=max(1, length))

    def diagnostic(
        self,
        code: str,
        message: str,
        *,
        line: int = 1,
        offset: int = 0,
        length: int = 1,
        hint: str | None = None,
        expected: str | None = None,
        notes: tuple[str, ...] = (),
    ) -> Diagnostic:
        """Return an error that points at a place in the string."""
        place = self.location(line, offset, length)
        return Diagnostic(code=code, message=message, location=place, hint=hint, expected=expected, notes=notes)


class YamlError(Exception):
    """A string is not YAML, or uses a part of YAML that is not supported here.

    Attributes:
        line: Line, from 1.
        column: Column, from 1.
    """

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


@dataclass
class YamlSource:
    """The content of a YAML file.

    Attributes:
        data: Plain dictionaries, lists and scalars.
        file: Its name in diagnostics.
        lines: Lines of the file.
        places: Node of the syntax by path.
        keys: Node of a key by path.
    """

    data: Any
    file: str
    lines: tuple[str, ...]
    places: dict[YamlPath, yaml.Node] = field(default_factory=dict)
    keys: dict[YamlPath, yaml.Node] = field(default_factory=dict)

    def text(self, path: YamlPath, value: str | None = None) -> SourceText:
        """Return the string at a path, or at its nearest parent that has a place."""
        node = self.places.get(path)
        while node is None and path:
            path = path[:-1]
            node = self.places.get(path)
        if node is None:
            return SourceText(value or "", self.file, 1, 1, lines=self.lines)
        mark = node.start_mark
        content = value if value is not None else node.value if isinstance(node, yaml.ScalarNode) else ""
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            line = mark.line + 1
            text = self.lines[line] if line < len(self.lines) else ""
            return SourceText(content, self.file, line + 1, len(text) - len(text.lstrip()) + 1, True, self.lines)
        quoted = isinstance(node, yaml.ScalarNode) and node.style in ("'", '"')
        return SourceText(content, self.file, mark.line + 1, mark.column + 1 + quoted, False, self.lines)

    def key(self, path: YamlPath) -> SourceText:
        """Return the last key of a path."""
        node = self.keys.get(path)
        if node is None:
            return self.text(path)
        return SourceText(
            str(node.value), self.file, node.start_mark.line + 1, node.start_mark.column + 1, False, self.lines
        )


def read_yaml(text: str, file: str) -> YamlSource:
    """Parse one YAML document; nothing in it is run, and its size is bounded.

    Raises:
        YamlError: It is not YAML, nests too deeply, repeats a key, or uses anchors.
    """
    if len(text) > _LARGEST_CHARACTERS:
        raise YamlError("the file has more than 8 Mi characters")
    root = _composed(text)
    source = YamlSource(None, file, tuple(text.splitlines()))
    if root is None:
        raise YamlError("the file is empty")
    source.data = _plain(root, (), source, [0])
    return source


def _composed(text: str) -> yaml.Node | None:
    """Parse with libyaml if PyYAML was built with it; errors are always those of the Python parser."""
    # The two disagree about tabs between tokens.
    if _FAST is not None and "\t" not in text:
        try:
            return _scanned_and_composed(text, _FAST)
        except (YamlError, yaml.YAMLError, RecursionError, ValueError):
            pass
    try:
        return _scanned_and_composed(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise YamlError(f"{error.problem or 'not YAML'}", *(_at(mark) if mark else (1, 1))) from None
    except yaml.YAMLError as error:
        raise YamlError(str(error).splitlines()[0]) from None
    except (RecursionError, ValueError) as error:
        raise YamlError(f"this cannot be read: {type(error).__name__}") from None


def _scanned_and_composed(text: str, loader: Any) -> yaml.Node | None:
    depth = 0
    for token in yaml.scan(text, Loader=loader):
        # Anchors can make a small file a huge value; no rule needs them.
        if isinstance(token, yaml.AliasToken | yaml.AnchorToken):
            raise YamlError("anchors and aliases are not read here", *_at(token.start_mark))
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        # Both parsers call themselves for every level, and the fast one does not notice when the stack ends.
        if depth > _DEEPEST_SYNTAX:
            raise YamlError("the file nests too deeply or is too large", *_at(token.start_mark))
    node: yaml.Node | None = yaml.compose(text, Loader=loader)
    return node


def _plain(node: yaml.Node, path: YamlPath, source: YamlSource, count: list[int]) -> Any:
    count[0] += 1
    if len(path) > _DEEPEST or count[0] > _MOST_NODES:
        raise YamlError("the file nests too deeply or is too large", *_at(node.start_mark))
    source.places[path] = node
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, source, count)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, index), source, count) for index, item in enumerate(node.value)]
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError, OverflowError):
        raise YamlError(f"{node.value[:40]!r} is not a value that is read here", *_at(node.start_mark)) from None


def _mapping(node: yaml.MappingNode, path: YamlPath, source: YamlSource, count: list[int]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlError("a key must be a string", *_at(key_node.start_mark))
        # A key is a string whatever YAML takes it for: `on`, `y`, `1` and `null` are names of variables.
        key = str(key_node.value)
        if key in made:
            raise YamlError(f"duplicate key {key!r}", *_at(key_node.start_mark))
        inner = (*path, key)
        source.keys[inner] = key_node
        made[key] = _plain(value_node, inner, source, count)
    return made


def _at(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True)
class DocumentCodes:
    """Codes of the diagnostics of one kind of document.

    Attributes:
        syntax: The text is not YAML.
        form: The YAML does not fit the model.
    """

    syntax: str
    form: str


@dataclass(frozen=True)
class Document(Generic[_Model]):
    """What was read.

    Attributes:
        model: The validated content.
        source: The YAML with its places.
    """

    model: _Model
    source: YamlSource


def read_document(
    text: str,
    model: type[_Model],
    codes: DocumentCodes,
    *,
    file: str = "<document>",
    largest: int = 1 << 20,
    follows: Callable[[Any, Sequence[Any]], bool] | None = None,
) -> Document[_Model]:
    """Read a document of one kind.

    Args:
        text: Its text.
        model: Pydantic model of its content.
        codes: Codes of the diagnostics.
        file: Its name in diagnostics.
        largest: The most characters that it may have.
        follows: Whether an error of pydantic only follows from the others, which it is given too; those are dropped, as
            are lists that are too short only because their items are wrong.

    Raises:
        ModelError: All that is wrong with its form, in the order of the file.
    """
    source = read_source(text, codes.syntax, file=file, largest=largest)
    return Document(validated(model, source.data, source, codes.form, follows=follows), source)


def read_text(path: str | Path, code: str) -> str:
    """Return the text of a file.

    Args:
        path: The file.
        code: Code of the diagnostic if it is not UTF-8.

    Raises:
        ModelError: It is not UTF-8.
        OSError: It cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        message = f"not UTF-8: invalid byte at offset {error.start}"
        raise ModelError(Diagnostic(code=code, message=message, location=Location(file=str(path)))) from None


def read_source(text: str, code: str, *, file: str = "<document>", largest: int = 1 << 20) -> YamlSource:
    """Parse YAML whose errors are diagnostics.

    Raises:
        ModelError: It is not YAML, or too large.
    """
    if len(text) > largest:
        message = f"the file has more than {largest >> 20} Mi characters"
        raise ModelError(Diagnostic(code=code, message=message, location=Location(file=file)))
    try:
        return read_yaml(text, file)
    except YamlError as error:
        lines = text.splitlines()
        line = lines[error.line - 1] if error.line <= len(lines) else None
        place = Location(file=file, line=error.line, column=error.column, text=line, span=1)
        raise ModelError(Diagnostic(code=code, message=error.message, location=place)) from None


def validated(
    model: type[_Model],
    data: Any,
    source: YamlSource,
    code: str,
    *,
    base: YamlPath = (),
    follows: Callable[[Any, Sequence[Any]], bool] | None = None,
) -> _Model:
    """Validate the data at a path of a document.

    Args:
        model: Its model.
        data: The data.
        source: The document.
        code: Code of the diagnostics.
        base: Path of the data.
        follows: As in `read_document`.

    Raises:
        ModelError: All that is wrong, in the order of the file.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        errors = error.errors()
        known = sorted(keys_of(model))
        kept = [
            one
            for one in errors
            if not (is_empty_for_others(one, errors) or (follows is not None and follows(one, errors)))
        ]
        found = (form_diagnostic(one, source, code, known, base=base) for one in kept)
        raise ModelError(in_file_order(found, source.file)) from None


def in_file_order(found: Iterable[Diagnostic], file: str) -> list[Diagnostic]:
    """Sort diagnostics by their place in a file; those about other files come last."""

    def key(one: Diagnostic) -> tuple[bool, int, int]:
        place = one.location
        return (True, 0, 0) if place.file != file else (False, place.line or 0, place.column or 0)

    return sorted(found, key=key)


def is_empty_for_others(error: Any, errors: Sequence[Any]) -> bool:
    """Whether pydantic reports a list as too short only because its items are wrong, which it reports too."""
    path = error["loc"]
    return error["type"] == "too_short" and any(
        len(each["loc"]) > len(path) and each["loc"][: len(path)] == path for each in errors
    )


def form_diagnostic(
    error: Any, source: YamlSource, code: str, known: Iterable[str], *, base: YamlPath = ()
) -> Diagnostic:
    """Turn one error of pydantic into a diagnostic with a place.

    Args:
        error: One of `ValidationError.errors()`.
        source: The document.
        code: Code of the diagnostic.
        known: Keys that a misspelt key may have meant.
        base: Path of what was validated.
    """
    path = base
    for part in error["loc"]:
        # Pydantic mixes names of models into the path.
        if (*path, part) in source.places or (*path, part) in source.keys:
            path = (*path, part)
    name = str(error["loc"][-1]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        hint = did_you_mean(name, known)
        return source.key(path).diagnostic(code, f"unknown key {name!r}", length=len(name), hint=hint)
    message = error["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if error["type"] == "missing":
        message = f"missing key {name!r}"
    elif error["type"] == "too_short":
        message = f"the list {name!r} is empty"
    text = source.key(path) if "[key]" in error["loc"] else source.text(path)
    return text.diagnostic(code, message, length=max(1, len(text.value.split("\n")[0])))


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the nearest other name, if one is near; `name` itself may be known in another place."""
    close = difflib.get_close_matches(name, sorted({*known} - {name}), n=1)
    return f"did you mean {close[0]}?" if close else None


def models_in(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return a model and all models that its fields are made of, by name."""
    found: dict[str, type[BaseModel]] = {}

    def add(one: Any) -> None:
        if isinstance(one, type) and issubclass(one, BaseModel) and one.__name__ not in found:
            found[one.__name__] = one
            for each in one.model_fields.values():
                add(each.annotation)
        for argument in typing.get_args(one):
            add(argument)

    add(model)
    return found


def keys_of(model: type[BaseModel]) -> Iterator[str]:
    """Yield the keys that a document of a model may have at any depth."""
    for one in models_in(model).values():
        for name, field_info in one.model_fields.items():
            yield field_info.alias or name


# JSON Schema

SCHEMA_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def document_schema(model: type[BaseModel], title: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document; descriptions come from the docstrings of its models."""
    schema = model.model_json_schema(by_alias=True)
    models = models_in(model)
    for name, entry in {**schema.get("$defs", {}), model.__name__: schema}.items():
        if name in models:
            describe_model(entry, models[name])
    return {"$schema": SCHEMA_DRAFT, **schema, "title": title}


def or_one(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list that may be written as one element."""
    rest = {key: value for key, value in entry.items() if key not in ("type", "items")}
    return {**rest, "anyOf": [entry["items"], {"type": "array", "items": entry["items"]}]}


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def describe_model(entry: dict[str, Any], documented: type[BaseModel]) -> None:
    """Add the docstring of a model to its schema: a description of the model, and one of each field."""
    text = inspect.cleandoc(documented.__doc__ or "")
    head, _, attributes = text.partition("\nAttributes:\n")
    entry["description"] = " ".join(head.split())
    told: dict[str, str] = {}
    name = ""
    for line in attributes.splitlines():
        if line.startswith("    ") and not line.startswith("     ") and ":" in line:
            name, _, said = line.strip().partition(":")
            told[name] = said.strip()
        elif line.strip():
            told[name] += f" {line.strip()}"
    for name, field_info in documented.model_fields.items():
        if name in told:
            entry["properties"][field_info.alias or name]["description"] = told[name]
    for each in entry.get("properties", {}).values():
        each.pop("title", None)
