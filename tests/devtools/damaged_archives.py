"""Damage to zip archives and to the JSON documents in them, and the formats that are archives or mapped files."""

from __future__ import annotations

import copy
import io
import json
import random
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from tests.runtime_ref.mutations import mutations
from torch.export.pt2_archive._package import package_pt2

from exirkit import to_edge
from exirkit.cli.model import load_exported
from exirkit.devtools import Inspector, parse_etrecord
from exirkit.emit import (
    NamedBlob,
    ScalarType,
    TensorLayout,
    read_safetensors,
    tensors_of,
    trace_file,
    write_safetensors,
)
from exirkit.program import FileCertificate, check_certificate, read_bundle, read_certificate, write_bundle
from exirkit.runtime_ref import Runtime, Tracer

_VALUES: tuple[Any, ...] = (
    None,
    0,
    -1,
    1,
    7,
    2**31,
    2**63,
    -(2**63) - 1,
    10**30,
    1.5,
    float("nan"),
    True,
    "",
    "x",
    "0",
    [],
    {},
    [[]],
)
_DEEP = 3000


def archive_mutations(data: bytes, count: int, seed: int) -> Iterator[bytearray]:
    """Yield damaged copies of an archive: one member is changed, or the bytes are."""
    rng = random.Random(seed)
    for number in range(count):
        if rng.random() < 0.15:
            (damaged,) = mutations(data, 1, rng.randrange(1 << 30), header_nbytes=len(data))
            yield damaged
        else:
            yield bytearray(_changed_archive(data, rng, number))


def _changed_archive(data: bytes, rng: random.Random, number: int) -> bytes:
    members = list(_members(data))
    at = rng.randrange(len(members))
    name, content = members[at]
    kind = rng.randrange(20)
    if kind == 0:
        del members[at]
    elif kind == 1:
        members[at] = (rng.choice(members)[0] + rng.choice(("", "x", "/")), content)
    elif kind == 2:
        members.append((name, rng.choice(members)[1]))
    elif kind == 3:
        members[at] = (name, rng.choice(members)[1])
    else:
        members[at] = (name, changed_content(content, rng))
    made = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(made, "w") as archive:
            for one, found in members:
                archive.writestr(zipfile.ZipInfo(one), found)
    return made.getvalue()


@lru_cache(maxsize=64)
def _members(data: bytes) -> tuple[tuple[str, bytes], ...]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return tuple((one.filename, archive.read(one)) for one in archive.infolist())


def changed_content(content: bytes, rng: random.Random) -> bytes:
    """Return a damaged member: a document or an archive is changed where its structure is."""
    if zipfile.is_zipfile(io.BytesIO(content)) and rng.random() < 0.9:
        return _changed_archive(content, rng, 0)
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if document is None or rng.random() < 0.1:
        (damaged,) = mutations(content or b"0", 1, rng.randrange(1 << 30), header_nbytes=len(content))
        return bytes(damaged)
    if rng.random() < 0.01:
        return b"[" * _DEEP + b"]" * _DEEP
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        document = _changed_document(document, rng)
    return json.dumps(document).encode()


def _changed_document(document: Any, rng: random.Random) -> Any:
    """Change one place, as likely near the root as in the leaves."""
    places: list[tuple[Any, Any]] = []
    inside = document
    while isinstance(inside, dict | list) and inside:
        key = rng.choice(list(inside)) if isinstance(inside, dict) else rng.randrange(len(inside))
        places.append((inside, key))
        inside = inside[key]
    if not places:
        return _value(rng)
    holder, key = rng.choice((places[-1], rng.choice(places)))
    kind = rng.randrange(6)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        others = list(holder) if isinstance(holder, dict) else range(len(holder))
        other = rng.choice(list(others))
        holder[key], holder[other] = holder[other], holder[key]
    elif kind == 2 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif kind == 2:
        holder[f"{key}_"] = holder.pop(key)
    elif kind == 3 and isinstance(holder[key], int):
        holder[key] += rng.choice((-1, 1))
    elif kind == 3 and isinstance(holder[key], str):
        text = holder[key]
        holder[key] = rng.choice((text[:-1], text + text, text.upper(), "%" + text, text.replace("_", ".")))
    else:
        holder[key] = _value(rng)
    return document


def _value(rng: random.Random) -> Any:
    # A copy: the next change may be inside of it.
    return copy.deepcopy(rng.choice(_VALUES))


def header_mutations(data: bytes, count: int, seed: int) -> Iterator[bytearray]:
    """Yield damaged copies of a safetensors file, most of them in its document."""
    rng = random.Random(seed)
    end = 8 + int.from_bytes(data[:8], "little")
    for _ in range(count):
        if rng.random() < 0.3:
            (damaged,) = mutations(data, 1, rng.randrange(1 << 30), header_nbytes=end)
            yield damaged
        else:
            document = changed_content(data[8:end], rng)
            yield bytearray(len(document).to_bytes(8, "little") + document + data[end:])


