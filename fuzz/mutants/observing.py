"""What can be seen of a program: its file, and what its runs give."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.examination import Examination, FailedError, RejectedError
from exirkit.fuzz.programs import Program

from .applying import applied, applied_companions
from .model import Mutant


def observed(program: Program, compiler: ExirkitCompiler | None = None) -> tuple[str, str]:
    """Lower a program and run it; return a digest of its file and one of the results, or what was raised instead."""
    examination = Examination(program, compiler or ExirkitCompiler())
    try:
        data = hashlib.blake2b(examination.lowering.data, digest_size=16).hexdigest()
    except (FailedError, RejectedError) as error:
        return _first_line(error), ""
    try:
        return data, _digest(examination)
    except (FailedError, RejectedError) as error:
        return data, _first_line(error)


def changes(mutant: Mutant, program: Program) -> tuple[int, bool]:
    """Return how often a mutant is reached by a program, and whether it changes anything that can be seen."""
    compiler = ExirkitCompiler(**mutant.compiler)  # type: ignore[arg-type]
    with applied_companions(mutant):
        before = observed(program, compiler)
    with applied(mutant) as reach:
        after = observed(program, compiler)
    return reach.count, before != after


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _digest(examination: Examination) -> str:
    found = hashlib.blake2b(digest_size=16)
    for method, results in examination.results.items():
        for result in results:
            for value in (*result.outputs, *result.state.values()):
                for part in _bytes(value):
                    found.update(part)
        found.update(method.encode())
    return found.hexdigest()


def _bytes(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype}{tuple(value.shape)}".encode()
        yield value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    elif isinstance(value, list):
        for one in value:
            yield from _bytes(one)
    else:
        yield repr(value).encode()
