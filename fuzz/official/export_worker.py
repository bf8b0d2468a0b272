"""The process in which the official exporter lowers programs that arrive as text."""

from __future__ import annotations

import os
import sys
import traceback
import warnings

import torch

from exirkit.fuzz.programs import export, parse_program

from .variants import VARIANTS
from .wire import Header, pack, unpack
from .worker import read_exactly, write_all


def lower(text: str, variant: str) -> bytes:
    """Return the bytes of the official program.

    Args:
        text: The program.
        variant: One of `VARIANTS`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bytes(VARIANTS[variant](export(parse_program(text), functional=False)).buffer)


def failure_of(error: BaseException) -> Header:
    """Describe what the exporter raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "executorch" in frame.filename]
    places = [f"{frame.filename.rpartition('executorch/')[2]}:{frame.name}" for frame in frames[-3:]]
    return {"failure": type(error).__name__, "where": " < ".join(places[::-1]), "text": traceback.format_exc()[-4000:]}


def main() -> int:
    """Answer requests until there are no more."""
    stream = os.dup(1)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    write_all(stream, pack({"ready": os.getpid()}))
    while True:
        try:
            request, _ = unpack(read_exactly)
        except EOFError:
            return 0
        try:
            frame = pack({"number": request["number"]}, [lower(request["text"], request.get("variant", ""))])
        except Exception as error:
            frame = pack({**failure_of(error), "number": request["number"]})
        write_all(stream, frame)


if __name__ == "__main__":
    sys.exit(main())
