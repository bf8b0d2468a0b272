"""The other disposable half of the oracle: lowers cases of the zoo with the official exporter."""

from __future__ import annotations

import importlib
import os
import sys
import traceback

from exirkit.fuzz.official.wire import pack, unpack
from exirkit.fuzz.official.worker import read_exactly, write_all


def export(case: str) -> bytes:
    """Return the bytes of the official program for a case."""
    exporter = importlib.import_module("executorch.exir")  # ten seconds, so not before the first request
    from tests.models.zoo import CASES

    return bytes(exporter.to_edge(CASES[case].make().export()).to_executorch().buffer)


def main() -> int:
    """Answer requests until there are no more."""
    stream = os.dup(1)
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(1)
    write_all(stream, pack({"ready": os.getpid()}))
    while True:
        try:
            request, _ = unpack(read_exactly)
        except EOFError:
            return 0
        try:
            frame = pack({"number": request["number"]}, [export(request["case"])])
        except Exception:
            failure = {"failure": "export-error", "text": traceback.format_exc()}
            frame = pack({**failure, "number": request["number"]})
        write_all(stream, frame)


if __name__ == "__main__":
    sys.exit(main())
