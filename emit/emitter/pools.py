"""What the methods of a program share: constants, initial values, payloads of delegates and named data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from typing import Any

import torch
from torch._subclasses import FakeTensor

from exirkit.emit.container.writer import NamedBlob
from exirkit.emit.schema import (
    BackendDelegate,
    BackendDelegateDataReference,
    BackendDelegateInlineData,
    Buffer,
    CompileSpec,
)
from exirkit.ir import Delegate, Diagnostic, Location, ModelError

# Bytes at the start and end of a constant that are compared before anything is hashed.
_SAMPLE_NBYTES = 256


class ConstantPool:
    """Buffers with contents of their own; entry 0 is reserved for "no data".

    Equal contents are stored once, also across methods. Tensors that share memory are recognised by their address;
    others are hashed only when size, start and end agree with those of a constant that is there already.

    Attributes:
        buffers: The contents, in the order in which they were added.
    """

    def __init__(self) -> None:
        self.buffers: list[Buffer] = [Buffer()]
        self._by_place: dict[tuple[Any, ...], int] = {}
        self._by_sample: dict[tuple[int, bytes], list[int]] = {}
        self._digests: dict[int, bytes] = {}
        # Addresses are unique only as long as the memory behind them is there.
        self._kept: list[torch.Tensor] = []

    def add(self, tensor: torch.Tensor, dim_order: Sequence[int], name: str) -> int:
        """Return the index of the buffer that holds a tensor.

        Args:
            tensor: Real tensor of any strides; copied only if it is not dense in `dim_order`.
            dim_order: Order of dims in which its elements are stored.
            name: What the tensor is called, for messages.

        Raises:
            ModelError: EK554, the tensor has no data.
        """
        _check_real(tensor, name)
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tuple(dim_order))
        if tensor.numel() and place in self._by_place:
            return self._by_place[place]
        index = self._of_contents(contents(tensor, dim_order))
        self._by_place[place] = index
        self._kept.append(tensor)
        return index

    def append(self, data: memoryview) -> int:
        """Store contents without looking for equal ones, and return their index."""
        self.buffers.append(Buffer(storage=data))
        return len(self.buffers) - 1

    def _of_contents(self, data: memoryview) -> int:
        sample = (len(data), bytes(data[:_SAMPLE_NBYTES]) + bytes(data[-_SAMPLE_NBYTES:]))
        alike = self._by_sample.setdefault(sample, [])
        if alike and len(data) <= 2 * _SAMPLE_NBYTES:
            return alike[0]
        for index in alike:
            if self._digest(index) == _hashed(data):
                return index
        alike.append(self.append(data))
        return alike[-1]

    def _digest(self, index: int) -> bytes:
        if index not in self._digests:
            self._digests[index] = _hashed(self.buffers[index].storage)
        return self._digests[index]


def contents(tensor: torch.Tensor, dim_order: Sequence[int]) -> memoryview:
    """Return the bytes of a tensor's elements in the given order of dims: a view of its memory where they lie so."""
    ordered = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dim() != 0:
        ordered = ordered.permute(tuple(dim_order))
    flat = ordered.contiguous().reshape(-1)
    if flat.numel() < 2:
        # One element or none is contiguous with any stride, but seen as bytes only with stride 1.
        flat = flat.as_strided((flat.numel(),), (1,))
    data: Any = flat.view(torch.uint8).numpy()
    return memoryview(data)


def is_all_zero(data: memoryview) -> bool:
    """Return whether contents are nothing but zero bytes; minus zero is not."""
    if not len(data):
        return True
    return not bool(torch.frombuffer(data, dtype=torch.uint8).any())


def _hashed(data: bytes | memoryview) -> bytes:
    return blake2b(data, digest_size=32).digest()


def _check_real(tensor: torch.Tensor, name: str) -> None:
    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        raise ModelError(
            Diagnostic(
                code="EK554",
                message=f"{name} has no data",
                location=Location(text=f"{name}: {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"),
                expected="a tensor in memory; this one is fake or on the meta device",
                hint="load the weights before exporting",
            )
        )


@dataclass
class DelegatePool:
    """What the delegates of all methods share.

    Attributes:
        payloads: What backends have made, each content once.
        named_data: Data that delegates find by a key.
        external_data: The same, in data files beside the program, by the name of the file.
    """

    payloads: list[BackendDelegateInlineData] = field(default_factory=list)
    named_data: dict[str, NamedBlob] = field(default_factory=dict)
    external_data: dict[str, dict[str, NamedBlob]] = field(default_factory=dict)
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def entry(self, delegate: Delegate) -> BackendDelegate:
        """Return the entry of a call, and store what it needs.

        Raises:
            ModelError: EK561, another delegate has other data under the same key.
        """
        data = delegate.processed_bytes
        key = sha256(data).digest()
        if key not in self._numbers:
            self._numbers[key] = len(self.payloads)
            self.payloads.append(BackendDelegateInlineData(data=data))
        self._store(delegate.backend_id, delegate.named_data, self.named_data)
        for file, named in delegate.external_data.items():
            self._store(delegate.backend_id, named, self.external_data.setdefault(file, {}))
        return BackendDelegate(
            id=delegate.backend_id,
            processed=BackendDelegateDataReference(index=self._numbers[key]),
            compile_specs=[CompileSpec(key=spec.key, value=spec.value) for spec in delegate.compile_specs],
        )

    @staticmethod
    def _store(backend: str, named: Mapping[str, bytes], stored: dict[str, NamedBlob]) -> None:
        for key, data in named.items():
            known = stored.setdefault(key, NamedBlob(data))
            if known.data != data:
                raise ModelError(
                    Diagnostic(
                        code="EK561",
                        message=f"two delegates have different data under the key {key!r}",
                        notes=(f"the second is of backend {backend}",),
                        expected="keys that say what is behind them, such as a hash of the data",
                    )
                )


@dataclass
class ProgramState:
    """What all methods of a program share.

    Attributes:
        emit_mutable_buffer_names: Store the names of mutable buffers.
        constants: Contents of constants.
        initial_values: Initial contents of mutable buffers.
        delegates: What backends have made.
    """

    emit_mutable_buffer_names: bool = False
    constants: ConstantPool = field(default_factory=ConstantPool)
    initial_values: ConstantPool = field(default_factory=ConstantPool)
    delegates: DelegatePool = field(default_factory=DelegatePool)
