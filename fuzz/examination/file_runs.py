"""Running an emitted program on our interpreter, with the state that it keeps between runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from exirkit.emit import PteFile
from exirkit.runtime_ref import Runtime, Verification


@dataclass(frozen=True)
class FileResult:
    """What one run gave.

    Attributes:
        outputs: What the method returned.
        state: Copies of the buffers that the method writes to, by name, where the file keeps names.
    """

    outputs: list[Any]
    state: Mapping[str, torch.Tensor]


def run_file(
    data: bytes | PteFile,
    method: str,
    calls: Sequence[Sequence[Any]],
    buffers: Sequence[str] = (),
    *,
    is_sanitized: bool = True,
    views: Mapping[int, int] | None = None,
    in_place: bool = False,
) -> list[FileResult]:
    """Load a program and run one of its methods again and again.

    Args:
        data: The file.
        method: Name of the method.
        calls: Inputs of every run.
        buffers: Names of buffers to read after every run.
        is_sanitized: Watch every byte of the arenas, which are poisoned before.
        views: For a sanitized run: the value whose memory each view without instruction shows.
        in_place: For a sanitized run: results may lie over arguments where their kernels allow it.

    Raises:
        DiagnosticError: Whatever is wrong with the file or with a run.
    """
    given = None if views is None else {method: views}
    program = Runtime.get().load_program(
        data,
        verification=Verification.Minimal,
        sanitize=is_sanitized,
        views=given if is_sanitized else None,
        in_place=in_place and is_sanitized,
    )
    loaded = program.load_method(method)
    results: list[FileResult] = []
    for inputs in calls:
        # Inputs that lie where the caller has them are written there, and are wanted again as they were.
        outputs = loaded.execute([one.clone() if isinstance(one, torch.Tensor) else one for one in inputs])
        results.append(FileResult(outputs, {name: loaded.get_attribute(name) for name in buffers}))
    return results
