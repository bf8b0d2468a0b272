"""The official exporter, asked from a safe distance, and the official runtime that `exirkit.fuzz` asks.

Nothing here imports ExecuTorch: workers do, in processes that may die. Without the wheel every function raises
`OfficialMissingError`; tests carry the mark `executorch` and are skipped before they get that far.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
from pathlib import Path

from exirkit.fuzz.official import (
    Failure,
    OfficialMissingError,
    OfficialResult,
    OfficialRuntime,
    WorkerDiedError,
    WorkerProcess,
    failure_of,
    missing_reason,
)

__all__ = [
    "ROOT",
    "Failure",
    "OfficialExportError",
    "OfficialExporter",
    "OfficialMissingError",
    "OfficialResult",
    "OfficialRuntime",
    "missing_reason",
]

ROOT = Path(__file__).resolve().parents[2]


class OfficialExportError(RuntimeError):
    """The official exporter failed; the text is its error."""


class OfficialExporter:
    """The official exporter in a worker, with a cache on disk.

    Args:
        cache: Directory for the files. A file is found again as long as the versions of the packages and the sources of
            the zoo are the same.
    """

    def __init__(self, cache: Path) -> None:
        reason = missing_reason()
        if reason:
            raise OfficialMissingError(reason)
        self._cache = cache
        self._worker = WorkerProcess("tests.official.export_worker", ROOT)

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def export(self, case: str, *, timeout_s: float = 300.0) -> bytes:
        """Return the program that the official exporter makes of a case of the zoo.

        Raises:
            OfficialExportError: It failed, or took too long.
        """
        self._cache.mkdir(parents=True, exist_ok=True)
        path = self._cache / f"{case}-{cache_key()}.pte"
        if path.exists():
            return path.read_bytes()
        try:
            answer, blobs = self._worker.request({"op": "export", "case": case}, timeout_s=timeout_s)
        except WorkerDiedError as died:
            raise OfficialExportError(failure_of(died).text) from died
        if "failure" in answer:
            raise OfficialExportError(answer["text"])
        # Two test processes may export the same case: each writes a file of its own, and the last rename wins.
        partial = path.with_suffix(f".{os.getpid()}.part")
        partial.write_bytes(blobs[0])
        partial.replace(path)
        return blobs[0]


@functools.cache
def cache_key() -> str:
    """Return a hash of everything that an exported file depends on."""
    digest = hashlib.sha256()
    for package in ("executorch", "torch", "transformers"):
        digest.update(f"{package} {importlib.metadata.version(package)}\n".encode())
    for source in sorted((ROOT / "tests" / "models").glob("*.py")):
        if not source.name.startswith("test_"):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
