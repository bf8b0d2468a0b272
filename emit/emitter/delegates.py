"""Calls of delegates: an entry in the plan for each call, a payload in the program for each that differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from exirkit.emit.container.writer import NamedBlob
from exirkit.emit.schema import BackendDelegate, BackendDelegateDataReference, BackendDelegateInlineData, CompileSpec
from exirkit.ir import Delegate, Diagnostic, ModelError


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
