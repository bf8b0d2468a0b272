"""What torch reads while damaged files are read: a member that is not damaged once, of damaged programs a share.

Making a program of torch's JSON form takes torch tens of milliseconds, a hundred times what our own reading takes. In
the block of `sparing`

- a pickled member that is byte for byte one of the undamaged file is read once; a damaged one is read each time,
- a program whose document and tensors are those of the undamaged file is made once and copied each time,
- of damaged programs, one in `share` is made by torch, chosen by a digest of its content. In place of the others
  stands the undamaged program that is most like it, so that what we do with a program is done for every file.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._export.serde.serialize import ExportedProgramDeserializer
from torch.export import ExportedProgram

from exirkit.ir import copy_program


@dataclass
class TorchReadings:
    """Programs and members of an undamaged file, and how often each way was taken.

    Attributes:
        share: Of so many damaged programs, one is made by torch.
        counts: `undamaged`, `damaged` and `left out` programs.
        stands_in: Whether another program stood in for one of the file that was read last.
    """

    share: int = 1
    counts: Counter[str] = field(default_factory=Counter)
    stands_in: bool = False
    _programs: dict[bytes, tuple[int, ExportedProgram]] = field(default_factory=dict)
    _members: dict[bytes, Any] = field(default_factory=dict)
    _learns: bool = True

    def program(self, make: Callable[..., ExportedProgram], given: tuple[Any, ...]) -> ExportedProgram:
        """Return what torch makes of a document and tensors, or what stands in for it."""
        digest = _digest(given)
        if digest in self._programs:
            self.counts["undamaged"] += 1
            return copy_program(self._programs[digest][1])
        size = _size(given[0])
        if not self._learns and self._programs and int.from_bytes(digest[:4], "little") % self.share:
            self.counts["left out"] += 1
            self.stands_in = True
            _, nearest = min(self._programs.values(), key=lambda one: abs(one[0] - size))
            return copy_program(nearest)
        self.counts["damaged"] += 1
        made = make(*given)
        if self._learns:
            self._programs[digest] = size, copy_program(made)
        return made

    def member(self, load: Callable[..., Any], file: Any, options: dict[str, Any]) -> Any:
        """Return what torch reads of a pickled member."""
        if not isinstance(file, io.BytesIO):
            return load(file, **options)
        digest = hashlib.sha256(file.getvalue() + repr(sorted(options)).encode()).digest()
        if digest in self._members:
            return self._members[digest]
        found = load(file, **options)
        if self._learns:
            self._members[digest] = found
        return found


@contextmanager
def sparing(readings: TorchReadings, learn: Callable[[], object]) -> Iterator[None]:
    """Let torch read no more than `readings` asks for; `learn` reads the undamaged file."""
    make, load = ExportedProgramDeserializer.deserialize, torch.load

    def deserialize(self: ExportedProgramDeserializer, *given: Any) -> ExportedProgram:
        return readings.program(lambda *each: make(self, *each), given)

    def loaded(file: Any, **options: Any) -> Any:
        return readings.member(load, file, options)

    ExportedProgramDeserializer.deserialize, torch.load = deserialize, loaded  # type: ignore[method-assign,assignment]
    try:
        learn()
        readings._learns = False
        yield
    finally:
        ExportedProgramDeserializer.deserialize, torch.load = make, load  # type: ignore[method-assign]


def _size(document: Any) -> int:
    return len(document.graph_module.graph.nodes)


def _digest(given: tuple[Any, ...]) -> bytes:
    """Return a digest of a document and of the tensors that belong to it."""
    document, *tables = given
    digest = hashlib.sha256(repr(document).encode(errors="surrogatepass"))
    for table in tables:
        named = sorted(table.items(), key=str) if isinstance(table, dict) else [("", table)]
        for name, one in named:
            digest.update(repr((name, _value(one))).encode(errors="surrogatepass"))
    return digest.digest()


def _value(one: Any) -> Any:
    if not isinstance(one, torch.Tensor):
        return one
    layout = (type(one).__name__, one.dtype, tuple(one.shape), one.stride(), one.requires_grad)
    return (*layout, one.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if one.numel() else b"")
