"""Tokens of the text of a type, each with its column, and the error that points at one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

MAX_TEXT = 2000
MAX_NESTING = 30
_MAX_DIGITS = 40

_TOKEN = re.compile(
    r"""(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
      | (?P<string>'[^'\\]*'|"[^"\\]*")
      | (?P<sign>\.\.\.|//|>=|<=|[][(){},|*~+\-%=<>/?:])""",
    re.VERBOSE,
)


class VariableSyntaxError(Exception):
    """The text of a type is wrong.

    Attributes:
        message: What is wrong.
        offset: Characters before the place in the text.
        hint: What may have been meant, or what to do.
        name: The variable, where several are looked at together.
    """

    def __init__(self, message: str, offset: int = 0, hint: str | None = None, name: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint
        self.name = name


@dataclass(frozen=True)
class Token:
    """A piece of text.

    Attributes:
        kind: `number`, `name`, `string`, `sign` or `end`.
        text: As written.
        offset: Characters before it.
    """

    kind: str
    text: str
    offset: int

    @property
    def shown(self) -> str:
        """How an error names it."""
        return "the end" if self.kind == "end" else repr(self.text)


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return a suggestion for a word that is not known."""
    close = difflib.get_close_matches(word, list(dict.fromkeys(known)), n=1, cutoff=cutoff)
    return f"did you mean {close[0]}?" if close else None


class Scanner:
    """Tokens of one text, looked at one after another."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.at = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    def peek(self, ahead: int = 1) -> Token:
        """Return a later token."""
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Return the next token and go on."""
        token = self.token
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def accept(self, *texts: str) -> Token | None:
        """Take the next token if it is one of these words or signs."""
        token = self.token
        return self.take() if token.kind in ("name", "sign") and token.text in texts else None

    def expect(self, text: str, where: str) -> Token:
        """Take a sign that must stand here.

        Raises:
            VariableSyntaxError: Something else does.
        """
        token = self.accept(text)
        if token is None:
            self.fail(f"{text!r} is expected {where}, not {self.token.shown}")
        return token

    def name(self, what: str) -> Token:
        """Take a name.

        Raises:
            VariableSyntaxError: Something else stands here.
        """
        if self.token.kind != "name" or "." in self.token.text:
            self.fail(f"{what} is expected, not {self.token.shown}")
        return self.take()

    def fail(self, message: str, at: Token | None = None, hint: str | None = None) -> NoReturn:
        """Raise an error at a token, the next one if none is given.

        Raises:
            VariableSyntaxError: Always.
        """
        raise VariableSyntaxError(message, (at or self.token).offset, hint)


def _tokens(text: str) -> list[Token]:
    if len(text) > MAX_TEXT:
        raise VariableSyntaxError(f"a type of more than {MAX_TEXT} characters", MAX_TEXT)
    found: list[Token] = []
    at = nesting = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            what = "a text that does not end" if text[at] in "'\"" else f"{text[at]!r} has no meaning in a type"
            raise VariableSyntaxError(what, at)
        token = Token(match.lastgroup or "", match.group(), at)
        nesting += (token.text in ("[", "(", "{")) - (token.text in ("]", ")", "}"))
        if nesting > MAX_NESTING:
            raise VariableSyntaxError(f"brackets nest deeper than {MAX_NESTING}", at)
        if token.kind == "number" and len(token.text) > _MAX_DIGITS:
            raise VariableSyntaxError(f"a number of more than {_MAX_DIGITS} characters", at)
        found.append(token)
        at = match.end()
    found.append(Token("end", "", len(text.rstrip())))
    return found
