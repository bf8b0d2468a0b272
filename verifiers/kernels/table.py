"""The kernels of a runtime, with what each asks of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from exirkit.ir import Diagnostic, UsageError

from .conditions import KernelCondition, read_condition


@dataclass(frozen=True)
class KernelTable:
    """The kernels of a runtime.

    Attributes:
        target: Name of the target that has them.
        conditions: By operator as it stands in program files (`aten::add.out`), what its kernel asks of a call.
    """

    target: str
    conditions: Mapping[str, tuple[str, ...]]
    _read: dict[str, tuple[KernelCondition, ...]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the operators, without the overload `default`."""
        return frozenset(map(_plain, self.conditions))

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """Libraries of operators that the runtime serves; kernels of others are linked to it by its users."""
        return frozenset(name.partition("::")[0] for name in self.names)

    def has(self, operator: str) -> bool:
        """Whether there is a kernel for an operator."""
        return _plain(operator) in self.names

    def resizes(self, operator: str) -> bool:
        """Whether there is a kernel for an operator that sets the sizes of its results, where they vary."""
        return self.has(operator) and not any("fixed(" in one.text for one in self.conditions_of(operator))

    def conditions_of(self, operator: str) -> tuple[KernelCondition, ...]:
        """Return the conditions of a kernel.

        Raises:
            UsageError: EK361, one of them cannot be read.
        """
        known = self._read.get(operator)
        if known is None:
            texts = self.conditions.get(operator) or self.conditions.get(f"{operator}.default", ())
            known = self._read[operator] = tuple(self._condition(operator, text) for text in texts)
        return known

    def _condition(self, operator: str, text: str) -> KernelCondition:
        try:
            return read_condition(text)
        except ValueError as error:
            raise UsageError(
                Diagnostic.of(
                    "EK361", f"the target {self.target} has a condition of {operator} that cannot be read: {error}"
                )
            ) from None


def _plain(name: str) -> str:
    return name.removesuffix(".default")
