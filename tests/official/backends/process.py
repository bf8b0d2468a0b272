"""The process of the bridge: one for all tests that run in this one, as it takes many seconds to start."""

from __future__ import annotations

import atexit
import functools

from tests.official.oracle import ROOT

from exirkit.fuzz.official.process import WorkerProcess
from exirkit.fuzz.official.wire import Header


@functools.cache
def _process() -> WorkerProcess:
    process = WorkerProcess("tests.official.backends.worker", ROOT)
    atexit.register(process.close)
    return process


def ask_bridge(request: Header) -> tuple[Header, list[bytes]]:
    """Return what the official package and our chain answer together."""
    answer, blobs = _process().request(request, timeout_s=300.0)
    assert "failure" not in answer, answer["failure"]
    return answer, blobs
