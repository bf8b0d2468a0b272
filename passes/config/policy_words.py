"""Words that policies share, whatever they are about: what their YAML may say, and what it means."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
NBYTES_PATTERN = r"^\d+(\.\d+)? *(B|KiB|MiB|GiB|kB|MB|GB)$"


def nbytes_of(given: Any) -> Any:
    """Return the bytes that a text like `256 KiB` says; anything else is left to whoever checks it."""
    if isinstance(given, bool):
        raise ValueError(f"{given!r} is no number of bytes")  # noqa: TRY004 - pydantic reports nothing else
    if not isinstance(given, str):
        return given
    found = re.match(NBYTES_PATTERN, given)
    if found is None:
        raise ValueError(f"{given!r} is no number of bytes: an integer, or a text like '256 KiB' or '1.5 MB'")
    unit = found[2]
    whole, _, part = given.removesuffix(unit).strip().partition(".")
    scaled = int(whole + part) * _UNITS[unit]
    nbytes, rest = divmod(scaled, 10 ** len(part))
    if rest:
        raise ValueError(f"{given!r} is no whole number of bytes")
    return nbytes


def listed(given: Any) -> Any:
    """Accept one element where a list of them stands."""
    return [given] if isinstance(given, str) else given


Nbytes = Annotated[int, Field(ge=0, le=1 << 50), BeforeValidator(nbytes_of)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][\w-]*$", max_length=100)]
Glob = Annotated[str, Field(min_length=1, max_length=300)]
Globs = Annotated[tuple[Glob, ...], BeforeValidator(listed)]
Conditions = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=5_000)], ...], BeforeValidator(listed)]


class Strict(BaseModel):
    """A part of the file; a key that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NbytesRange(Strict):
    """How large values are that a rule means.

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
