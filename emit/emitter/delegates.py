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
    """

    payloads: list[BackendDelegateInlineData] = field(default_factory=list)
    named_data: dict[str, NamedBlob] = field(default_factory=dict)
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
        self._store(delegate.backend_id, delegate.named_data)
        return BackendDelegate(
            id=delegate.backend_id,
            processed=BackendDelegateDataReference(index=self._numbers[key]),
            compile_specs=[CompileSpec(key=spec.key, value=spec.value) for spec in delegate.compile_specs],
        )

    def _store(self, backend: str, named: Mapping[str, bytes]) -> None:
        for key, data in named.items():
            known = self.named_data.setdefault(key, NamedBlob(data))
            if known.data != data:
                raise ModelError(
                    Diagnostic(
                        code="EK561",
                        message=f"two delegates have different data under the key {key!r}",
                        notes=(f"the second is of backend {backend}",),
                        expected="keys that say what is behind them, such as a hash of the data",
                    )
                )
