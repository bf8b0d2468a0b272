"""Witnesses that are stored beside a book, replayed, and the rules that were accepted with them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from exirkit.ir import Diagnostic, Location, ModelError
from exirkit.patterns.books.loading import LoadedBook
from exirkit.patterns.books.model import Rule
from exirkit.patterns.books.shipped import witnesses_of
from exirkit.patterns.checking.near_misses import NearMiss, NearMisses, Outcome, Part
from exirkit.patterns.checking.trials.rule_trials import RuleTrials, shown
from exirkit.patterns.matching.compiled_rule import CompiledRule

LANGUAGE = 1
"""Version of the rule language, as books have it under `rulebook`."""
TRIALS_REVISION = 1
"""Goes up when a seed comes to mean other values: stored witnesses are then searched again."""
_LARGEST = 1 << 26
# Keys that came later: a rule that does not use them has the text that it had before.
_LATER = ("varying", "uses", "shared", "graphs", "quantized")
# What a rule is called and said about it changes nothing of what it does.
_ABOUT = {"doc", "tags", "owner", "since", "links", "priority", "group", "phase"}


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StoredNearMiss(_Form):
    """What became of one part of a rule.

    Attributes:
        what: `guard`, `literal`, `default`, `repeated` or `loop`.
        text: The part.
        outcome: As in `NearMiss`.
        tried: How many values were tried.
        seed: Makes the values of the witness, tensors too: seed of the check, and number of the trial.
        instead: What replaced the part.
        values: The values, as far as they are short.
        difference: How results differ.
    """

    what: str
    text: str
    outcome: Outcome
    tried: int = Field(ge=0)
    seed: str | None = Field(default=None, pattern=r"^\d{1,18}:\d{1,9}$")
    instead: str | None = None
    values: dict[str, str] = {}
    difference: str | None = None

    @property
    def number(self) -> int:
        """Number of the trial."""
        return int((self.seed or "0:0").partition(":")[2])


class StoredRule(_Form):
    """What is known of one rule.

    Attributes:
        rule: Its id.
        text: Hash of its text, and of all in its book that it may use.
        seed: Of the check.
        samples: Trials in which pattern and replacement agreed.
        near_misses: Its parts.
    """

    rule: str
    text: str
    seed: int = Field(ge=0)
    samples: int = Field(ge=0)
    near_misses: tuple[StoredNearMiss, ...] = ()


class WitnessBook(_Form):
    """A file of witnesses."""

    witnesses: Literal[1]
    language: int
    revision: int
    rules: tuple[StoredRule, ...] = ()

    def of(self, rule_id: str) -> StoredRule | None:
        """Return what is stored of a rule."""
        return next((one for one in self.rules if one.rule == rule_id), None)

    def only(self, rule_id: str) -> WitnessBook:
        """Return what is stored of a rule as a file of its own."""
        return self.model_copy(update={"rules": tuple(one for one in self.rules if one.rule == rule_id)})


def rule_text_hash(rule: CompiledRule, book: LoadedBook) -> str:
    """Return a hash of all that says what a rule means: its text, macros and operators of its book, the language."""
    content: dict[str, Any] = {
        "language": [LANGUAGE, TRIALS_REVISION],
        "rule": rule.rule.model_dump(mode="json", exclude=_ABOUT | _unused(rule.rule)),
        "books": [_context(one) for one in _with_imports(book)],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]


def _unused(rule: Rule) -> set[str]:
    """Return the keys that came later and have the value that they have where they are not written."""
    defaults = type(rule).model_fields
    return {key for key in _LATER if getattr(rule, key) == defaults[key].get_default(call_default_factory=True)}


def _with_imports(book: LoadedBook) -> list[LoadedBook]:
    return [book, *(below for one in book.imported for below in _with_imports(one))]


def _context(book: LoadedBook) -> dict[str, Any]:
    if book.book is None:
        return {}
    # A book that does not use what came later has the hash that it had before.
    later = {key for key in ("attributes", "tables") if getattr(book.book, key)}
    content = book.book.model_dump(mode="json", include={"macros", "ops", "traits", *later})
    for one in content.get("ops", {}).values():
        if one.get("registered_by") is None:
            one.pop("registered_by", None)
    return content


def read_witnesses(path: str | Path) -> WitnessBook:
    """Read a file of witnesses.

    Raises:
        OSError: It cannot be read.
        ModelError: EK274, it is no such file.
    """
    file = Path(path)
    with file.open("rb") as stream:
        content = stream.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise _damaged(str(path), "it is too large")
    return _parsed(content, str(path))


def shipped_witnesses(name: str) -> WitnessBook | None:
    """Return the witnesses of a shipped book; None if there are none."""
    content = witnesses_of(name)
    return None if content is None else _parsed(content, f"{name}.json")


def _parsed(content: bytes, file: str) -> WitnessBook:
    try:
        return WitnessBook.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _damaged(file, f"{where}: {first['msg']}" if where else str(first["msg"])) from None


def _damaged(file: str, why: str) -> ModelError:
    return ModelError(
        Diagnostic(
            code="EK274",
            message=f"this is not a file of witnesses: {why}",
            location=Location(file=file),
            hint="write it again with `exirkit rule check BOOK --witnesses FILE --update`",
        )
    )


def stored_rule(
    rule: CompiledRule, book: LoadedBook, seed: int, samples: int, near_misses: Iterable[NearMiss]
) -> StoredRule:
    """Return what is to be stored of a rule after a check."""
    return StoredRule(
        rule=rule.id,
        text=rule_text_hash(rule, book),
        seed=seed,
        samples=samples,
        near_misses=tuple(_stored(one, seed) for one in near_misses),
    )


def _stored(one: NearMiss, seed: int) -> StoredNearMiss:
    return StoredNearMiss(
        what=one.what,
        text=one.text,
        outcome=one.outcome,
        tried=one.tried,
        seed=None if one.number is None else f"{seed}:{one.number}",
        instead=one.instead,
        values={name: _compact(text) for name, text in (one.witness or {}).items()},
        difference=None if one.problem is None else _rounded(one.problem),
    )


def _rounded(text: str) -> str:
    """Leave out the digits in which machines differ."""
    return re.sub(r"\d+\.\d{4,}(e[+-]?\d+)?", lambda number: f"{float(number.group()):.3g}", text)[:300]


def _compact(text: str) -> str:
    """Leave the elements of larger tensors to the seed."""
    kind, equals, elements = text.partition(" = [")
    return kind if equals and elements.count(",") > 3 else text[:200]


def witness_text(rules: Iterable[StoredRule]) -> str:
    """Return the text of a file of witnesses: one line for each part, in the order of the book."""
    lines = ["{", f'"witnesses": 1, "language": {LANGUAGE}, "revision": {TRIALS_REVISION}, "rules": [']
    blocks = [_block(rule) for rule in rules]
    return "\n".join([*lines, ",\n".join(blocks), "]}", ""])


def _block(rule: StoredRule) -> str:
    head = json.dumps(rule.model_dump(exclude={"near_misses"}), ensure_ascii=False)[:-1]
    inner = [json.dumps(one.model_dump(exclude_defaults=True), ensure_ascii=False) for one in rule.near_misses]
    return head + ', "near_misses": [' + "".join(f"\n  {line}," for line in inner).rstrip(",") + "]}"


# Stored witnesses, tried again: they need no search, and show whether they still are what they were


def replay(rule: CompiledRule, stored: StoredRule) -> tuple[list[NearMiss], list[str]]:
    """Try the stored witnesses of a rule.

    Args:
        rule: The rule.
        stored: What is stored of it.

    Returns:
        What is known of its parts; and what is wrong with the store: parts that it does not have, and witnesses that
        show nothing any more.
    """
    search = NearMisses(RuleTrials(rule, seed=stored.seed))
    wanted = [(part.kind, part.text) for part in search.parts]
    if wanted != [(one.what, one.text) for one in stored.near_misses]:
        missing = [text for kind, text in wanted if (kind, text) not in {(o.what, o.text) for o in stored.near_misses}]
        what = ", ".join(f"`{text}`" for text in missing) or "a part that the rule has"
        return [], [f"{what} is not stored, or in another place"]
    found: list[NearMiss] = []
    wrong: list[str] = []
    for part, one in zip(search.parts, stored.near_misses, strict=True):
        again = _again(search, part, one)
        if again is None:
            wrong.append(f"the stored witness {one.seed} of `{one.text}` shows nothing any more")
            continue
        found.append(again)
    return found, wrong


def _again(search: NearMisses, part: Part, stored: StoredNearMiss) -> NearMiss | None:
    is_structural = part.is_structural or part.users_of is not None
    if stored.outcome != "witness":
        return NearMiss(part.kind, part.text, None, None, stored.tried, is_structural, stored.outcome)
    for attempt in search.attempts(part, stored.number):
        if attempt.problem is not None and attempt.instead == stored.instead:
            witness = shown(search.rule, attempt.names)
            return NearMiss(
                part.kind, part.text, witness, attempt.problem, stored.tried, is_structural, "witness", stored.number,
                stored.instead,
            )  # fmt: skip
    return None