class _Branching(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return torch.cond(y.sum() > 0, torch.relu, lambda one: (one + 1).abs(), (y,))


def exported() -> torch.export.ExportedProgram:
    """Return a program that branches, of a size that varies."""
    torch.manual_seed(0)
    shapes = ({0: torch.export.Dim("batch", min=1, max=8)},)
    return torch.export.export(_Branching().eval().requires_grad_(False), (torch.ones(3, 2),), dynamic_shapes=shapes)


def _file(write: Callable[[Path], object]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "made")
        write(path)
        return path.read_bytes()


def etrecord_bytes() -> bytes:
    """Return a record with programs, weights, inputs and outputs."""
    made = to_edge(exported(), generate_etrecord=True).to_executorch()
    record = made.get_etrecord()
    record.add_exported_program(exported())
    record.update_representative_inputs([torch.ones(3, 2)])
    record.update_reference_outputs([[torch.ones(3, 3)]])
    return _file(record.save)


def _traced() -> bytes:
    tracer = Tracer()
    file = to_edge(exported()).to_executorch().buffer
    Runtime.get().load_program(file, tracer=tracer).load_method("forward").execute([torch.ones(3, 2)])
    return trace_file(tracer.trace()).to_bytes()


_TRACE: list[bytes] = []


def read_etrecord(data: bytearray) -> None:
    """Read a record with its programs and ask it for the nodes of every instruction, directly and for an inspector."""
    record = _from_file(parse_etrecord, data)
    for method, handles in record.debug_handle_map.items():
        for at in handles:
            record.nodes_of(method, at)
    if not _TRACE:
        _TRACE.append(_traced())
    for block in Inspector(etdump_data=_TRACE[0], etrecord=record).event_blocks:
        for event in block.events:
            assert event.op_types is not None
            assert event.module_hierarchy is not None
    assert record.programs is not None
    assert record.graph_map is not None


def saved_program_bytes() -> bytes:
    """Return an exported program as torch saves it."""
    return _file(lambda path: torch.export.save(exported(), path))


def packaged_programs_bytes() -> bytes:
    """Return an archive of two programs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = io.BytesIO()
        package_pt2(buffer, exported_programs={"forward": exported(), "other": exported()})
    return buffer.getvalue()


def read_exported(data: bytearray) -> None:
    """Read exported programs."""
    _from_file(load_exported, data)


def failure_bundle_bytes(*, stores_weights: bool) -> bytes:
    """Return a bundle of a program whose weights are stored or drawn."""
    facts = {"options": {"level": 1, "rules": ["files/a.yaml"]}, "runs": 1, "seed": 3, "failure": None}
    made = io.BytesIO()
    files = {"a.yaml": b"rules: []"}
    write_bundle(made, {"forward": exported()}, facts=facts, files=files, stores_weights=stores_weights)
    return made.getvalue()


def read_failure_bundle(data: bytearray) -> None:
    """Read a bundle with its programs."""
    bundle = _from_file(read_bundle, data)
    assert isinstance(bundle.facts, dict)


_DIGEST = "0123456789abcdef" * 4


def certificate_bytes() -> bytes:
    """Return the certificate of a program file."""
    document = {
        "certificate": 1,
        "exirkit": "0.1.0",
        "torch": "2.13.0",
        "program": {"name": "model.pte", "nbytes": 3, "sha256": _DIGEST},
        "data": [{"name": "model.ptd", "nbytes": 5, "sha256": _DIGEST}],
        "delegates": {"forward": ["XnnpackBackend"]},
        "passes": [{"pipeline": "to_edge.yaml", "number": "1", "name": "decompose", "runs": 1, "changed": 1}],
        "rules": [
            {
                "rule": "user.one", "book": "user.yaml", "hash": _DIGEST[:20], "status": "tried", "applied": 2,
                "samples": 8, "seed": 3,
            }
        ],
        "verifiers": [{"name": "memory", "of": "forward", "findings": ["EK303"]}],
    }  # fmt: skip
    return FileCertificate.model_validate(document).text().encode()


def read_all_of_certificate(data: bytearray) -> None:
    """Read a certificate and compare it with the files beside it."""
    found = _from_file(read_certificate, data)
    with suppress(OSError):
        check_certificate(Path("/dev/shm/model.pte"), found)


def document_mutations(data: bytes, count: int, seed: int) -> Iterator[bytearray]:
    """Yield damaged copies of a document, most of them in its structure."""
    rng = random.Random(seed)
    for _ in range(count):
        yield bytearray(changed_content(data, rng))


def safetensors_bytes() -> bytes:
    """Return tensors of several layouts and a blob."""
    layout = TensorLayout(scalar_type=ScalarType.FLOAT, sizes=[2, 3], dim_order=[1, 0])
    entries = {
        "a": NamedBlob(bytes(24), layout=layout),
        "b": NamedBlob(bytes(5)),
        "c": NamedBlob(bytes(16), layout=TensorLayout(scalar_type=ScalarType.LONG, sizes=[2], dim_order=[0])),
    }
    return _file(lambda path: write_safetensors(entries, path))


def read_all_safetensors(data: bytearray) -> None:
    """Read a file with all its tensors."""
    for one in tensors_of(_from_file(read_safetensors, data)).values():
        assert one.numel() == one.clone().numel()


def _from_file(read: Callable[[Path], Any], data: bytearray) -> Any:
    with tempfile.NamedTemporaryFile(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as file:
        file.write(data)
        file.flush()
        return read(Path(file.name))
