"""What torch reads while damaged files are read: a member that is not damaged once, of damaged programs a share.

Making a program of torch's JSON form takes torch tens of milliseconds, a hundred times what our own reading takes. In
the block of `sparing`

- a pickled member that is byte for byte one of the undamaged file is read once; a damaged one is read each time,
- a program of a record whose members are all undamaged is restored once; a record is only read,
- a document that is undamaged is parsed once, and the fields of a class of documents are looked up once,
- a program whose document and tensors are those of the undamaged file is made once and copied each time,
- of damaged programs, one in `share` is made by torch, chosen by a digest of its content. In place of the others
  stands the undamaged program that is most like it, so that what we do with a program is done for every file.
"""

from __future__ import annotations

import functools
import hashlib
import io
import typing
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch._export.serde import schema, serialize
from torch._export.serde.serialize import ExportedProgramDeserializer
from torch.export import ExportedProgram

from exirkit.devtools.etrecord.record import _StoredProgram
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
    _documents: dict[bytes, Any] = field(default_factory=dict)
    _document_digests: dict[int, bytes] = field(default_factory=dict)
    _restored: dict[_StoredProgram, ExportedProgram] = field(default_factory=dict)
    _learns: bool = True

    def restored(self, restore: Callable[[_StoredProgram], ExportedProgram], stored: _StoredProgram) -> ExportedProgram:
        """Return the program that members of a record hold."""
        if stored in self._restored:
            self.counts["undamaged"] += 1
            return self._restored[stored]
        made = restore(stored)
        if self._learns:
            self._restored[stored] = made
        return made

    def document(self, parse: Callable[..., Any], kind: Any, text: bytes) -> Any:
        """Return a document as torch parses it."""
        if text in self._documents:
            return self._documents[text]
        made = parse(kind, text)
        if self._learns:
            self._documents[text] = made
            self._document_digests[id(made)] = _document_digest(made)
        return made

    def changed_documents(self) -> int:
        """Return how many of the documents that are parsed once are no longer what they were, which must be none."""
        return sum(_document_digest(one) != self._document_digests[id(one)] for one in self._documents.values())

    def program(self, make: Callable[..., ExportedProgram], given: tuple[Any, ...]) -> ExportedProgram:
        """Return what torch makes of a document and tensors, or what stands in for it."""
        document, *tables = given
        digest = _digest(self._document_digests.get(id(document)) or _document_digest(document), tables)
        if digest in self._programs:
            self.counts["undamaged"] += 1
            return copy_program(self._programs[digest][1])
        size = _size(document)
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
    make, load, parse = ExportedProgramDeserializer.deserialize, torch.load, serialize._bytes_to_dataclass
    restore = _StoredProgram.restored
    replaced: list[tuple[Any, str, Any]] = [
        (
            ExportedProgramDeserializer,
            "deserialize",
            lambda self, *given: readings.program(functools.partial(make, self), given),
        ),
        (torch, "load", lambda file, **options: readings.member(load, file, options)),
        (serialize, "_bytes_to_dataclass", functools.partial(readings.document, parse)),
        (serialize, "typing", SimpleNamespace(**{**vars(typing), "get_type_hints": _fields_of()})),
        (_StoredProgram, "restored", lambda stored: readings.restored(restore, stored)),
    ]
    with ExitStack() as stack:
        for owner, name, one in replaced:
            stack.enter_context(patch.object(owner, name, one))
        learn()
        readings._learns = False
        yield


def _fields_of() -> Callable[..., dict[str, Any]]:
    @functools.cache
    def found(kind: type) -> dict[str, Any]:
        return typing.get_type_hints(kind, globalns=vars(schema))

    return lambda kind, **_names: found(kind)


def _size(document: Any) -> int:
    return len(document.graph_module.graph.nodes)


def _document_digest(document: Any) -> bytes:
    return hashlib.sha256(repr(document).encode(errors="surrogatepass")).digest()


def _digest(document: bytes, tables: list[Any]) -> bytes:
    """Return a digest of a document, of which one is given, and of the tensors that belong to it."""
    digest = hashlib.sha256(document)
    for table in tables:
        named = sorted(table.items(), key=lambda one: str(one[0])) if isinstance(table, dict) else [("", table)]
        for name, one in named:
            digest.update(repr((name, _value(one))).encode(errors="surrogatepass"))
    return digest.digest()


def _value(one: Any) -> Any:
    if not isinstance(one, torch.Tensor):
        return one
    layout = (type(one).__name__, one.dtype, tuple(one.shape), one.stride(), one.requires_grad)
    return (*layout, one.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if one.numel() else b"")
