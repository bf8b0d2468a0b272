"""Results of models kept in a folder, so that a run that was interrupted can go on."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import exirkit.patterns

from .columns import Found
from .measure import Row
from .sites import Site

_PATTERNS = Path(exirkit.patterns.__file__).resolve().parent
# These only say how the page is written.
_OF_THE_PAGE = ("report.py", "reasons.py", "kept_rows.py", "__main__.py")


@cache
def fingerprint() -> str:
    """Return a hash of what the results depend on: the rules, the matcher, and this script."""
    digest = hashlib.sha256()
    for folder in (_PATTERNS, Path(__file__).resolve().parent):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".yaml") and path.name not in _OF_THE_PAGE:
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


class KeptRows:
    """A folder with a file for each model.

    Args:
        folder: Made where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def row(self, model: str) -> Row | None:
        """Return what was measured of a model, or None if that has to be measured."""
        known = self._read(model)
        if known is None:
            return None
        found = {key: Found(_counts(one["fired"]), _counts(one["there"]), one["error"])
                 for key, one in known["found"].items()}  # fmt: skip
        missed = {key: _counts(one) for key, one in known["missed"].items()}
        return Row(model, _counts(known["sites"]), found, missed)

    def inductor(self, model: str) -> int | str | None:
        """Return how often the patterns of Inductor fired in a model; None if they were not tried."""
        known = self._read(model)
        counts: int | str | None = None if known is None else known["inductor"]
        return counts

    def keep(self, row: Row, inductor: int | str | None) -> None:
        """Write down what was measured of a model."""
        found = {key: {"fired": _listed(one.fired), "there": _listed(one.there), "error": one.error}
                 for key, one in row.found.items()}  # fmt: skip
        missed = {key: _listed(one) for key, one in row.missed.items()}
        document = {"fingerprint": fingerprint(), "sites": _listed(row.sites), "found": found, "missed": missed,
                    "inductor": inductor}  # fmt: skip
        self._file(row.model).write_text(json.dumps(document))

    def _read(self, model: str) -> dict[str, Any] | None:
        file = self._file(model)
        known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return known if known.get("fingerprint") == fingerprint() else None

    def _file(self, model: str) -> Path:
        return self.folder / f"{model.replace(' ', '_').replace('/', '_')}.json"


def _listed(counts: Counter[Site]) -> list[tuple[str, str, int]]:
    return [(site.concept, site.path, count) for site, count in counts.items()]


def _counts(listed: list[tuple[str, str, int]]) -> Counter[Site]:
    return Counter({Site(concept, path): count for concept, path, count in listed})
