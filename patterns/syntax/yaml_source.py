"""YAML with places: the plain data of a file, and where every value stands, for complaints with line and column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from .source_text import SourceText

YamlPath = tuple[str | int, ...]

LARGEST_CHARACTERS = 8 << 20
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


class YamlError(Exception):
    """A text is not the YAML that is read here.

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
        file: Name for complaints.
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
        """Return the text at a path, or of the nearest place above it, with its place."""
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
        """Return the key that leads to a path, with its place."""
        node = self.keys.get(path)
        if node is None:
            return self.text(path)
        return SourceText(
            str(node.value), self.file, node.start_mark.line + 1, node.start_mark.column + 1, False, self.lines
        )


def read_yaml(text: str, file: str) -> YamlSource:
    """Read one document; nothing in it is run, and its size is bounded.

    Raises:
        YamlError: It is no YAML, nests too deeply, repeats a key, or uses anchors.
    """
    if len(text) > LARGEST_CHARACTERS:
        raise YamlError("the file has more than 8 Mi characters")
    root = _composed(text)
    source = YamlSource(None, file, tuple(text.splitlines()))
    if root is None:
        raise YamlError("the file is empty")
    source.data = _plain(root, (), source, [0])
    return source


def _composed(text: str) -> yaml.Node | None:
    """Return the syntax of a text, by the fast parser if it is there; complaints are always those of the slow one."""
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
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError, OverflowError):
        raise YamlError(f"{node.value[:40]!r} is not a value that is read here", *_at(node.start_mark)) from None


def _mapping(node: yaml.MappingNode, path: YamlPath, source: YamlSource, count: list[int]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlError("a key must be a plain text", *_at(key_node.start_mark))
        # A key is a text whatever YAML takes it for: `on`, `y`, `1` and `null` are names of variables.
        key = str(key_node.value)
        if key in made:
            raise YamlError(f"the key {key!r} stands here a second time", *_at(key_node.start_mark))
        inner = (*path, key)
        source.keys[inner] = key_node
        made[key] = _plain(value_node, inner, source, count)
    return made


def _at(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def plain_mapping(value: Any) -> Mapping[str, Any]:
    """Return a value as a mapping; anything else is empty."""
    return value if isinstance(value, Mapping) else {}
