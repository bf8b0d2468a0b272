"""Named data of delegates: what a backend stores beside its payload, by key, each blob once."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any, TypeAlias

import torch

from exirkit.emit import ScalarType
from exirkit.ir import dim_order_from_stride


def padding_required(offset: int, alignment: int) -> int:
    """Return how many bytes are missing from an offset to the next multiple of an alignment."""
    return -offset % alignment


def aligned_size(input_size: int, alignment: int) -> int:
    """Return a size rounded up to a multiple of an alignment, both in bytes."""
    return input_size + padding_required(input_size, alignment)


def pad_to(data: bytes, length: int) -> bytes:
    """Return bytes followed by zeros, `length` bytes in all.

    Raises:
        ValueError: There are more than so many.
    """
    if len(data) > length:
        raise ValueError(f"{len(data)} bytes do not fit into {length}")
    return data.ljust(length, b"\0")


class FileBackedData:
    """Bytes that stay in a file until they are needed.

    Args:
        path: The file.
        cleanup: Whether the file is removed with this object, or by `close`.
        sha256: Digest of the contents, if it is known.
    """

    def __init__(self, path: str, cleanup: bool = False, sha256: bytes | None = None) -> None:
        self._path = path
        self._nbytes = os.path.getsize(path)
        self._digest = sha256
        self._removal = weakref.finalize(self, _remove, path) if cleanup else None

    @classmethod
    def move_from(cls, path: str, sha256: bytes | None = None) -> FileBackedData:
        """Take over a file, which gets another name in the same directory and is removed in the end."""
        handle, owned = tempfile.mkstemp(prefix=".exirkit_", suffix=".data", dir=os.path.dirname(path) or ".")
        os.close(handle)
        try:
            os.replace(path, owned)
        except OSError:
            os.remove(owned)
            raise
        return cls(owned, cleanup=True, sha256=sha256)

    def __len__(self) -> int:
        return self._nbytes

    def __bytes__(self) -> bytes:
        return self.to_bytes()

    def prefix(self, size: int) -> bytes:
        """Return the first `size` bytes."""
        with open(self._path, "rb") as file:
            return file.read(size)

    def sha256(self) -> bytes:
        """Return the digest of the contents."""
        if self._digest is None:
            with open(self._path, "rb") as file:
                self._digest = hashlib.file_digest(file, "sha256").digest()
        return self._digest

    def to_bytes(self) -> bytes:
        """Return the contents."""
        with open(self._path, "rb") as file:
            return file.read()

    def write_to_file(self, outfile: io.BufferedIOBase) -> None:
        """Copy the contents to an open file."""
        with open(self._path, "rb") as file:
            shutil.copyfileobj(file, outfile)

    def close(self) -> None:
        """Remove the file, if it is to be removed."""
        if self._removal is not None:
            self._removal()

    def __enter__(self) -> FileBackedData:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except FileNotFoundError:
        return


CordBuffer: TypeAlias = bytes | FileBackedData


class Cord:
    """Bytes in pieces, put together without copying them.

    Args:
        data: The first piece.
    """

    def __init__(self, data: CordBuffer | Cord | None = None) -> None:
        self._pieces: list[CordBuffer] = []
        if data is not None:
            self.append(data)

    def __len__(self) -> int:
        return sum(len(piece) for piece in self._pieces)

    def __bytes__(self) -> bytes:
        return b"".join(bytes(piece) for piece in self._pieces)

    def append(self, data: CordBuffer | Cord) -> None:
        """Add bytes, or the pieces of another cord, at the end.

        Raises:
            TypeError: It is something else.
        """
        if isinstance(data, Cord):
            self._pieces.extend(data._pieces)
        elif isinstance(data, bytes | FileBackedData):
            self._pieces.append(data)
        else:
            raise TypeError(f"{type(data).__name__} is not bytes, file-backed data or a Cord")

    def write_to_file(self, outfile: io.BufferedIOBase) -> None:
        """Write the bytes to an open file."""
        for piece in self._pieces:
            if isinstance(piece, FileBackedData):
                piece.write_to_file(outfile)
            else:
                outfile.write(piece)


@dataclass
class TensorLayout:
    """Type, sizes and order of dims of a stored tensor.

    Attributes:
        scalar_type: Element type.
        sizes: Sizes.
        dim_order: Dims from outermost to innermost in memory.
    """

    scalar_type: ScalarType
    sizes: list[int]
    dim_order: list[int]

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor) -> TensorLayout:
        """Return the layout of a tensor.

        Raises:
            ValueError: Its elements are not contiguous, as they are or with channels last.
        """
        if not tensor.is_contiguous() and not tensor.is_contiguous(memory_format=torch.channels_last):
            raise ValueError("the elements of the tensor are not contiguous; call .contiguous() first")
        order = dim_order_from_stride(tensor.stride(), tensor.shape)
        return cls(ScalarType.from_dtype(tensor.dtype), list(tensor.shape), list(order))


@dataclass
class DataEntry:
    """Where the data of a key is.

    Attributes:
        buffer_index: Index of its blob.
        alignment: The blob starts at a multiple of this many bytes.
        tensor_layout: What tensor it is, if it is one.
    """

    buffer_index: int
    alignment: int
    tensor_layout: TensorLayout | None = None


@dataclass
class DataPayload:
    """Blobs and the keys under which they are found; several keys may share a blob.

    Attributes:
        buffers: The blobs.
        named_data: Entries by key.
    """

    buffers: Sequence[CordBuffer]
    named_data: dict[str, DataEntry]


class DataSerializer(ABC):
    """Writes named data to a format, and reads it."""

    @abstractmethod
    def serialize(self, data: DataPayload) -> Cord:
        """Return the bytes of a payload."""

    @abstractmethod
    def deserialize(self, blob: Cord) -> DataPayload:
        """Return the payload of bytes that `serialize` has made."""


@dataclass
class NamedDataStoreOutput:
    """What a store holds, in the form that `PreprocessResult` takes.

    Attributes:
        buffers: Blobs, each once.
        pte_data: Entries by key of what goes into the program file.
        external_data: Entries by key, by the name of the data file that they go into.
    """

    buffers: list[CordBuffer]
    pte_data: dict[str, DataEntry]
    external_data: dict[str, dict[str, DataEntry]]


class NamedDataStore:
    """Collects named data: equal blobs are kept once, and a key stands for one blob wherever it is stored.

    Attributes:
        buffers: Blobs, each once.
        pte_data: Entries by key of what goes into the program file.
        external_data: Entries by key, by the name of the data file that they go into.
    """

    def __init__(self) -> None:
        self.buffers: list[CordBuffer] = []
        self.pte_data: dict[str, DataEntry] = {}
        self.external_data: dict[str, dict[str, DataEntry]] = {}
        self.key_to_buffer_idx: dict[str, int] = {}
        self._by_digest: dict[bytes, int] = {}

    def add_named_data(
        self,
        key: str,
        data: bytes | FileBackedData | torch.Tensor,
        alignment: int | None = 1,
        external_tag: str | None = None,
        tensor_layout: TensorLayout | None = None,
    ) -> None:
        """Add data under a key.

        Args:
            key: The key.
            data: Its bytes, or a tensor, whose layout is stored with it.
            alignment: The data is to start at a multiple of this many bytes.
            external_tag: Name of the data file that it is to go into; the program file if absent.
            tensor_layout: Which tensor the bytes are.

        Raises:
            ValueError: The key has other data already, the alignment is not positive, or the layout given is not that
                of the tensor.
            TypeError: `data` is neither bytes nor a tensor.
        """
        wanted = 1 if alignment is None else alignment
        if wanted <= 0:
            raise ValueError(f"alignment {wanted} is not positive")
        blob, layout = _stored(key, data, tensor_layout)
        place = self._place(blob)
        known = self.key_to_buffer_idx.setdefault(key, place)
        if known != place:
            raise ValueError(f"key {key} has other data: {len(self.buffers[known])} bytes, not these {len(blob)}")
        entries = self.pte_data if external_tag is None else self.external_data.setdefault(external_tag, {})
        if not any(key in one for one in (self.pte_data, *self.external_data.values())):
            entries[key] = DataEntry(place, wanted, layout)
        elif key in entries:
            entries[key].alignment = lcm(entries[key].alignment, wanted)

    def externalize_pte_data(self, max_data_bytes: int, tag_prefix: str) -> None:
        """Move what would go into the program file to data files of limited size, in the order of keys.

        Args:
            max_data_bytes: Most bytes of data in a file.
            tag_prefix: How names of these files begin; a digest of the keys in it follows.

        Raises:
            ValueError: A blob is larger than that, the size is not positive, or the prefix is empty.
        """
        if isinstance(max_data_bytes, bool) or max_data_bytes <= 0 or not tag_prefix:
            raise ValueError("a data file needs a positive size and a prefix of its name")
        for entries in self._shards(max_data_bytes):
            name = hashlib.sha256("\0".join(entries).encode()).hexdigest()
            self.external_data[f"{tag_prefix}_{name}"] = entries
        self.pte_data = {}

    def get_named_data_store_output(self) -> NamedDataStoreOutput:
        """Return what the store holds."""
        self.external_data = {file: entries for file, entries in self.external_data.items() if entries}
        return NamedDataStoreOutput(self.buffers, self.pte_data, self.external_data)

    def merge_named_data_store(self, other: NamedDataStoreOutput) -> None:
        """Add all that another store holds.

        Raises:
            ValueError: A key has other data there.
        """
        for tag, entries in ((None, other.pte_data), *other.external_data.items()):
            for key, entry in entries.items():
                blob = other.buffers[entry.buffer_index]
                self.add_named_data(key, blob, entry.alignment, tag, entry.tensor_layout)

    def _place(self, blob: CordBuffer) -> int:
        digest = blob.sha256() if isinstance(blob, FileBackedData) else hashlib.sha256(blob).digest()
        place = self._by_digest.setdefault(digest, len(self.buffers))
        if place == len(self.buffers):
            self.buffers.append(blob)
        return place

    def _shards(self, most: int) -> list[dict[str, DataEntry]]:
        groups: dict[int, list[str]] = {}
        for key in sorted(self.pte_data):
            groups.setdefault(self.pte_data[key].buffer_index, []).append(key)
        shards: list[list[str]] = []
        filled = most
        for index, keys in groups.items():
            size = len(self.buffers[index])
            if size > most:
                raise ValueError(f"buffer {index} has {size} bytes, more than the {most} of a data file")
            if filled + size > most:
                shards.append([])
                filled = 0
            shards[-1] += keys
            filled += size
        return [{key: self.pte_data[key] for key in sorted(keys)} for keys in shards]


def _stored(key: str, data: Any, layout: TensorLayout | None) -> tuple[CordBuffer, TensorLayout | None]:
    if isinstance(data, bytes | FileBackedData):
        return data, layout
    if not isinstance(data, torch.Tensor):
        raise TypeError(f"{type(data).__name__} is not bytes, file-backed data or a tensor")
    own = TensorLayout.from_tensor(data)
    if layout is not None and layout != own:
        raise ValueError(f"tensor {key} has the layout {own}, not {layout}")
    return tensor_bytes(data), own


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """Return the elements of a dense tensor in the order in which they lie in memory."""
    order = dim_order_from_stride(tensor.stride(), tensor.shape)
    flat = tensor.detach().cpu().permute(list(order)).contiguous().reshape(-1)
    array: Any = flat.view(torch.uint8).numpy()
    return bytes(array.tobytes())
