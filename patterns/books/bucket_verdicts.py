"""What is known of the differences between passes of the official package and rules: a verdict for each bucket."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from exirkit.ir import DocumentCodes, read_document
from exirkit.patterns.books.shipped import bucket_verdicts_text

Judgement = Literal["theirs", "ours", "narrower", "wider", "equivalent"]
"""The pass is wrong; the rules are, or lack something that they should do; they do less, or more, on purpose; or both
are right, and make other calls of the same work."""

_CODES = DocumentCodes(syntax="EK201", form="EK202")
_FILE = "buckets.yaml"
_LARGEST_CHARACTERS = 1 << 20


class BucketVerdict(BaseModel):
    """What is known of one bucket.

    Attributes:
        bucket: Its name, as campaigns count it, before what is added to it when its programs are reduced; `*` stands
            for anything.
        verdict: Which side is wrong, or why both may differ.
        because: Why.
        findings: Scripts in `docs/upstream/passes` that show it, without ending; for what the pass gets wrong.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bucket: Annotated[str, Field(min_length=1)]
    verdict: Judgement
    because: Annotated[str, Field(min_length=1)]
    findings: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _shown(self) -> BucketVerdict:
        if self.findings and self.verdict != "theirs":
            raise ValueError(f"{self.bucket}: scripts show what a pass gets wrong")
        return self


class _BucketVerdicts(BaseModel):
    """What is known of buckets.

    Attributes:
        verdicts: Version of the form: 1.
        buckets: The first that fits counts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    verdicts: Literal[1]
    buckets: tuple[BucketVerdict, ...]


@cache
def bucket_verdicts() -> tuple[BucketVerdict, ...]:
    """Return what is known of buckets; of several that fit one, the first counts.

    Raises:
        ModelError: EK201, EK202, the file that comes with exirkit is damaged.
    """
    text = bucket_verdicts_text()
    return read_document(text, _BucketVerdicts, _CODES, file=_FILE, largest=_LARGEST_CHARACTERS).model.buckets


def verdict_on(bucket: str) -> BucketVerdict | None:
    """Return what is known of a bucket; None if it has not been judged."""
    return next((one for one in bucket_verdicts() if fnmatchcase(bucket, one.bucket)), None)
