"""What broke the contract of the loader: one file for each cause, with a text about it."""

from __future__ import annotations

import hashlib
import traceback
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

_OWN_FRAMES: Final = 2
_SHOWN: Final = 6000


class TooLongError(Exception):
    """An execution took longer than it may."""


class TooMuchMemoryError(Exception):
    """An execution took more memory than it may, or the process has grown."""


class ChildDiedError(Exception):
    """A child died, or did nothing any more, while it executed an input."""


class Finding(BaseModel):
    """One finding.

    Attributes:
        bucket: What findings of one cause have in common.
        error: Kind and text of what was raised.
        traceback: All of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bucket: str
    error: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Finding:
        """Return what is kept of an error."""
        text = "".join(traceback.format_exception(error))
        return cls(bucket=_bucket_of(error), error=f"{type(error).__name__}: {error}"[:400], traceback=text[-_SHOWN:])

    def save(self, directory: Path, data: bytes) -> None:
        """Keep the file and this text, if it is the first of its bucket."""
        name = hashlib.sha256(self.bucket.encode()).hexdigest()[:12]
        if not (directory / f"{name}.json").exists():
            (directory / f"{name}.pte").write_bytes(data)
            (directory / f"{name}.json").write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")


def saved_findings(directory: Path) -> dict[Path, Finding]:
    """Return the findings that are kept in a directory, by their program files."""
    return {
        path.with_suffix(".pte"): Finding.model_validate_json(path.read_text(encoding="utf-8"))
        for path in sorted(directory.glob("*.json"))
    }


def _bucket_of(error: BaseException) -> str:
    """Return the kind of the error, and the innermost places where it was; both say nothing of single files."""
    if isinstance(error, TooLongError | TooMuchMemoryError | ChildDiedError):
        return f"{type(error).__name__} {str(error) if isinstance(error, ChildDiedError) else ''}".strip()
    frames = traceback.extract_tb(error.__traceback__)[-_OWN_FRAMES:]
    places = [f"{Path(each.filename).stem}.{each.name}" for each in frames]
    return " ".join((type(error).__name__, *places))
